"""The judge of a study: a function, or a model, whose scores are recorded with the branches that they are about."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from crewlite.concurrency import resources
from crewlite.definitions.definition import check_takes
from crewlite.encoding import codec
from crewlite.errors import ConfigError
from crewlite.lazy import lazy
from crewlite.llm.base import BaseLLM
from crewlite.llm.models import as_model, resolve_llm
from crewlite.runtime.kickoffs.runnable import Runnable
from crewlite.runtime.steps.callbacks import called, name_of
from crewlite.state.verbs.score import RecordedScore

judging = lazy("crewlite.agent.judging")  # on a higher floor, as it asks a model


@dataclass(frozen=True, slots=True)
class JudgedTask:
    """The task of a variant, for a model that judges the variant's result."""

    task: Mapping[str, Any] | None
    """`description` and `expected_output` of the last task; None for agents and flows."""
    inputs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Judge:
    """A judge, and the text that identifies it in recorded scores.

    For a function the text is None, and the function is called each time: it may have changed since, because its result
    may depend on values outside its code.
    """

    known_by: str | None
    score: Callable[[Any, str, JudgedTask], Awaitable[RecordedScore]]
    """Takes what a kickoff returned, the same as text, and the task of the variant."""
    model: BaseLLM | None = None
    """The model that the judge asks; None for a function."""

    async def ready(self) -> None:
        """Check the judge's model before anything is paid. Raises the error that every call of it would raise."""
        if self.model is not None:
            await resources.ready(self.model)


def judge_of(given: Any) -> Judge | None:
    """Return the judge that a caller gave: a function, a model or its name, or an agent; None for None.

    Raises ConfigError.
    """
    if given is None:
        return None
    if isinstance(found := as_model(given), str | BaseLLM) or (
        isinstance(given, Runnable) and given.run_kind.takes_messages
    ):
        agent = judging.as_judge(found)
        model = resolve_llm([agent.llm], agent=agent.role)
        return Judge(codec.digest(["model", judging.facts(agent)]), _by_model(agent), model)
    if callable(given) and not isinstance(given, type | Runnable):
        check_takes(given, "judge", "a result")
        return Judge(None, _by_function(given))
    raise ConfigError(
        f"judge is {given!r}; wanted a model, the name of a model, an Agent, or a function that takes a result and "
        f"returns a number"
    )


def _by_function(function: Callable[..., Any]) -> Callable[[Any, str, JudgedTask], Awaitable[RecordedScore]]:
    async def score(result: Any, text: str, about: JudgedTask) -> RecordedScore:
        found = await called(function, result)
        value, reason = found if isinstance(found, tuple) and len(found) == 2 else (found, "")
        if not isinstance(value, int | float) or not math.isfinite(value) or not isinstance(reason, str):
            raise ConfigError(
                f"judge {name_of(function)} returned {found!r}; wanted a number, or a number and the reason as text"
            )
        return RecordedScore(float(value), reason)

    return score


def _by_model(agent: Any) -> Callable[[Any, str, JudgedTask], Awaitable[RecordedScore]]:
    async def score(result: Any, text: str, about: JudgedTask) -> RecordedScore:
        return RecordedScore(*await judging.scored(agent, about.task, about.inputs, text))

    return score
