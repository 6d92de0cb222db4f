"""A crew whose process died in the call of a tool: the call is asked about, let run, or repeated, as it was declared."""

from __future__ import annotations

import sys

import pytest

from crewlite import Agent, Crew, History, Task, event_bus, tool
from crewlite.errors import InDoubt, RefError
from crewlite.events import BaseEvent
from crewlite.testing import ScriptedLLM
from tests import children

CUT = """
import os, sys
from crewlite import Agent, Crew, Task, CheckpointConfig, ToolCall, tool
from crewlite.testing import ScriptedLLM
@tool(effect=sys.argv[2])
def pay(amount: int) -> str:
    "Pay."
    os._exit(9)
who = Agent(role="Worker", goal="g", llm=ScriptedLLM([ToolCall("pay", {"amount": 3})]), tools=[pay])
task = Task(name="t", description="d", expected_output="x", agent=who)
Crew(tasks=[task], checkpoint=CheckpointConfig(location=sys.argv[1])).kickoff(run_id="r")
"""


def cut_in_a_call(config, effect):
    """A crew whose payment was cut in the middle, and the list of payments made since."""
    children.run([sys.executable, "-c", CUT, config.location, effect], check=False)
    paid = []

    @tool(effect=effect)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    who = Agent(role="Worker", goal="g", llm=ScriptedLLM(["answer"]), tools=[pay])
    task = Task(name="t", description="d", expected_output="x", agent=who)
    return Crew(tasks=[task], checkpoint=config), paid


def test_a_call_in_doubt_that_may_happen_once_stops_and_asks(on_disk):
    crew, paid = cut_in_a_call(on_disk(), "once")
    steps = {step.address: step.status for step in History(on_disk().location).run("r").steps}
    assert steps["task:t/tool:pay"] == "in_doubt"
    assert not any(step.repeatable for step in History(on_disk().location).run("r").steps)
    with pytest.raises(
        InDoubt, match=r"tool pay at task:t/tool:pay with .* was interrupted.*answers=.*rerun="
    ) as caught:
        crew.kickoff(run_id="r")
    assert paid == []
    result = crew.kickoff(run_id="r", answers={caught.value.address: "paid already"})
    assert (result.raw, paid) == ("answer", [])


def test_a_call_in_doubt_can_be_let_run(on_disk):
    crew, paid = cut_in_a_call(on_disk(), "once")
    assert crew.kickoff(run_id="r", rerun=(address for address in ["task:t/tool:pay"])).raw == "answer"
    assert paid == [3]


def test_only_calls_in_doubt_can_be_answered_or_run_again(on_disk):
    crew, _ = cut_in_a_call(on_disk(), "once")
    for settled in ({"answers": {"task:t/llm#9": "x"}}, {"rerun": ["task:t"]}, {"rerun": "task:t"}):
        with pytest.raises(RefError, match="no call in doubt.*Candidates: task:t/tool:pay"):
            crew.kickoff(run_id="r", **settled)


@pytest.mark.parametrize("effect", ["none", "idempotent"])
def test_a_call_in_doubt_that_may_repeat_runs_again_and_says_so(on_disk, effect):
    crew, paid = cut_in_a_call(on_disk(), effect)
    [call] = [step for step in History(on_disk().location).run("r").steps if step.status == "in_doubt"]
    assert (call.address, call.repeatable) == ("task:t/tool:pay", True)
    shown = children.run(
        [sys.executable, "-m", "crewlite", "checkpoint", "show", "r", "--location", on_disk().location],
        capture_output=True,
        text=True,
    ).stdout
    assert "made again when the run goes on" in shown
    assert "--answer" not in shown and "--rerun" not in shown, "nobody need say anything"
    flags = []
    event_bus.on(BaseEvent, lambda s, e: flags.append(e.in_doubt) if e.type == "tool_usage_started" else None)
    assert crew.kickoff(run_id="r").raw == "answer"
    assert (paid, flags) == ([3], [True])
