"""What a lone agent's kickoff returns."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from crewlite.coming_from import Hinting
from crewlite.definitions.answered import Answered
from crewlite.encoding import codec
from crewlite.step_parts import Durability
from crewlite.usage import Usage


@codec.register
class LiteAgentOutput(Hinting, Answered, BaseModel):
    """An agent's answer."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, defer_build=True)

    raw: str = ""
    pydantic: Any = None
    """The answer as the `response_format` asked for, if one was."""
    agent_role: str = ""
    token_usage: Usage = Field(default_factory=Usage)
    """The usage of this kickoff and all work inside it, earlier kickoffs of the run included."""
    own_usage: Usage = Field(default_factory=Usage)
    """Of a fork, the usage without what had been paid when it was forked; else the same as `token_usage`."""
    run_id: str | None = None
    turn: int = 1
    """Which question of its conversation it answers, from 1."""
    drifted: bool = False
    """The recorded answer was kept, though the agent's goal, backstory or response_format have changed."""
    durability: Durability = "off"

    @property
    def usage_metrics(self) -> dict[str, int]:
        """The counts of `token_usage` as a plain dict, under CrewAI's names."""
        return self.token_usage.metrics()

    def __str__(self) -> str:
        return self.raw
