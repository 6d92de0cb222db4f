"""Tokens, requests and cost, added up."""

from __future__ import annotations

from typing import cast

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from crewlite import codec


class UsageRecord(TypedDict, total=False):
    """A usage as it is recorded: the fields that are neither zero nor unknown."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    requests: int
    cost: float | None


@codec.register
class Usage(BaseModel):
    """The usage of model calls: counts of tokens, `requests` (calls), and `cost` in US dollars, None if unknown."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    requests: int = 0
    cost: float | None = None

    @property
    def total_tokens(self) -> int:
        """The sum of prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def successful_requests(self) -> int:
        """The same as `requests`, under CrewAI's name."""
        return self.requests

    @property
    def cached_prompt_tokens(self) -> int:
        """The same as `cached_tokens`, under CrewAI's name."""
        return self.cached_tokens

    def __add__(self, other: Usage) -> Usage:
        """Return the sum. Its cost is unknown only if both costs are."""
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            requests=self.requests + other.requests,
            cost=sum(costs) if costs else None,
        )

    def to_record(self) -> UsageRecord:
        """Return the usage as it is recorded: without counts of zero and an unknown cost."""
        fields = self.__dict__.items()
        return cast(UsageRecord, {name: n for name, n in fields if n or (name == "cost" and n is not None)})
