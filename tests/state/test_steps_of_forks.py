"""The steps that a run lists: those which its result rests on, and of a fork no others."""

from __future__ import annotations

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, tool
from crewlite.errors import InDoubt
from crewlite.flow import Flow, flow, listen, router, start, step
from crewlite.state import InMemoryProvider
from crewlite.state.format.addresses import outer
from crewlite.testing import ScriptedLLM


@pytest.fixture
def store():
    return CheckpointConfig(location="kept", provider=InMemoryProvider())


def steps_of(store, ref):
    with History(store.location, store.provider) as history:
        listed = {one.address for one in history.run(ref).steps}
        compared = {one.address for one in history.diff(ref, ref).steps}
        page = history.as_html(ref)
    assert listed == compared
    assert all(f'data-address="{address}"' in page for address in listed)
    return listed


@tool
def look(place: str) -> str:
    """Look."""
    return f"found in {place}"


def test_calls_that_the_model_does_not_request_any_more_are_left_out(store):
    def crew_of(*replies):
        agent = Agent(role="Clerk", goal="find", llm=ScriptedLLM(list(replies)), tools=[look])
        tasks = [
            Task(name=name, description=f"{name} {{it}}", expected_output="x", agent=agent) for name in ("find", "tell")
        ]
        return Crew(tasks=tasks, checkpoint=store)

    crew_of(ToolCall("look", {"place": "a"}), "found", "told").kickoff({"it": "keys"}, run_id="r")
    crew_of("no need to look", "told").fork("r", branch="f", inputs={"it": "hat"}).kickoff()
    top = {"", "task:find", "task:find/llm#1", "task:tell", "task:tell/llm#1"}
    assert steps_of(store, "r/f") == top
    assert steps_of(store, "r") == top | {"task:find/tool:look", "task:find/llm#2"}


def test_steps_that_the_code_of_a_flow_does_not_request_any_more_are_left_out(store):
    @step
    def one(x):
        if x < 0:
            raise ValueError
        return x

    @step
    def other(x):
        return x

    @step
    def either(x):
        try:
            return one(x) + one(-x) if x < 5 else other(x)
        except ValueError:
            return 0

    @flow(checkpoint=store)
    def sums(x):
        return either(x) if x < 10 else other(x)

    sums.kickoff(1, run_id="s")
    within = {"", "step:either"}
    assert steps_of(store, "s") == within | {"step:either/step:one", "step:either/step:one#2"}
    sums.fork("s", branch="inner", inputs={"x": 5}).kickoff()
    assert steps_of(store, "s/inner") == within | {"step:either/step:other"}
    sums.fork("s", branch="outer", inputs={"x": 10}).kickoff()
    assert steps_of(store, "s/outer") == {"", "step:other"}
    sums.fork("s/inner", branch="again", inputs={"x": 10}).kickoff()
    assert steps_of(store, "s/again") == {"", "step:other"}
    sums.fork("s/inner", branch="back", inputs={"x": 1}).kickoff()
    assert steps_of(store, "s/back") == steps_of(store, "s"), "what is asked again is listed again"


def test_methods_that_the_route_does_not_reach_any_more_are_left_out(store):
    class Routed(Flow):
        @start()
        def begin(self):
            return self.state["way"]

        @router(begin)
        def choose(self, way):
            return way

        @listen("left")
        def go_left(self):
            return "l"

        @listen("right")
        def go_right(self):
            return "r"

    made = Routed(checkpoint=store)
    made.kickoff(inputs={"way": "left"}, run_id="c")
    assert "method:go_left@left" in steps_of(store, "c")
    forked = made.fork("c", branch="f", inputs={"way": "right"})
    assert forked.kickoff() == "r"
    listed = steps_of(store, "c/f")
    assert "method:go_right@right" in listed
    assert "method:go_left@left" not in listed


def test_a_model_call_that_has_failed_is_listed(store):
    agent = Agent(role="Clerk", goal="find", llm=ScriptedLLM([ToolCall("look", {"place": "a"}), ValueError("no")]))
    task = Task(name="find", description="find", expected_output="x", agent=agent.with_(tools=[look]))
    with pytest.raises(ValueError, match="no"):
        Crew(tasks=[task], checkpoint=store).kickoff(run_id="r")
    assert {"task:find/llm#1", "task:find/tool:look", "task:find/llm#2"} <= steps_of(store, "r")
    with History(store.location, store.provider) as history:
        assert "task:find/llm#2" in {one.address for one in history.run("r").steps if one.status == "failed"}
        history.fork("r", branch="f")
    assert "task:find/llm#2" not in steps_of(store, "r/f"), "it has not failed there"


