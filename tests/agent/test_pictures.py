"""Agents that look at pictures: in the messages that they are asked with, and where their tools lead them."""

from __future__ import annotations

import pytest

from crewlite import Agent, Crew, Task, ToolCall
from crewlite.errors import ConfigError
from crewlite.testing import ScriptedLLM

PICTURE = {"type": "image_url", "image_url": {"url": "https://example.org/harbour.png"}}
LOOK = ToolCall("Add_image_to_content", {"image_url": "https://example.org/harbour.png", "action": "Count the ships."})


class Seeing(ScriptedLLM):
    def supports_multimodal(self):
        return True


def test_messages_may_hold_pictures_also_in_a_conversation(config):
    agent = Agent(role="Pilot", goal="look", llm=Seeing(["a harbour", "two"]), checkpoint=config())
    asked = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, PICTURE]}]
    assert agent.kickoff(asked, run_id="r").raw == "a harbour"
    assert agent.kickoff("How many ships?", run_id="r").raw == "two"
    assert [message["content"] for message in agent.llm.calls[1][1:]] == [
        asked[0]["content"],
        "a harbour",
        "How many ships?",
    ]
    assert agent.kickoff(asked, run_id="r").raw == "a harbour"
    with pytest.raises(ConfigError, match="takes texts alone"):
        Agent(role="Pilot", goal="look", llm="offline").kickoff(asked)


def test_a_multimodal_agent_looks_at_pictures_that_it_finds():
    llm = Seeing([LOOK, "two ships"])
    agent = Agent(role="Pilot", goal="look", llm=llm, multimodal=True)
    crew = Crew(tasks=[Task(name="t", description="Look", expected_output="x", agent=agent)])
    assert crew.kickoff().raw == "two ships"
    assert llm.calls[1][-1] == {"role": "user", "content": [{"type": "text", "text": "Count the ships."}, PICTURE]}


@pytest.mark.parametrize("address", ["/etc/passwd", "file:///etc/passwd", "data:text/html,x"])
def test_files_of_the_machine_are_no_pictures(address):
    llm = Seeing([ToolCall("Add_image_to_content", {"image_url": address}), "nothing"])
    Agent(role="Pilot", goal="look", llm=llm, multimodal=True).kickoff("Look")
    assert "is no address of a picture" in llm.calls[1][-1]["content"]


def test_the_tool_is_there_only_where_it_is_asked_for_and_allowed():
    for fields in ({}, {"multimodal": True, "allowed_tools": []}):
        llm = Seeing([LOOK, "nothing"])
        Agent(role="Pilot", goal="look", llm=llm, **fields).kickoff("Look")
        assert [message["role"] for message in llm.calls[1]] == ["system", "user", "assistant", "tool"]
