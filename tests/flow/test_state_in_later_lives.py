"""The state of steps in other lives of a run: resumed, forked, pruned, cached, tried again."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from crewlite import Agent, Crew, History, Task, durable, event_bus
from crewlite.errors import ConfigError, StoreError, Suspended
from crewlite.events import (
    LLMCallCompletedEvent,
    TaskCompletedEvent,
)
from crewlite.flow import ask, flow, step
from crewlite.llm import ToolCall
from crewlite.state import RuntimeState
from crewlite.state.format.entry import seal
from crewlite.testing import ScriptedLLM
from crewlite.tools import tool
from tests.cuts import RUN, cut, cut_anywhere, entries_of, values_of


def state():
    return RuntimeState.current()


def test_a_fork_has_the_state_of_its_base_and_not_what_came_after(stored):
    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(lambda messages: "x"))
    tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=agent) for n in range(3)]
    crew = Crew(tasks=tasks, checkpoint=stored())

    @event_bus.on(LLMCallCompletedEvent)
    def count(source, event, state):
        state["calls"] = [*state.get("calls", []), event.address]

    crew.kickoff(run_id=RUN)
    with History(stored().location, stored().provider) as history:
        second = history.run(RUN).checkpoints()[1]
        assert second.values == {"calls": ["task:t0/llm#1", "task:t1/llm#1"]}
        history.fork(second, branch="b")
    crew.kickoff(from_checkpoint=stored(restore_from=f"{RUN}/b"))
    with History(stored().location, stored().provider) as history:
        assert history.run(f"{RUN}/b").values == history.run(RUN).values
        history.prune(keep_last=1)
        assert history.run(RUN).values["calls"] == [f"task:t{n}/llm#1" for n in range(3)]


def test_a_pruned_run_goes_on_with_the_state_of_each_step(stored):
    stop = [True]

    @step
    def act(n):
        state()["log"] = [*state().get("log", []), n]

    @flow(checkpoint=stored(on_events=["step_completed"]))
    def work():
        seen = []
        for n in range(6):
            act(n)
            seen.append(list(state()["log"]))
        if stop:
            stop.clear()
            raise StoreError("here", "cut")  # which is no failure of the step
        return seen

    with pytest.raises(StoreError):
        work.kickoff(run_id=RUN)
    with History(stored().location, stored().provider) as history:
        history.prune(keep_last=1)
    assert work.kickoff(run_id=RUN) == [list(range(n + 1)) for n in range(6)]


def test_values_that_an_earlier_release_recorded_are_there_when_its_run_goes_on(stored):
    """They rode with whatever commit came next, and belonged to no step."""

    @event_bus.on(TaskCompletedEvent)
    def count(source, event, state):
        state["done"] = state.get("done", 0) + 1

    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(["a", "b", RuntimeError("cut"), "c"]))
    tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=agent) for n in range(3)]
    with pytest.raises(RuntimeError):
        Crew(tasks=tasks, checkpoint=stored()).kickoff(run_id=RUN)
    old, after, versions = [], "", 0
    for entry in entries_of(stored()):
        facts = {**entry.commit}
        if late := facts.pop("late", None):
            [[_, [name], value]] = late[0]["ops"]
            versions += 1
            facts["values"] = {"set": {name: value}, "versions": {name: versions}}
        old.append(seal(facts, after=after))
        after = old[-1].sum
    assert versions == 2
    setting = cut(old, len(old))
    Crew(tasks=tasks, checkpoint=setting).kickoff(run_id=RUN)
    assert values_of(setting) == {"done": 3}


def test_what_a_step_appended_and_another_appended_after_it_failed_are_both_there_after_a_resume(stored):
    @step
    def add(n):
        state().setdefault("log", []).append(n)

    @step
    def fails():
        raise ValueError

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        def work():
            add("first")
            with contextlib.suppress(ValueError):
                try:
                    fails()
                finally:
                    add("cleanup")
            return list(state()["log"])

        return work

    assert whole(stored()).kickoff(run_id=RUN) == ["first", "cleanup"]
    cut_anywhere(whole, stored(), ["first", "cleanup"])


def test_a_step_that_is_done_again_in_a_fork_takes_nothing_away_from_those_that_are_not(stored):
    done = []

    @step
    def add(n):
        done.append(n)
        state().setdefault("log", []).append(n)
        state()["last"] = n

    @flow(checkpoint=stored())
    def work():
        for n in (1, 2, 3):
            add(n)
        return list(state()["log"]), state()["last"]

    assert work.kickoff(run_id=RUN) == ([1, 2, 3], 3)
    fork = work.fork(RUN, rerun=["step:add"], branch="b")
    assert fork.kickoff() == ([1, 2, 3], 3)
    assert done == [1, 2, 3, 1]
    with History(stored().location, stored().provider) as history:
        assert history.run(f"{RUN}/b").values == {"log": [1, 2, 3], "last": 3}
    edited = work.fork(RUN, edits={"step:add#2": None}, branch="c")
    assert edited.kickoff() == ([1, 2, 3], 3), "an edited output keeps what its step has changed"


def test_names_come_in_the_same_order_in_every_life(stored):
    @step
    async def put(name, wait):
        await asyncio.sleep(wait)
        state()[name] = name

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        async def work():
            state()["c"] = 1
            await asyncio.gather(put("b", 0.04), put("a", 0.01))
            del state()["c"]
            state()["c"] = 2
            return list(state())

        return work

    assert whole(stored()).kickoff(run_id=RUN) == ["a", "b", "c"]
    cut_anywhere(whole, stored(), ["a", "b", "c"])


def test_a_cached_answer_changes_the_state_as_the_step_did(stored):
    ran = []

    @step(cache=True, version=1)
    def fill(n):
        ran.append(n)
        state().setdefault("log", []).append(n)
        return n

    @flow(checkpoint=stored())
    def work():
        fill(7)
        return list(state()["log"])

    assert work.kickoff(run_id="one") == [7]
    assert work.kickoff(run_id="two") == [7]
    assert ran == [7]
    with History(stored().location, stored().provider) as history:
        assert history.run("two").values == {"log": [7]}


def test_many_appends_cost_bytes_for_what_is_appended(memory):
    @step
    def add(n):
        state().setdefault("log", []).append(f"entry {n}")

    def size(count, setting):
        @flow(checkpoint=setting)
        def work():
            for n in range(count):
                add(n)
            return len(state()["log"])

        assert work.kickoff(run_id=f"{RUN}{count}") == count
        store = setting.provider.open(setting.location)
        return sum(len(entry.line) for entry in store.read(f"{RUN}{count}", "main"))

    first, second, third = (size(count, memory()) for count in (100, 200, 400))
    assert abs((third - second) - 2 * (second - first)) < (second - first) / 10


def test_a_flow_that_is_tried_again_writes_again_and_its_recorded_steps_change_the_state_once(stored):
    @step
    def put(n):
        state().setdefault("log", []).append(n)

    def whole(setting):
        @flow(name="whole", checkpoint=setting, retries=1)
        def work():
            state().setdefault("body", []).append(1)
            put("first")
            if not durable.scope().past:
                raise ValueError
            put("second")
            return dict(state())

        return work

    expected = {"body": [1], "log": ["first", "second"]}
    assert whole(stored()).kickoff(run_id=RUN) == expected
    cut_anywhere(whole, stored(), expected)


def test_a_flow_that_waits_for_an_answer_has_its_state_when_it_goes_on(stored):
    @step
    def put(n):
        state()[f"{n}"] = len(state())

    @flow(checkpoint=stored())
    def work():
        state()["own"] = 1
        put("before")
        state()["own"] = 2
        state()["who"] = ask("Who?", name="who")
        put("after")
        return dict(state())

    with pytest.raises(Suspended):
        work.kickoff(run_id=RUN)
    assert values_of(stored()) == {"own": 2, "before": 1}
    expected = {"own": 2, "before": 1, "who": "Ann", "after": 3}
    assert work.kickoff(run_id=RUN, answers={"human:who": "Ann"}) == expected == values_of(stored())


def test_a_preview_has_the_state_that_the_run_would_have(stored):
    @step
    def put(n):
        state()["n"] = n
        return n

    @step
    def look(n):
        return n

    @flow(checkpoint=stored())
    def work():
        put(1)
        look(state()["n"])

    work.kickoff(run_id=RUN)
    found = {step.address: step.verdict for step in work.fork(RUN, rerun=["step:look"]).preview()}
    assert found == {"step:put": "reused", "step:look": "runs"}


def test_a_fork_edits_values_of_the_state_and_no_collection(memory):
    @step
    def add(n):
        state()["last"] = n
        state().collection("notes").add(n)

    @step
    def outer():
        add(2)

    @flow(checkpoint=memory())
    def work():
        add(1)
        outer()
        return state()["last"], list(state().collection("notes").values())

    assert work.kickoff(run_id=RUN) == (2, [1, 2])
    assert work.fork(RUN, edits={"step:outer/step:add.state.last": 7}).kickoff() == (7, [1, 2])
    for address in ("step:add", "step:outer/step:add"):
        with pytest.raises(ConfigError, match=f"{address}.state.notes is a collection, whose items cannot be edited"):
            work.fork(RUN, edits={f"{address}.state.notes": [3]})


def test_a_fork_edits_the_state_that_a_task_has_left(memory):
    @tool
    def keep(word: str) -> str:
        """Keep a word."""
        state()["word"] = word
        return "kept"

    @tool
    def read() -> str:
        """Read it."""
        return state()["word"]

    def answer(messages):
        last = messages[-1]["content"]
        if messages[-1]["role"] == "tool":
            return last
        return ToolCall("keep", {"word": "tide"}) if last.startswith("first") else ToolCall("read", {})

    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(answer), tools=[keep, read])
    tasks = [Task(name=name, description=name, expected_output="x", agent=agent) for name in ("first", "second")]
    crew = Crew(tasks=tasks, agents=[agent], checkpoint=memory())
    assert crew.kickoff(run_id=RUN).raw == "tide"
    fork = crew.fork(RUN, edits={"task:first.state.word": "moon"}, rerun=["task:second"])
    assert fork.kickoff().raw == "moon"
