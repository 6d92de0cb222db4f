"""State belongs to steps: each has its own view, whose changes are recorded with its outcome or dropped with its attempt."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading

import pytest

from crewlite import Agent, Crew, Task, ToolCall, bound, durable, tool
from crewlite.errors import ConfigError, StoreError
from crewlite.flow import flow, step
from crewlite.state import RuntimeState
from crewlite.state.format.record import Record
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, cut, cut_anywhere, entries_of, values_of


def state():
    return RuntimeState.current()


def _answered(entries):
    return sum(address.rpartition("/")[2].startswith("llm") for address in Record.of(entries).outcomes)


def test_what_a_step_changes_is_seen_by_the_code_after_it_and_recorded_with_its_outcome(stored):
    @step
    def fill(n):
        state()["basket"] = ["apple"] * n

    @step
    async def count():
        state()["count"] = len(state()["basket"])

    @flow(checkpoint=stored())
    async def shop():
        await fill.submit(2)
        await count()
        return dict(state())

    assert shop.kickoff(run_id=RUN) == {"basket": ["apple"] * 2, "count": 2}
    said = [step["state"] for e in entries_of(stored()) for step in e.commit.get("steps", ()) if "state" in step]
    assert said == [[["set", ["basket"], ["apple", "apple"]]], [["set", ["count"], 2]]]
    assert not any("values" in e.commit for e in entries_of(stored())), "nothing is written twice"
    assert values_of(stored()) == {"basket": ["apple"] * 2, "count": 2}


def test_a_step_that_is_cut_leaves_nothing_of_its_changes_and_a_finished_one_is_applied_without_running(stored, ran):
    stop = [True]

    @step
    def first():
        ran.append("first")
        state()["log"] = [*state().get("log", []), "first"]

    @step
    def second():
        ran.append("second")
        state()["log"].append("half")
        if stop.pop() if stop else False:
            raise StoreError("here", "cut")  # which is no failure of the step
        state()["log"].append("whole")

    @flow(checkpoint=stored())
    def work():
        state()["log"] = ["flow"]
        first()
        seen = copy.deepcopy(dict(state()))
        second()
        return seen, dict(state())

    with pytest.raises(StoreError):
        work.kickoff(run_id=RUN)
    assert values_of(stored()) == {"log": ["flow", "first"]}
    seen, after = work.kickoff(run_id=RUN)
    assert ran == ["first", "second", "second"]
    assert seen == {"log": ["flow", "first"]}
    assert after == values_of(stored()) == {"log": ["flow", "first", "half", "whole"]}


def test_an_attempt_that_fails_takes_its_changes_with_it_and_those_of_the_steps_inside_it(stored):
    @step
    def inner():
        state()["inner"] = state().get("inner", 0) + 1

    @step(retries=1)
    def outer():
        before = dict(state())
        state()["tries"] = state().get("tries", 0) + 1
        inner()
        inner()
        if not durable.scope().past:
            raise ValueError
        return before

    @flow(checkpoint=stored())
    def work():
        state()["kept"] = True
        return outer(), dict(state())

    before, after = work.kickoff(run_id=RUN)
    assert before == {"kept": True}
    assert after == values_of(stored()) == {"kept": True, "tries": 1, "inner": 2}


def test_what_a_handled_failure_changed_is_gone_in_every_life(stored):
    @step
    def risky():
        state()["risky"] = 1
        raise ValueError

    @step
    def safe():
        state()["safe"] = state().get("risky", 0)

    @flow(checkpoint=stored())
    def work():
        try:
            risky()
        except ValueError:
            safe()
        return dict(state())

    assert work.kickoff(run_id=RUN) == {"safe": 0}
    for at in range(2, len(entries_of(stored()))):
        again = flow(checkpoint=cut(entries_of(stored()), at))(work.func)
        assert again.kickoff(run_id=RUN) == {"safe": 0}


def test_an_inner_step_sees_what_the_outer_changed_before_and_is_applied_again_if_that_is_cut(stored, ran):
    stop = [True]

    @step
    def inner():
        ran.append("inner")
        state()["log"].append("inner")
        return list(state()["log"])

    @step
    def outer():
        state()["log"] = ["outer"]
        seen = inner()
        if stop:
            stop.clear()
            raise StoreError("here", "cut")  # which is no failure of the step
        return seen, list(state()["log"])

    @flow(checkpoint=stored())
    def work():
        return outer()

    with pytest.raises(StoreError):
        work.kickoff(run_id=RUN)
    assert work.kickoff(run_id=RUN) == (["outer", "inner"], ["outer", "inner"])
    assert ran == ["inner"]
    assert values_of(stored()) == {"log": ["outer", "inner"]}


def test_coroutines_and_threads_of_one_step_share_its_view(stored):
    @step
    async def gathered():
        async def one(n):
            await asyncio.sleep(0)
            state()[f"c{n}"] = n

        await asyncio.gather(*map(one, range(3)))

        def in_thread():
            state()["thread"] = True

        thread = threading.Thread(target=bound(in_thread))
        thread.start()
        thread.join()

    @flow(checkpoint=stored())
    async def work():
        await gathered()
        return dict(state())

    assert work.kickoff(run_id=RUN) == {"c0": 0, "c1": 1, "c2": 2, "thread": True}


def test_outside_a_run_there_is_no_current_state():
    with pytest.raises(ConfigError, match="outside the steps of a run"):
        RuntimeState.current()


def test_tools_and_tasks_of_a_crew_have_the_state_and_a_resumed_one_has_it_again(stored):
    @tool
    def note(what: str) -> str:
        """Note something."""
        state().setdefault("notes", []).append(what)
        return "noted"

    def crew(setting, replies):
        agent = Agent(role="Clerk", goal="note", llm=ScriptedLLM(replies), tools=[note])
        tasks = [Task(name=n, description=f"Do {n}", expected_output="x", agent=agent) for n in ("one", "two")]
        return Crew(tasks=tasks, checkpoint=setting)

    replies = [ToolCall("note", {"what": "a"}), "done", ToolCall("note", {"what": "b"}), "done"]
    crew(stored(), replies).kickoff(run_id=RUN)
    assert values_of(stored()) == {"notes": ["a", "b"]}
    entries = entries_of(stored())
    for at in range(1, len(entries)):
        setting, left = cut(entries, at), replies[_answered(entries[:at]) :]
        crew(setting, left).kickoff(run_id=RUN)
        assert values_of(setting) == {"notes": ["a", "b"]}


def test_a_tool_call_that_fails_changes_nothing(stored):
    @tool
    def note(what: str) -> str:
        """Note something."""
        state()[what] = True
        if what == "bad":
            raise OSError("disk full")
        return "noted"

    replies = [ToolCall("note", {"what": "bad"}), ToolCall("note", {"what": "good"}), "done"]
    agent = Agent(role="Clerk", goal="note", llm=ScriptedLLM(replies), tools=[note])
    task = Task(name="one", description="Do it", expected_output="x", agent=agent)
    Crew(tasks=[task], checkpoint=stored()).kickoff(run_id=RUN)
    assert values_of(stored()) == {"good": True}


def test_the_state_of_a_step_offers_nothing_that_another_life_could_not_do_again(stored):
    @flow(checkpoint=stored())
    def work():
        for verb in ("snapshot", "restore", "checkpoint", "checkpoints", "add_usage"):
            with pytest.raises(ConfigError, match=f"the state of a running step has no {verb}"):
                getattr(state(), verb)
        state()["n"] = [1]
        with contextlib.suppress(ZeroDivisionError), state().rollback_on_error():
            state()["n"].append(2)
            state()["m"] = 1
            raise ZeroDivisionError
        return dict(state())

    assert work.kickoff(run_id=RUN) == {"n": [1]}


def test_a_crew_in_a_flow_and_a_flow_in_a_step_hand_their_changes_outward(stored):
    @tool
    def note(what: str) -> str:
        """Note something."""
        state().setdefault("notes", []).append(what)
        return "noted"

    @step
    def inner(n):
        state().setdefault("notes", []).append(n)

    @flow
    def nested(n):
        state()["nested"] = n
        inner(n)

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        def work():
            llm = ScriptedLLM(
                lambda messages: "done" if messages[-1]["role"] == "tool" else ToolCall("note", {"what": "x"})
            )
            agent = Agent(role="Clerk", goal="note", llm=llm, tools=[note])
            Crew(tasks=[Task(name="t", description="Do", expected_output="x", agent=agent)]).kickoff()
            nested.kickoff(n=1)
            nested(2)
            return dict(state())

        return work

    expected = {"notes": ["x", 1, 2], "nested": 2}
    assert whole(stored()).kickoff(run_id=RUN) == expected
    assert values_of(stored()) == expected
    cut_anywhere(whole, stored(), expected)
