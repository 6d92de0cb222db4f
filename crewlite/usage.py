"""Tokens, requests and cost, added up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from crewlite.coming_from import Hinting
from crewlite.definitions.keywords import refuse_unknown
from crewlite.encoding import codec
from crewlite.errors import ConfigError


class Counts(TypedDict, total=False):
    """The counts of a usage as they are recorded: those that are neither zero nor unknown."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    requests: int
    cost: float | None


class UsageRecord(Counts, total=False):
    """A usage as it is recorded."""

    agent: str
    """Of one model call: the role of the agent that made it."""
    by_agent: dict[str, Counts]
    """Of a sum of calls: the part of each agent, by its role."""


@codec.register
class Usage(Hinting, BaseModel):
    """The usage of model calls: counts of tokens, `requests` (calls), and `cost` in US dollars, None if unknown."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    requests: int = 0
    cost: float | None = None
    by_agent: dict[str, Usage] = Field(default_factory=dict, repr=False)
    """The part of each agent, by its role. Model calls that no agent made are in no part."""

    if not TYPE_CHECKING:  # type checkers know the fields

        def __init__(self, **counts: Any) -> None:
            if not counts.keys() <= self.__pydantic_fields__.keys():
                counts = _of_crewai(counts)
                refuse_unknown("Usage", type(self).model_fields, counts)
            super().__init__(**counts)

    @classmethod
    def of(cls, record: UsageRecord) -> Usage:
        """Return a usage as it was recorded."""
        parts = {record["agent"]: record} if "agent" in record else record.get("by_agent", {})
        return cls(**_known(record), by_agent={role: cls(**_known(part)) for role, part in parts.items()})

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

    def metrics(self) -> dict[str, int]:
        """Return the counts as a plain dict, under CrewAI's names."""
        return {
            "total_tokens": self.total_tokens,
            "prompt_tokens": self.prompt_tokens,
            "cached_prompt_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "reasoning_tokens": self.reasoning_tokens,
            "successful_requests": self.requests,
        }

    def __add__(self, other: Usage) -> Usage:
        """Return the sum. Its cost is unknown only if both costs are."""
        if other is NO_USAGE:
            return self
        if self is NO_USAGE:
            return other
        return (counted(self.to_record()) + counted(other.to_record())).usage

    def to_record(self) -> UsageRecord:
        """Return the usage as it is recorded: without counts of zero and an unknown cost."""
        known = {name: n for name, n in self.__dict__.items() if n or (name == "cost" and n is not None)}
        record = cast(UsageRecord, known)
        if self.by_agent:
            record["by_agent"] = {role: cast(Counts, usage.to_record()) for role, usage in self.by_agent.items()}
        return record


NO_USAGE = Usage.model_construct()
"""Of no call. It is shared, so that sums which begin with it cost nothing."""


class Counted:
    """A usage as plain numbers, which add up ten times faster than pydantic models.

    Treat it as immutable: sums share it.
    """

    __slots__ = ("_usage", "by_agent", "counts")

    def __init__(self, counts: dict[str, Any], by_agent: dict[str, dict[str, Any]], usage: Usage | None = None) -> None:
        self.counts, self.by_agent = counts, by_agent
        """In total, and the part of each agent, by its role."""
        self._usage = usage

    def __add__(self, other: Counted) -> Counted:
        """Return the sum. Its cost is unknown only if both costs are."""
        counts, by_agent = _sum(self.counts, other.counts), {**self.by_agent}
        for role, part in other.by_agent.items():
            own = by_agent.get(role, {})  # the total itself, if there is one agent only
            by_agent[role] = counts if own is self.counts and part is other.counts else _sum(own, part)
        return Counted(counts, by_agent)

    @property
    def usage(self) -> Usage:
        """What was counted, as a usage."""
        if self._usage is None:
            self._usage = Usage(**self.counts, by_agent=self.by_agent)
        return self._usage

    @property
    def total_tokens(self) -> int:
        """As `usage.total_tokens`, without building a usage for each agent."""
        counts: dict[str, int] = self.counts
        return counts.get("prompt_tokens", 0) + counts.get("completion_tokens", 0)


NOTHING_COUNTED = Counted({}, {}, NO_USAGE)


def counted(usage: UsageRecord) -> Counted:
    """Return a recorded usage as plain numbers."""
    counts = _known(usage)
    if "agent" in usage:
        return Counted(counts, {usage["agent"]: counts})
    return Counted(counts, {role: _known(part) for role, part in usage.get("by_agent", {}).items()})


def _of_crewai(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return counts that have CrewAI's names, as tests of programs give them, under the names here.

    Of tokens that only `total_tokens` counts nobody knows the kind: they count as the prompt's. Raises ConfigError for
    a total that is no number.
    """
    names = {"successful_requests": "requests", "cached_prompt_tokens": "cached_tokens"}
    own = {names.get(name, name): count for name, count in counts.items() if name != "cache_creation_tokens"}
    total, prompt, completion = own.pop("total_tokens", 0), own.get("prompt_tokens", 0), own.get("completion_tokens", 0)
    if not isinstance(total, int):
        raise ConfigError(f"Usage: total_tokens is {total!r}; wanted a whole number")
    if not (isinstance(prompt, int) and isinstance(completion, int)):
        return own  # which pydantic refuses
    return {**own, "prompt_tokens": max(prompt, total - completion)}


_NOTHING = {name: value for name, value in NO_USAGE.__dict__.items() if name != "by_agent"}


def _known(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts alone, and the cost only if it is known."""
    return {name: count for name, count in counts.items() if count is not None and name in _NOTHING}


def _sum(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    total = {**one}
    for name, count in other.items():
        total[name] = total.get(name, 0) + count
    return total
