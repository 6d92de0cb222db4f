"""Guardrails as they are defined: functions, or texts that a model judges by, that an answer must pass to count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field, field_validator

from crewlite.definition import Described, check_takes
from crewlite.errors import ConfigError, an
from crewlite.llm.base import BaseLLM
from crewlite.llm.foreign import as_model


class LLMGuardrail(Described):
    """A guardrail that another model than the agent's judges by.

    `LLMGuardrail(description="It names a source", llm="openai/gpt-4o")`. A plain text has the agent's model judge.
    """

    description: str = Field(min_length=1)
    """What an answer must be like, in plain words. Its braces are no placeholders."""
    llm: BaseLLM | str | None = None
    """A model or its name; None takes the agent's."""

    @field_validator("description", mode="before")
    @classmethod
    def _stripped(cls, value: object) -> object:
        return value.strip() if isinstance(value, str) else value

    @field_validator("llm", mode="before")
    @classmethod
    def _llm(cls, value: object) -> object:
        return as_model(value)


Guardrail = str | LLMGuardrail | Callable[..., Any]


def as_guardrail(value: object, field: str) -> object:
    """A guardrail as it was given, checked; None if there is none. Raises ConfigError."""
    if isinstance(value, LLMGuardrail):
        return value if value.llm else value.description
    if value is None or (isinstance(value, str) and value.strip()):
        return value.strip() if isinstance(value, str) else None
    if not callable(value):
        found = repr(value) if isinstance(value, str) else an(type(value).__name__)
        raise ConfigError(
            f"{field} is {found}; wanted a function that takes the output and returns (True, value) or "
            f"(False, reason), or a text that a model judges by"
        )
    check_takes(value, field, "the TaskOutput")
    return value


def as_guardrails(value: object, field: str) -> list[object]:
    """A chain of guardrails, checked. Raises ConfigError."""
    listed = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return [as_guardrail(one, f"{field}[{number}]") for number, one in enumerate(listed)]


def texts_of(guardrails: tuple[Guardrail, ...]) -> list[str | None]:
    """What models judge by, as plain data: a function counts by its place alone."""
    return [_text(one) for one in guardrails]


def models_of(guardrails: tuple[Guardrail, ...]) -> tuple[BaseLLM | str, ...]:
    """The models that guardrails bring along."""
    return tuple(one.llm for one in guardrails if isinstance(one, LLMGuardrail) and one.llm)


def without_models(guardrails: tuple[Guardrail, ...]) -> tuple[Guardrail, ...]:
    """The same guardrails, judged by the agent's model."""
    return tuple(one.description if isinstance(one, LLMGuardrail) else one for one in guardrails)


def _text(guardrail: Guardrail) -> str | None:
    if isinstance(guardrail, LLMGuardrail):
        return guardrail.description
    return guardrail if isinstance(guardrail, str) else None
