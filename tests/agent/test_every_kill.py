"""What an agent does beyond asking its model survives: killed after any commit, a run comes to the same result."""

from __future__ import annotations

import json

import pytest

from crewlite import Agent, Crew, Task, ToolCall, tool
from crewlite.errors import ContextOverflow, LLMRejected
from crewlite.testing import ScriptedLLM
from tests.cuts import lives


@tool(effect="none")
def look(where: str) -> str:
    """Look somewhere."""
    return f"seen {where}"


def asks_without_end(messages, tools):
    return ToolCall("look", {"where": f"place {len(messages)}"}) if tools else f"enough after {len(messages)} messages"


def has_a_small_window(messages, tools):
    if sum(len(str(message["content"])) for message in messages[2:]) > 300:
        raise ContextOverflow("small", 400, "too long")
    if not tools:
        return "summary: seen the bar"
    looks = [message for message in messages if message["role"] == "tool"]
    if len(looks) < 2 and "summary:" not in messages[-1]["content"]:
        return ToolCall("look", {"where": f"far away, {'very ' * 40} number {len(looks)}"})
    return messages[-1]["content"][-80:]


def fails_once():
    failed = []

    def reply(messages, tools):
        if messages[-1]["role"] == "user":
            return ToolCall("look", {"where": "here"})
        if not failed:
            raise failed.append(True) or LLMRejected("small", 400, "no")
        return messages[-1]["content"]

    return ScriptedLLM(reply)


def plans(messages, tools):
    """Plans, looks at each step, refines after the first, plans again after the second, and ends early."""
    said = messages[-1]["content"]
    count = sum(message["role"] == "user" and message["content"].startswith("Step ") for message in messages)
    if "First make a plan" in said:
        return json.dumps({"steps": ["a", "b", "c"], "ready": "not ready" in said or count > 0})
    if "Look at the step" in said:
        looks = [{"refined_steps": ["d", "e"]}, {"needs_full_replan": True}, {"goal_already_achieved": True}]
        return json.dumps(looks[count - 1])
    if messages[-1]["role"] == "user" and "Step " in said:
        return ToolCall("look", {"where": said.splitlines()[0]})
    return "; ".join(str(message["content"]) for message in messages if message["role"] == "tool")


class Seeing(ScriptedLLM):
    def supports_multimodal(self):
        return True


def looks_at_a_picture(messages, tools):
    if messages[-1]["role"] == "user" and isinstance(messages[-1]["content"], str):
        return ToolCall("Add_image_to_content", {"image_url": "https://example.org/harbour.png"})
    return str(messages[-1]["content"])


AGENTS = {
    "a picture": lambda: Agent(role="Pilot", goal="look", llm=Seeing(looks_at_a_picture), multimodal=True),
    "a plan, its steps and looks at them": lambda: Agent(
        role="Pilot",
        goal="look",
        llm=ScriptedLLM(plans),
        tools=[look],
        planning_config={"reasoning_effort": "high", "max_attempts": 2},
    ),
    "going on after a failure": lambda: Agent(
        role="Pilot", goal="look", llm=fails_once(), tools=[look], max_retry_limit=2
    ),
    "a summary of what does not fit": lambda: Agent(
        role="Pilot", goal="look", llm=ScriptedLLM(has_a_small_window), tools=[look]
    ),
    "templates, and the date": lambda: Agent(
        role="Pilot",
        goal="look",
        llm=ScriptedLLM(lambda messages: "|".join(message["content"] for message in messages)),
        inject_date=True,
        system_template="{{ .System }}!",
        prompt_template="{{ .Prompt }}?",
        use_system_prompt=False,
    ),
    "a final answer that is asked for": lambda: Agent(
        role="Pilot", goal="look", llm=ScriptedLLM(asks_without_end), tools=[look], max_iter=2
    ),
}


@pytest.mark.parametrize("name", AGENTS)
def test_killed_after_any_commit_an_agent_comes_to_the_same_answer(name):
    def make(checkpoint):
        agent = AGENTS[name]()
        first = Task(name="first", description="Look", expected_output="x", agent=agent)
        return Crew(tasks=[first], checkpoint=checkpoint)

    for whole, again in lives(make):
        assert (again.raw, again.token_usage) == (whole.raw, whole.token_usage)
