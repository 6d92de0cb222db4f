"""Outputs that tests of programs make themselves, in the place of a kickoff."""

from __future__ import annotations

import pytest

from crewlite import Crew
from crewlite.crews.crew_output import CrewOutput
from crewlite.errors import ConfigError, UnknownOption
from crewlite.lite_agent_output import LiteAgentOutput
from crewlite.tasks.task_output import TaskOutput
from crewlite.types.usage_metrics import UsageMetrics


def test_an_output_needs_no_more_than_in_crewai(monkeypatch):
    task = TaskOutput(description="Research", agent="Clerk", raw="Tides")
    made = CrewOutput(raw="Tides", tasks_output=[task], token_usage={"total_tokens": 3, "successful_requests": 1})
    monkeypatch.setattr(Crew, "kickoff", lambda self, inputs: made)
    result = Crew.kickoff(None, {})
    assert (str(result), result.tasks_output[0].agent, result.token_usage.total_tokens) == ("Tides", "Clerk", 3)
    assert (str(CrewOutput()), CrewOutput().token_usage.total_tokens, CrewOutput().tasks_output) == ("", 0, ())
    assert (str(TaskOutput(description="d", agent="a")), str(LiteAgentOutput(raw="High"))) == ("", "High")


@pytest.mark.parametrize(
    ("given", "prompt", "completion", "requests"),
    [
        ({"total_tokens": 10, "prompt_tokens": 7, "completion_tokens": 3, "successful_requests": 2}, 7, 3, 2),
        ({"total_tokens": 10}, 10, 0, 0),
        ({"total_tokens": 10, "completion_tokens": 4}, 6, 4, 0),
        ({"prompt_tokens": 7, "successful_requests": 1, "cache_creation_tokens": 2}, 7, 0, 1),
    ],
)
def test_counts_may_have_the_names_of_crewai(given, prompt, completion, requests):
    usage = UsageMetrics(**given, cached_prompt_tokens=5)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.requests) == (prompt, completion, requests)
    assert usage.metrics()["cached_prompt_tokens"] == 5
    with pytest.raises(UnknownOption, match="Usage has no option 'tokens'"):
        UsageMetrics(tokens=3)


def test_a_total_that_is_no_number_is_told():
    with pytest.raises(ConfigError, match="Usage: total_tokens is 'ten'; wanted a whole number"):
        UsageMetrics(total_tokens="ten")
    with pytest.raises(ValueError, match="prompt_tokens"):
        UsageMetrics(total_tokens=10, prompt_tokens="seven")
