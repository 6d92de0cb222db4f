"""Agents that plan: before their work, and step by step."""

from __future__ import annotations

import json

import pytest

from crewlite import Agent, Crew, PlanningConfig, Task, ToolCall, event_bus, tool
from crewlite.errors import ConfigError
from crewlite.events import BaseEvent
from crewlite.testing import ScriptedLLM

OF_PLANS = ("agent_reasoning_", "step_observation_", "plan_", "goal_")


@tool(effect="none")
def look(where: str) -> str:
    """Look somewhere."""
    return f"seen {where}"


def plan(*steps, ready=True):
    return json.dumps({"steps": steps, "ready": ready})


def saw(**said):
    return json.dumps(said)


def kicked_off(*script, **fields):
    """The output, the events of plans, and the messages of each call."""
    agent = Agent(role="Pilot", goal="look", llm=ScriptedLLM(script), tools=[look], **fields)
    heard = list[BaseEvent]()
    with event_bus.scoped():
        event_bus.on(BaseEvent, lambda source, event: heard.append(event))
        output = Crew(tasks=[Task(name="t", description="Look", expected_output="x", agent=agent)]).kickoff()
    return output.raw, [event for event in heard if event.type.startswith(OF_PLANS)], agent.llm.calls


def types(events):
    return [event.type for event in events]


def test_an_agent_that_reasons_plans_until_its_plan_is_ready():
    raw, events, calls = kicked_off(plan("look"), "done", reasoning=True)
    assert raw == "done"
    assert types(events) == ["agent_reasoning_started", "agent_reasoning_completed"]
    raw, events, calls = kicked_off(plan("guess", ready=False), plan("look", "write"), "done", reasoning=True)
    assert [event.ready for event in events[1::2]] == [False, True]
    assert events[-1].plan == "1. look\n2. write"
    assert "not ready\n1. guess" in calls[1][-1]["content"]
    assert "1. look\n2. write" in calls[2][-1]["content"]
    raw, events, calls = kicked_off(plan("guess", ready=False), "done", reasoning=True, max_reasoning_attempts=1)
    assert (raw, len(calls)) == ("done", 2)


def test_a_plan_is_carried_out_step_by_step_and_each_step_is_looked_at():
    raw, events, calls = kicked_off(
        plan("look at the bar", "look at the quay"),
        ToolCall("look", {"where": "bar"}),
        "the bar is fine",
        saw(key_information_learned="bar"),
        "the quay is fine",
        saw(),
        "all is fine",
        planning=True,
    )
    assert raw == "all is fine"
    assert types(events) == [
        "agent_reasoning_started",
        "agent_reasoning_completed",
        *["step_observation_started", "step_observation_completed"] * 2,
    ]
    assert events[3].key_information_learned == "bar"
    assert "Step 1 of your plan: look at the bar" in calls[1][-1]["content"]
    assert "the quay is fine" in [message["content"] for message in calls[-1]]
    assert "final answer" in calls[-1][-1]["content"]


def test_a_goal_that_is_achieved_ends_the_plan():
    raw, events, _ = kicked_off(plan("a", "b", "c"), "found", saw(goal_already_achieved=True), "done", planning=True)
    assert raw == "done"
    [early] = [event for event in events if event.type == "goal_achieved_early"]
    assert (early.steps_completed, early.steps_remaining) == (1, 2)


def test_a_plan_that_leads_nowhere_is_made_again_as_often_as_is_allowed():
    again = saw(needs_full_replan=True, replan_reason="a wall")
    script = [plan("a", "b"), "no", again, plan("c", "d"), "no", again, "e", saw(), "done"]
    raw, events, calls = kicked_off(*script, planning_config=PlanningConfig(max_replans=1))
    assert raw == "done"
    triggered = [event for event in events if event.type == "plan_replan_triggered"]
    assert [(event.replan_reason, event.replan_count) for event in triggered] == [("a wall", 1)]
    assert "leads nowhere: a wall" in calls[3][-1]["content"]
    assert "Step 3 of your plan: d" in calls[6][-1]["content"]


def test_what_is_left_of_a_plan_is_put_into_better_words():
    script = [plan("a", "b"), "ok", saw(refined_steps=["b, slowly"]), "ok", saw(), "done"]
    raw, events, calls = kicked_off(*script, planning_config={"reasoning_effort": "high"})
    assert raw == "done"
    assert [event.refinements for event in events if event.type == "plan_refinement"] == [("b, slowly",)]
    assert "b, slowly" in calls[3][-1]["content"]


def test_a_plan_of_low_effort_is_carried_out_without_a_look():
    raw, events, calls = kicked_off(plan("a", "b"), "1", "2", "done", planning_config={"reasoning_effort": "low"})
    assert (raw, len(calls), types(events)) == ("done", 4, ["agent_reasoning_started", "agent_reasoning_completed"])
    config = PlanningConfig(observe_steps=False, max_steps=1, max_step_iterations=1)
    look_first = ToolCall("look", {"where": "bar"})
    raw, events, calls = kicked_off(plan("a", "b"), look_first, "1", "done", planning_config=config)
    assert (raw, len(calls)) == ("done", 4), "one step, which takes one reply and its final answer"


def test_what_fails_in_a_plan_is_told():
    heard = list[str]()
    event_bus.on(BaseEvent, lambda source, event: heard.append(event.type) if event.type.startswith(OF_PLANS) else None)
    for script in ([OSError("cut")], [plan("a"), "1", OSError("cut")]):
        agent = Agent(role="Pilot", goal="look", llm=ScriptedLLM(script), planning=True)
        with pytest.raises(OSError, match="cut"):
            agent.kickoff("go")
    assert heard[:2] == ["agent_reasoning_started", "agent_reasoning_failed"]
    assert heard[-2:] == ["step_observation_started", "step_observation_failed"]


def test_settings_of_planning_are_checked_at_definition():
    with pytest.raises(ConfigError, match="max_stepps"):
        Agent(role="P", goal="g", planning_config={"max_stepps": 3})
    with pytest.raises(ConfigError, match="max_steps"):
        PlanningConfig(max_steps=0)
    with pytest.raises(ConfigError, match=r"'llm': an agent plans with its own model; instead: Agent\(llm=\.\.\.\)"):
        Agent(role="P", goal="g", planning_config={"llm": "offline"})
    with pytest.raises(ConfigError, match="planning_config is 3; wanted a PlanningConfig, or its fields by name"):
        Agent(role="P", goal="g", planning_config=3)
    assert PlanningConfig(llm=None, step_timeout=None, plan_prompt=None) == PlanningConfig()
    assert Agent(role="P", goal="g", planning_config=PlanningConfig()).planner == PlanningConfig()
