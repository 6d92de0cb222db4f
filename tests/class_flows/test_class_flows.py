"""A class as a flow: what its methods get and return, its state, its failures, and what is inside of it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from pydantic import BaseModel, HttpUrl

from crewlite import Agent, Crew, History, Task, event_bus
from crewlite.errors import ConfigError, Suspended, TooManyCalls
from crewlite.events import BaseEvent, MethodExecutionStartedEvent
from crewlite.flow import Flow, and_, flow, listen, or_, router, start, step
from crewlite.state import RuntimeState
from crewlite.testing import ScriptedLLM
from tests import children
from tests.cuts import RUN


class Draft(BaseModel):
    topic: str = ""
    lines: list[str] = []
    source: HttpUrl | None = None


class Article(BaseModel):
    title: str


class Write(Flow[Draft]):
    @start()
    def begin(self):
        self.state.lines.append("begin")
        return Article(title=self.state.topic)

    @router(begin)
    def check(self, article):
        self.state.lines.append(f"check {article.title}")
        return "long" if len(article.title) > 4 else "short"

    @listen(check)
    def log(self, label):
        self.state.lines.append(label)

    @listen("long")
    async def cut(self, article):
        return article.title[:4]

    @listen("short")
    def keep(self, article):
        return article


def test_a_method_gets_what_the_one_before_it_returned_and_behind_a_label_what_the_router_was_given():
    write = Write()
    assert write.kickoff({"topic": "tides"}) == "tide"
    assert write.state.lines == ["begin", "check tides", "long"]
    assert write.kickoff({"topic": "ebb"}) == Article(title="ebb")


def test_the_state_after_a_kickoff_is_that_of_the_code_that_asks():
    write = Write(topic="dunes")
    write.state.source = HttpUrl("https://example.com/")
    assert (write.kickoff(), write.state.source) == ("dune", HttpUrl("https://example.com/"))
    assert write.state.id != ""

    async def both():
        async def one(topic):
            await write.akickoff({"topic": topic})
            return write.state.topic

        return await asyncio.gather(one("a"), one("b"))

    assert asyncio.run(both()) == ["a", "b"]
    assert write.state.topic == "dunes"


def test_inputs_are_fields_of_the_state_or_arguments_of_the_methods_that_begin():
    class Take(Flow[Draft]):
        @start()
        def begin(self, given, more=2):
            return given, more, self.state.topic

    take = Take()
    assert take.kickoff({"given": 1, "topic": "x"}) == (1, 2, "x")
    for inputs, told in [
        ({"given": 1, "topci": "x"}, "its state has no field 'topci'; did you mean 'topic'?"),
        ({"topic": "x"}, "is missing the input given, which a method takes: pass inputs={'given': ...}, or give the"),
        ({"given": 1, "lines": 3}, "the input lines does not fit its state: Input should be a valid list"),
    ]:
        with pytest.raises(ConfigError) as caught:
            take.kickoff(inputs)
        assert told in str(caught.value)
    with pytest.raises(
        ConfigError, match="no setting and no field of its state 'checkpiont'; did you mean 'checkpoint"
    ):
        Take(checkpiont=True)
    with pytest.raises(ConfigError, match=r"no field of its state 'zzz'; it takes name, .*, topic"):
        Take(zzz=1)


def test_a_method_that_begins_may_be_wrapped_by_a_function_that_takes_anything():
    class Wrapped(Flow):
        @start()
        def begin(self, *given, **named):
            return given, named

        @start()
        def begin_with(self, topic="none", *given, **named):
            return topic, given, named

        @listen(and_(begin, begin_with))
        def end(self, *given, times=2):
            return self.state["topic"], given, times

    assert not Wrapped().required_inputs()
    assert Wrapped(initial_state={"topic": "tides"}).kickoff() == ("tides", (), 2)


def test_methods_side_by_side_change_fields_of_their_own_and_the_later_commit_wins_one_that_both_change():
    class Side(Flow):
        initial_state = {"all": []}  # noqa: RUF012 - each kickoff begins with a copy

        @start()
        async def one(self):
            self.state["one"], self.state["both"] = 1, "one"
            self.state["all"].append(1)

        @start()
        async def two(self):
            await asyncio.sleep(0.05)
            self.state["two"], self.state["both"] = 2, "two"
            self.state["all"].append(2)

        @listen(and_(one, two))
        def end(self):
            return dict(self.state)

    side, heard = Side(), []
    event_bus.on(BaseEvent, lambda source, event: heard.append(event.type))
    found = side.kickoff()
    assert found.pop("id")
    assert found == {"one": 1, "two": 2, "both": "two", "all": [1, 2]}
    assert heard.count("step_state_conflict") == 1
    assert side.kickoff()["all"] == [1, 2]


def test_sync_methods_run_in_threads_side_by_side():
    met = threading.Barrier(2, timeout=children.PATIENCE)

    class Side(Flow):
        @start()
        def one(self):
            met.wait()

        @start()
        def two(self):
            met.wait()

    Side().kickoff()


def test_a_failure_lets_what_runs_beside_it_end_and_a_resume_goes_on_with_it(memory):
    done, down = [], [True]

    class Part(Flow):
        checkpoint = memory()

        @start()
        def begin(self):
            done.append("begin")

        @listen(begin)
        def fails(self):
            if down:
                self.state["left"] = "nothing of this"
                raise ConnectionError("down")
            return "up"

        @listen(begin)
        def beside(self):
            done.append("beside")

        @listen(beside)
        def behind(self):
            done.append("behind")

        @listen(fails)
        def end(self, given):
            return given, self.state.get("left")

    with pytest.raises(ConnectionError, match="down"):
        Part().kickoff(run_id=RUN)
    assert done == ["begin", "beside", "behind"]
    down.clear()
    assert Part().kickoff(run_id=RUN) == ("up", None)
    assert done == ["begin", "beside", "behind"]


def test_a_method_is_tried_again_and_a_cycle_is_bounded(memory):
    tries = []

    class Turn(Flow):
        checkpoint = memory()

        @start(retries=2)
        def begin(self):
            tries.append(1)
            if len(tries) < 3:
                raise ConnectionError("no line")
            return 0

        @router(or_(begin, "again"), emit=["again", "done"])
        def turn(self):
            self.state["turns"] = self.state.get("turns", 0) + 1
            return "again" if self.state["turns"] < 30 else "done"

    with pytest.raises(TooManyCalls, match="'turn' of flow 'Turn' was to start more than 20 times"):
        Turn(max_method_calls=20).kickoff(run_id=RUN)
    turned = Turn()
    assert (turned.kickoff(run_id=RUN), turned.state["turns"], len(tries)) == ("done", 30, 3)


def test_crews_steps_and_flows_inside_a_method_are_its_children(memory):
    agent = Agent(role="Poet", goal="rhyme", llm=ScriptedLLM(["one", "two", "three", "four"]))
    poets = Crew(tasks=[Task(name="poem", description="Write on {topic}", expected_output="x", agent=agent)])

    @step
    def count(text):
        RuntimeState.current()["counted"] = True
        return len(text)

    @flow
    def asides(topic):
        return count(topic)

    class Inner(Flow):
        @start()
        def only(self):
            self.state["topic"] = "inner"
            return self.state["id"]

    class Outer(Flow):
        checkpoint = memory()

        @start()
        def sync_one(self):
            self.state["topic"] = "outer"
            inner = Inner()
            own = inner.kickoff() != self.state["id"] and inner.state["topic"] == "inner"
            return poets.kickoff({"topic": "a"}), own, self.state["topic"], asides("abc")

        @listen(sync_one)
        async def async_one(self, given):
            inner = await Inner().akickoff()
            return (await poets.akickoff({"topic": "b"})).raw, given[0].raw, given[1:], inner != self.state["id"]

    outer = Outer()
    assert outer.kickoff(run_id=RUN) == ("two", "one", (True, "outer", 3), True)
    assert {name: value for name, value in outer.state.items() if name != "id"} == {"topic": "outer", "counted": True}
    with History("memory", memory().provider) as history:
        addresses = [one.address for one in history.run(RUN).steps]
    assert "method:sync_one/crew:crew/task:poem" in addresses
    assert "method:async_one@sync_one/flow:Inner/method:only" in addresses


def test_a_method_that_asks_waits_for_the_answer_while_the_others_go_on(memory):
    heard, done = [], []
    event_bus.on(BaseEvent, lambda source, event: heard.append(event.type))

    class Publish(Flow):
        checkpoint = memory()

        @start()
        def decide(self):
            return self.ask("Publish?", bool, name="publish")

        @start()
        def other(self):
            done.append("other")

        @listen(other)
        def more(self):
            done.append("more")

        @listen(decide)
        def end(self, answer):
            return answer

    with pytest.raises(Suspended) as waits:
        Publish().kickoff(run_id=RUN)
    assert done == ["other", "more"]
    assert {"method_execution_paused", "flow_paused"} <= set(heard)
    assert Publish().kickoff(run_id=RUN, answers=dict.fromkeys(waits.value.waiting, True)) is True
    assert done == ["other", "more"]


def test_each_event_of_a_flow_and_its_methods_is_heard():
    heard = []
    event_bus.on(BaseEvent, lambda source, event: heard.append(event))

    class Fails(Flow):
        @start()
        def begin(self):
            return "begun"

        @listen(begin)
        def end(self, given):
            raise ValueError("no end")

    with pytest.raises(ValueError, match="no end"):
        Fails().kickoff()
    Write().kickoff({"topic": "x"})
    told = [(event.type, getattr(event, "method_name", None), getattr(event, "trigger", None)) for event in heard]
    assert told[:7] == [
        ("flow_created", None, None),
        ("flow_started", None, None),
        ("method_execution_started", "begin", None),
        ("method_execution_finished", "begin", None),
        ("method_execution_started", "end", "begin"),
        ("method_execution_failed", "end", "begin"),
        ("flow_failed", None, None),
    ]
    finished = heard[-1]
    assert (finished.type, finished.state["topic"], finished.result) == ("flow_finished", "x", Article(title="x"))
    started = next(event for event in heard if event.type == "method_execution_started" and event.method_name == "end")
    assert started.params == {"given": "begun"}


def test_a_flow_is_previewed_forked_and_built_from_its_checkpoint(memory):
    class Plan(Flow[Draft]):
        checkpoint = memory()

        @start()
        def begin(self):
            return self.state.topic

        @listen(begin)
        def middle(self, given):
            self.state.lines.append(given)

        @listen(middle)
        def end(self):
            return list(self.state.lines)

    plan = Plan()
    assert plan.kickoff({"topic": "a"}, run_id=RUN) == ["a"]
    assert Plan.from_checkpoint(memory(restore_from=RUN)).kickoff() == ["a"]
    edited = plan.fork(RUN, edits={"method:begin": "b"}, branch="edited")
    assert _foreseen_and_run(edited) == ["b"]
    assert _foreseen_and_run(plan.fork(RUN, inputs={"topic": "c"}, branch="other")) == ["c"]
    assert _foreseen_and_run(plan.fork(RUN, rerun=["method:middle@begin"], branch="anew")) == ["a"]
    with plan.stream({"topic": "d"}) as stream:
        types = [event.type for event in stream]
    assert types.count("method_execution_finished") == 3
    assert stream.result == ["d"]


def _foreseen_and_run(flow):
    """The result of a fork, of which the preview has said which methods run."""
    foreseen = [one.address for one in flow.preview() if one.verdict == "runs" and one.kind == "method"]
    begun = []
    with event_bus.scoped():
        event_bus.on(MethodExecutionStartedEvent, lambda source, event: begun.append(event.address))
        result = flow.kickoff()
    assert foreseen == begun
    assert begun
    return result


def test_a_join_waits_in_each_round_for_all_branches_that_a_label_starts_again():
    class Rounds(Flow[Any]):
        @start()
        def begin(self):
            self.state["drafts"] = 0

        @listen(or_(begin, "again"))
        async def draft(self):
            await asyncio.sleep(0.01)
            self.state["drafts"] += 1

        @listen(or_(begin, "again"))
        def look_up(self): ...

        @router(and_(draft, look_up))
        def judge(self):
            return "again" if self.state["drafts"] < 3 else "done"

        @listen("done")
        def end(self):
            return f"{self.state['drafts']} drafts"

    assert Rounds(checkpoint=True).kickoff(run_id=RUN) == "3 drafts"
    with History() as history:
        methods = [step.address for step in history.run(RUN).steps if step.kind == "method"]
    assert [len([one for one in methods if name in one.split("@")[0]]) for name in ("draft", "look_up", "judge")] == [
        3
    ] * 3
