"""Guardrails as they are defined: functions, or texts that a model judges by, that an answer must pass to count."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

from pydantic import StringConstraints, ValidationInfo, field_validator

from crewlite.definitions.definition import Described, check_takes
from crewlite.errors import ConfigError
from crewlite.llm.base import BaseLLM
from crewlite.llm.models import as_model
from crewlite.texts.wording import what_is


class LLMGuardrail(Described):
    """A rule by which a model judges answers, another model than the agent's.

    `LLMGuardrail(description="It names a source", llm="openai/gpt-4o")`. For a plain text, the agent's model judges.
    """

    description: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    """What an answer must be like, in plain words. Its braces are no placeholders."""
    llm: BaseLLM | str | None = None
    """A model or its name; None takes the agent's."""

    _llm = field_validator("llm", mode="before")(as_model)


Guardrail = str | LLMGuardrail | Callable[..., Any]


def as_guardrail(value: object, info: ValidationInfo) -> object:
    """Return `value`, a guardrail or None, unchanged. Raises ConfigError, which names the field, for anything else."""
    return _checked(value, info.field_name or "")


def as_guardrails(value: object, info: ValidationInfo) -> list[object]:
    """Return a list of guardrails unchanged. Raises ConfigError, which names the field, for anything else."""
    listed = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return [_checked(one, f"{info.field_name}[{number}]") for number, one in enumerate(listed)]


def _checked(value: object, field: str) -> object:
    if isinstance(value, LLMGuardrail):
        return value if value.llm else value.description
    if value is None or (isinstance(value, str) and value.strip()):
        return value.strip() if isinstance(value, str) else None
    if not callable(value):
        found = repr(value) if isinstance(value, str) else what_is(value)
        raise ConfigError(
            f"{field} is {found}; wanted a function that takes the output and returns (True, value) or "
            f"(False, reason), or a text that a model judges by"
        )
    check_takes(value, field, "the TaskOutput")
    return value


def rule_of(guardrail: Guardrail) -> str | None:
    """Return the rule that a model judges by; None for a function."""
    if isinstance(guardrail, LLMGuardrail):
        return guardrail.description
    return guardrail if isinstance(guardrail, str) else None


def models_of(guardrails: Iterable[Guardrail]) -> tuple[BaseLLM | str, ...]:
    """Return the models that guardrails have of their own."""
    return tuple(one.llm for one in guardrails if isinstance(one, LLMGuardrail) and one.llm)


def without_models(guardrails: tuple[Guardrail, ...]) -> tuple[Guardrail, ...]:
    """Return the same guardrails without models of their own, so that the agent's model judges."""
    return tuple(one.description if isinstance(one, LLMGuardrail) else one for one in guardrails)
