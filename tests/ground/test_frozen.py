"""What is frozen says what to do instead; what a tool of one's own keeps for itself may be set."""

from __future__ import annotations

import pytest

from crewlite import Agent, BaseTool, CheckpointConfig, Crew, Task, ToolCall, tool
from crewlite.errors import ConfigError
from crewlite.testing import ScriptedLLM


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return where


AGENT = Agent(role="Clerk", goal="answer", llm="offline")
TASK = Task(description="Do", expected_output="x", agent=AGENT)


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (AGENT, "role"),
        (TASK, "context"),
        (Crew(tasks=[TASK]), "tasks"),
        (CheckpointConfig(), "location"),
        (look, "description"),
    ],
    ids=["agent", "task", "crew", "config", "tool"],
)
def test_a_frozen_field_says_what_to_do_instead(thing, name):
    with pytest.raises(ConfigError, match=rf"{name!r} of a \w+ cannot be set.*{name}=.*model_copy"):
        setattr(thing, name, "other")
    with pytest.raises(ConfigError, match="cannot be set"):
        delattr(thing, name)


def test_what_is_no_field_of_a_definition_is_told_with_what_was_meant():
    with pytest.raises(ConfigError, match="Task has no field 'contxt'; did you mean 'context'"):
        TASK.contxt = []


class Counter(BaseTool):
    """A tool with a client and a count of its own."""

    name: str = "count"
    description: str = "Count."
    calls: int = 0

    def __init__(self, client, **fields):
        self.client = client
        super().__init__(**fields)
        self.late = "set"

    def _run(self, by: int) -> str:
        self.calls += by
        return f"{self.client} {self.late} {self.calls}"


def test_a_tool_of_ones_own_keeps_attributes_of_its_own():
    counter = Counter("shop")
    llm = ScriptedLLM([ToolCall("count", {"by": 2}), ToolCall("count", {"by": 3}), "done"])
    Agent(role="Clerk", goal="answer", llm=llm, tools=[counter]).kickoff("Go")
    assert [m["content"] for m in llm.calls[-1] if m["role"] == "tool"] == ["shop set 2", "shop set 5"]
    assert counter.calls == 5
    assert counter.model_copy().client == "shop"


def test_a_secret_that_a_tool_keeps_for_itself_is_known(memory):
    class Shop(BaseTool):
        name: str = "shop"
        description: str = "Shop."

        def __init__(self):
            super().__init__()
            self.api_key = "sk-1234-abcdefgh"

        def _run(self) -> str:
            return f"bought with {self.api_key}"

    llm = ScriptedLLM([ToolCall("shop"), "done"])
    Agent(role="Clerk", goal="answer", llm=llm, tools=[Shop()], checkpoint=memory()).kickoff("Go")
    assert llm.calls[-1][-1]["content"] == "bought with [secret]"
