"""A model that scores the results of variants."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from crewlite.agent.agent import Agent
from crewlite.agent.shape import PROMPTS
from crewlite.encoding.codec import JsonObject
from crewlite.llm.base import BaseLLM
from crewlite.runtime.kickoffs.facts import facts_of
from crewlite.texts import templates
from crewlite.usage import Usage


class Score(BaseModel):
    """How good an answer is."""

    model_config = ConfigDict(defer_build=True)

    quality: float = Field(ge=0, le=10, description="From 0 (useless) to 10 (nothing could be better)")
    reason: str = Field(description="Why, in one or two sentences")


def as_judge(given: Agent | BaseLLM | str) -> Agent:
    """Return the agent that judges: the given one, or one with this model. Its work is part of no recorded run."""
    if not isinstance(given, Agent):
        given = Agent(role="Judge", goal="Judge how well a result does what was asked", llm=given)
    return given.bound_to(None).with_checkpoint(False)


def facts(judge: Agent) -> JsonObject:
    """Return plain data that tells this judge from others."""
    return facts_of(judge, Agent)


async def scored(
    judge: Agent, task: Mapping[str, Any] | None, inputs: Mapping[str, Any], result: str
) -> tuple[float, str, Usage]:
    """Have the judge score a result. Returns the score from 0 to 10, the reason, and what the judge has used.

    `task`: `description` and `expected_output` of what was to be done; None if only the inputs say it. Raises what a
    kickoff raises; OutputInvalid if the judge gives no score.
    """
    shown = {
        "task": task,
        "inputs": templates.marked("inputs", json.dumps(inputs, default=str, ensure_ascii=False)) if inputs else "",
        "result": templates.marked("result", result),
    }
    asked = templates.render(PROMPTS, "score.j2", **shown)
    answer = await judge.akickoff(asked, response_format=Score)
    verdict = answer.pydantic
    assert isinstance(verdict, Score)
    return verdict.quality, verdict.reason, answer.token_usage
