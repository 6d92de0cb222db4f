"""Every event of crews, their tasks, agents and trials, and of flows of methods, is emitted by a real run."""

from __future__ import annotations

import contextlib
import json

from crewlite import Agent, CheckpointConfig, Crew, LLMReply, Task, ToolCall, tool
from crewlite.errors import BudgetExceeded, ConfigError, ContextOverflow, OutputInvalid, Suspended
from crewlite.events.registry import checkpoint_event_types
from crewlite.flow import Flow, human_feedback, listen, start
from crewlite.knowledge import StringKnowledgeSource
from crewlite.state import InMemoryProvider
from crewlite.testing import EventRecorder, ScriptedLLM

FAMILIES = (
    *("crew_kickoff_", "task_", "agent_execution_", "lite_agent_execution_", "agent_logs_", "agent_reasoning_"),
    *("step_observation_", "plan_re", "goal_achieved_", "llm_call_", "llm_guardrail_", "tool_", "budget_"),
    *("context_window_", "crew_train_", "crew_test_", "agent_evaluation_", "knowledge_"),
)


@tool
def look(where: str) -> str:
    """Look somewhere."""
    if where == "nowhere":
        raise LookupError(where)
    return f"seen {where}"


def crew_of(*script, task=None, **agent):
    who = Agent(role="Pilot", goal="look", llm=ScriptedLLM(script), tools=[look], **agent)
    about = {"name": "t", "description": "Look", "expected_output": "x", "agent": who}
    return Crew(tasks=[Task(**about, **task or {})])


def plan(*steps):
    return json.dumps({"steps": steps})


def seen(**said):
    return json.dumps(said)


def score(quality=7):
    return json.dumps({"quality": quality, "reason": "Good."})


LEARNED = json.dumps({"suggestions": ["Be brief"], "quality": 6, "final_summary": "Good."})
CALLS = [ToolCall("look", {"where": "here"}), ToolCall("look", {"where": "nowhere"})]
WRONG = [ToolCall("lok"), ToolCall("look", {"were": "here"})]
TOO_LONG = [ContextOverflow("m", 400, "too long")]
STEPWISE = {"planning_config": {"reasoning_effort": "high"}}
RUNS = [
    lambda: crew_of(LLMReply(tool_calls=(*CALLS, *WRONG)), "done", verbose=True).kickoff(),
    lambda: crew_of(OSError("cut")).kickoff(),
    lambda: crew_of("done").tasks[0].agent.kickoff("go"),
    lambda: crew_of(OSError("cut")).tasks[0].agent.kickoff("go"),
    lambda: crew_of(
        "one", '{"valid": false, "feedback": "no"}', "two", '{"valid": true}', task={"guardrail": "x"}
    ).kickoff(),
    lambda: crew_of("one", task={"guardrail": lambda output: 3}).kickoff(),
    lambda: crew_of(
        plan("a", "b", "c"), "1", seen(refined_steps=["b"]), "2", seen(goal_already_achieved=True), "x", **STEPWISE
    ).kickoff(),
    lambda: crew_of(
        plan("a", "b"), "1", seen(needs_full_replan=True), plan("c"), "2", seen(), "x", planning=True
    ).kickoff(),
    lambda: crew_of(OSError("cut"), reasoning=True).kickoff(),
    lambda: crew_of(plan("a"), "1", OSError("cut"), planning=True).kickoff(),
    lambda: crew_of(*TOO_LONG, "short", "done").kickoff(),
    lambda: crew_of(*TOO_LONG * 5).kickoff(),
    lambda: crew_of(*CALLS, "done", task={"max_iter": 1}).kickoff(),
    lambda: crew_of("done", "done", max_rpm=60).kickoff(),
    lambda: crew_of("done", knowledge_sources=[StringKnowledgeSource(content="known")]).kickoff(),
    lambda: crew_of("done").test(1, ScriptedLLM([score()])),
    lambda: crew_of("done").test(1, ScriptedLLM(["no"] * 9)),
    lambda: crew_of("done", LEARNED).train(1, feedback=["Shorter."]),
    lambda: crew_of("done").train(1, feedback=lambda output: 3),
]
PACED = {"llm_call_paced"}
"""Shown with a clock of its own, so that nobody waits: tests/crew/test_budgets_of_time.py."""


def test_every_event_of_crews_is_emitted_by_a_real_run():
    with EventRecorder() as heard:
        for run in RUNS:
            with contextlib.suppress(OSError, ConfigError, ContextOverflow, BudgetExceeded, OutputInvalid):
                run()
    wanted = {name for name in checkpoint_event_types() if name.startswith(FAMILIES)} - PACED
    assert len(wanted) > 40
    assert wanted - set(heard.types) == set()


class Letter(Flow):
    """Asks what to write about, has it approved, and cannot send it."""

    checkpoint = CheckpointConfig(location="letters", provider=InMemoryProvider())

    @start()
    def write(self):
        return f"About {self.ask('About what?', name='topic')}"

    @human_feedback("Is it fine?")
    @listen(write)
    def show(self, letter):
        return letter

    @listen(show)
    def send(self):
        raise OSError("cut")


class Note(Flow):
    @start()
    def write(self):
        return "written"


def test_every_event_of_flows_of_methods_is_emitted_by_a_real_run(tmp_path):
    with EventRecorder() as heard:
        for answers in ({}, {"method:write/human:topic": "tides"}, {"method:show@write/human:show": "yes"}):
            with contextlib.suppress(OSError, Suspended):
                Letter().kickoff(run_id="r", answers=answers)
        Note().kickoff()
        Note.plot(tmp_path / "note.html")
    families = ("flow_", "method_execution_", "human_feedback_")
    wanted = {name for name in checkpoint_event_types() if name.startswith(families)} | {"flow_created", "flow_plot"}
    assert len(wanted) == 14
    assert wanted - set(heard.types) == set()