def test_a_model_call_that_has_failed_and_is_not_made_any_more_is_left_out_after_a_prune_too(store):
    def crew_of(text, *replies):
        agent = Agent(role="Clerk", goal="find", llm=ScriptedLLM(list(replies)), tools=[look])
        task = Task(name="find", description=text, expected_output="x", agent=agent)
        return Crew(tasks=[task], checkpoint=store.model_copy(update={"on_drift": "rerun"}))

    looks = [ToolCall("look", {"place": place * 100}) for place in "abc"]
    with pytest.raises(ValueError, match="no"):
        crew_of("find", *looks[:2], ValueError("no")).kickoff(run_id="r")
    assert "task:find/llm#3" in steps_of(store, "r")
    crew_of("find it", looks[2], "found").kickoff(run_id="r")
    assert "task:find/llm#3" not in steps_of(store, "r")
    with History(store.location, store.provider) as history:
        assert history.prune(keep_last=1).freed
        assert "task:find/llm#3" in {one.address for one in history.run("r").attempts}
    assert steps_of(store, "r") == {"", "task:find"}


def test_steps_of_an_answer_that_a_changed_definition_replaced_are_left_out(store):
    def crew_of(goal, *replies, **settings):
        agent = Agent(role="Clerk", goal=goal, llm=ScriptedLLM(list(replies)), tools=[look])
        task = Task(name="find", description="find", expected_output="x", agent=agent)
        return Crew(tasks=[task], checkpoint=store.model_copy(update=settings))

    crew_of("old", ToolCall("look", {"place": "a"}), "found").kickoff(run_id="r")
    crew_of("new", "no need to look", on_drift="rerun").kickoff(run_id="r")
    assert steps_of(store, "r") == {"", "task:find", "task:find/llm#1"}
    crew_of("newer", ToolCall("look", {"place": "b"}), "found", on_drift="rerun").kickoff(run_id="r")
    assert steps_of(store, "r") == {"", "task:find", "task:find/llm#1", "task:find/tool:look", "task:find/llm#2"}


def test_steps_of_code_that_asks_something_else_in_the_same_run_are_left_out(store):
    ways = [""]

    @step
    def one(x):
        return x

    @step
    def other(x):
        if x == "broken":
            raise ValueError(x)
        return x

    @step
    def either(way):
        return one(way) if way == "one" else other(way)

    @flow(checkpoint=store.model_copy(update={"on_drift": "rerun"}))
    def sums():
        either(*ways)
        raise KeyError("stop")

    def listed_after(way, error=KeyError):
        ways[:] = [way]
        with pytest.raises(error):
            sums.kickoff(run_id="s")
        return steps_of(store, "s")

    within = {"", "step:either"}
    assert listed_after("one") == within | {"step:either/step:one"}
    assert listed_after("broken", ValueError) == within | {"step:either/step:one", "step:either/step:other"}
    assert listed_after("other") == within | {"step:either/step:other"}
    assert listed_after("one") == within | {"step:either/step:one"}


def test_what_failed_before_a_fork_is_no_failure_of_the_fork(store):
    def crew_of(*replies):
        agent = Agent(role="Clerk", goal="find", llm=ScriptedLLM(list(replies)))
        tasks = [Task(name=name, description=name, expected_output="x", agent=agent) for name in ("find", "tell")]
        return Crew(tasks=tasks, checkpoint=store)

    with pytest.raises(ValueError, match="no"):
        crew_of("found", ValueError("no")).kickoff(run_id="r")
    with History(store.location, store.provider) as history:
        new = history.fork("r", branch="f")
        assert (new.kicked_off, new.status_text, new.status, new.attempts) == (False, "not run yet", "unfinished", [])
        diff = history.diff("r", "r/f")
        assert "r/f     not run yet" in str(diff)
        assert {one.address for one in diff.steps_with("only_a")} == {"", "task:tell", "task:tell/llm#1"}

        crew_of("told").kickoff(from_checkpoint="r/f")
        run = history.run("r/f")
        assert (run.kicked_off, run.status_text) == (True, "finished")
        assert [step.address for step in run.steps if step.attempts] == run.attempts == []
        assert run.usage_of("task:tell") == run.own_usage

        history.fork("r/f", branch="g", rerun=["task:find"])
        crew_of("found more", "told more").kickoff(from_checkpoint="r/g")
        run, diff = history.run("r/g"), history.diff("r/f", "r/g")
        sums = {at: run.usage_of(at).total_tokens for at in ("task:find", "task:tell")}
        assert sum(sums.values()) == run.own_usage.total_tokens
        assert sums == {outer(one.address): one.usage.total_tokens for one in run.steps if one.kind == "llm"}
        assert {one.address: one.b.milliseconds for one in diff.steps} == {
            one.address: one.milliseconds for one in run.steps
        }


def test_a_call_that_must_not_be_made_twice_and_failed_before_a_fork_is_in_doubt_there(store):
    @step(effect="once")
    def charge():
        raise ConnectionError("cut")

    @flow(checkpoint=store)
    def bill():
        return charge()

    with pytest.raises(ConnectionError):
        bill.kickoff(run_id="r")
    with History(store.location, store.provider) as history:
        assert [(one.address, one.status) for one in history.fork("r", branch="f").steps] == [
            ("step:charge", "in_doubt")
        ]
    with pytest.raises(InDoubt, match="step:charge"):
        bill.kickoff(from_checkpoint="r/f")
