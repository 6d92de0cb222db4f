"""An answer in a shape: the agent is told it, what does not fit is asked for again, and in the end refused."""

from __future__ import annotations

import pytest

from crewlite import ToolCall
from crewlite.errors import ConfigError, OutputInvalid
from tests.agent.alone import agent, shout
from tests.parts import Fact


def test_a_lone_agent_is_told_the_shape_its_answer_must_have():
    who = agent('{"word": "tide"}')
    who.kickoff("Say a word", response_format=Fact)
    assert "fits this JSON schema" in who.llm.calls[0][0]["content"]
    assert '"word"' in who.llm.calls[0][0]["content"]


def test_structured_answers_are_checked_and_mended_or_refused():
    who = agent("not json", '```json\n{"word": "tide"}\n```')
    result = who.kickoff("go", response_format=Fact)
    assert result.pydantic == Fact(word="tide")
    assert "does not have the shape" in who.llm.calls[1][-1]["content"]
    with pytest.raises(OutputInvalid, match="after 3 tries"):
        agent("no", "no", "no").kickoff("go", response_format=Fact)


def test_the_final_answer_that_was_asked_for_has_the_shape_or_is_refused():
    who = agent(ToolCall("shout", {"text": "x"}), '{"word": "tide"}', tools=[shout], max_iter=1)
    assert who.kickoff("go", response_format=Fact).pydantic == Fact(word="tide")
    assert '"word"' in who.llm.calls[-1][-1]["content"]
    with pytest.raises(OutputInvalid, match="after 2 tries"):
        agent("no", "no", max_iter=1).kickoff("go", response_format=Fact)


def test_a_response_format_is_a_pydantic_class_or_the_error_says_so():
    for wrong in ({"a": 1}, "Fact", Fact(word="tide"), [Fact], int, dict, list[Fact]):
        who = agent("no")
        with pytest.raises(ConfigError, match="response_format is .*; wanted a pydantic class"):
            who.kickoff("go", response_format=wrong)
        assert who.llm.calls == []


def test_a_lone_agent_that_gave_up_begins_its_conversation_anew(config):
    first = agent("three", "3", "III", max_iter=4, checkpoint=config())
    with pytest.raises(OutputInvalid):
        first.kickoff("Say a word", response_format=Fact, run_id="one")
    second = agent('{"word": "tide"}', max_iter=4, checkpoint=config())
    assert second.kickoff("Say a word", response_format=Fact, run_id="one").pydantic == Fact(word="tide")
    assert len(second.llm.calls) == 1
    assert [message["role"] for message in second.llm.calls[0]] == ["system", "user"]
