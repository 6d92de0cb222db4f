"""Limits on the calls of a tool, in number and in time, over the whole run: with and without a stop in the middle."""

from __future__ import annotations

import asyncio
import threading

import pytest

from crewlite import Agent, Crew, History, Task, ToolCall, tool
from crewlite.errors import InDoubt, MaxIterations
from crewlite.events import ToolSelectionErrorEvent
from crewlite.testing import EventRecorder, ScriptedLLM
from tests.crew.tooled import a_tool, crew_of, keep, told, told_in
from tests.parts import Stop


def test_a_limit_counts_over_all_tasks_and_agents_of_a_run_and_over_no_other_run(stored):
    llm = ScriptedLLM(lambda messages: "done" if told_in(messages) else ToolCall("look"))
    crew = crew_of(llm, a_tool(calls := [], max_usage_count=2), checkpoint=stored(), count=4, agents=2)
    for run in ("a", "b"):
        with EventRecorder() as events:
            crew.kickoff(run_id=run)
        refused = events.of(ToolSelectionErrorEvent)
        assert [event.address for event in refused] == ["task:t2/tool:look", "task:t3/tool:look"]
        assert "Tool look was used 2 times in this run, which is its limit (max_usage_count=2)" in refused[0].error
    assert len(calls) == 4


def test_calls_side_by_side_do_not_slip_through_a_limit_and_refused_ones_do_not_count(stored):
    many = [ToolCall("look", {"whre": "x"}), *(ToolCall("look", {"where": w}) for w in "abcd")]
    llm = ScriptedLLM([many, "done"])
    crew_of(llm, a_tool(calls := [], max_usage_count=3), checkpoint=stored()).kickoff(run_id="r")
    assert sorted(calls) == ["a", "b", "c"]
    heard = told(llm)
    assert heard[1:4] == ["saw a", "saw b", "saw c"]
    assert "do not fit" in heard[0] and "its limit" in heard[4]


@pytest.mark.parametrize("stop", range(4))
def test_a_limit_holds_over_any_stop_and_replayed_calls_count_once(stored, stop):
    turns = [ToolCall("look"), ToolCall("look"), ToolCall("look")]
    turns.insert(stop, Stop())
    llm = ScriptedLLM([*turns, "done"])
    crew = crew_of(llm, a_tool(calls := [], max_usage_count=2), checkpoint=stored())
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    assert crew.kickoff(run_id="r").raw == "done"
    assert len(calls) == 2
    assert [text[:8] for text in told(llm)] == ["saw here", "saw here", "Tool loo"]


def test_a_call_that_failed_counts(stored):
    calls = []

    @tool(max_usage_count=2)
    def look() -> str:
        """Look."""
        calls.append(1)
        raise OSError("dark")

    llm = ScriptedLLM([[ToolCall("look")] * 3, "done"])
    crew_of(llm, look, checkpoint=stored()).kickoff(run_id="r")
    assert len(calls) == 2
    assert told(llm)[1] == "Tool look failed: OSError: dark"
    assert "its limit" in told(llm)[2]


def test_a_limit_counts_over_the_attempts_at_a_task(stored):
    llm = ScriptedLLM([ToolCall("look")] * 6)
    who = Agent(role="W", goal="g", llm=llm, tools=[a_tool(calls := [], max_usage_count=2)], max_iter=1)
    crew = Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=who)], checkpoint=stored())
    with EventRecorder() as events:
        for _ in range(3):
            with pytest.raises(MaxIterations):
                crew.kickoff(run_id="r")
    assert len(calls) == 2
    assert [event.address for event in events.of(ToolSelectionErrorEvent)] == ["task:t!3/tool:look"]


def test_a_limit_and_kept_results_hold_in_crews_inside_of_tools_and_after_a_fork(on_disk):
    calls = []
    look = a_tool(calls, max_usage_count=2, cache_function=keep)
    turns = ScriptedLLM(lambda messages: "done" if told_in(messages) else ToolCall("look", {"where": "x"}))
    inner = crew_of(turns, look)

    @tool
    async def delegate() -> str:
        """Let others look."""
        return (await inner.akickoff()).raw

    script = [ToolCall("look", {"where": "x"}), ToolCall("delegate"), "done", ToolCall("look", {"where": "y"}), "done"]
    last = [ToolCall("look", {"where": "z"}), ToolCall("look", {"where": "x"}), "done"]
    llm = ScriptedLLM([*script, *last, *last])
    crew = crew_of(llm, look, delegate, checkpoint=on_disk(), count=3)
    crew.kickoff(run_id="r")
    assert calls == ["x", "y"]
    assert told(turns) == ["saw x"]
    crew.fork("r@task:t1", branch="again").kickoff()
    assert calls == ["x", "y"]
    assert "its limit" in told(llm)[0] and told(llm)[1] == "saw x"


def test_a_limit_is_known_where_a_prune_has_left_nothing_else_of_the_calls(on_disk):
    turns = [ToolCall("look"), ToolCall("look"), "done", Stop(), ToolCall("look"), "done"]
    llm = ScriptedLLM(turns)
    crew = crew_of(llm, a_tool(calls := [], max_usage_count=2), checkpoint=on_disk(), count=2)
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    with History(on_disk().location) as history:
        history.prune(keep_last=1)
        assert not [step for step in history.run("r").steps if step.kind == "tool"]
    crew.kickoff(run_id="r")
    assert len(calls) == 2
    assert "its limit" in told(llm)[-1]


# Limits of time


@pytest.mark.parametrize("blocks", [True, False])
def test_a_call_that_must_happen_once_and_takes_too_long_is_in_doubt(stored, blocks):
    late = threading.Event()

    def pay(amount: int) -> str:
        """Pay."""
        assert late.wait(60), "the run waited for a call that is over its limit"
        return "paid"

    async def wait(amount: int) -> str:
        """Pay."""
        await asyncio.sleep(3600)
        return "paid"

    payer = tool("pay", effect="once", timeout=0.05)(pay if blocks else wait)
    llm = ScriptedLLM([ToolCall("pay", {"amount": 3}), "paid it is"])
    crew = crew_of(llm, payer, checkpoint=stored())
    with pytest.raises(InDoubt, match="task:t0/tool:pay"):
        crew.kickoff(run_id="r")
    late.set()
    with pytest.raises(InDoubt):
        crew.kickoff(run_id="r")
    assert crew.kickoff(run_id="r", answers={"task:t0/tool:pay": "paid"}).raw == "paid it is"
    assert told(llm) == ["paid"]


@pytest.mark.parametrize(("effect", "says"), [("none", ""), ("idempotent", " It may still take effect.")])
def test_a_blocking_call_that_hangs_is_left_behind_and_the_model_hears_of_it(effect, says):
    late = threading.Event()

    @tool(timeout=0.05, effect=effect)
    def hang() -> str:
        """Hang."""
        assert late.wait(60), "the run waited for a call that is over its limit"
        return "late"

    llm = ScriptedLLM([ToolCall("hang"), "went on"])
    assert crew_of(llm, hang).kickoff().raw == "went on"
    late.set()
    assert told(llm) == [f"Tool hang failed: it did not end within 0.05 s.{says}"]
