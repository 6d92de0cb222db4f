"""The base classes of definitions: frozen, compared by identity, with one readable error for all invalid fields."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError, ValidationInfo, field_validator

from crewlite.coming_from import instead_of
from crewlite.errors import ConfigError, an, meant
from crewlite.recovery.remedy import check_policy

_ASKS_FOR_NOTHING_WHEN_OFF = frozenset(
    {"allow_code_execution", "allow_delegation", "async_execution", "cache", "guardrail", "guardrails", "inject_date"}
    | {"knowledge_sources", "markdown", "max_rpm", "memory", "multimodal", "planning", "reasoning", "share_crew"}
    | {"step_callback", "stream", "task_callback", "tracing"}
)


class Described(BaseModel):
    """A frozen model whose construction fails with a ConfigError that lists every problem at once."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, defer_build=True)

    accepted_if_off: ClassVar[frozenset[str]] = frozenset()
    """Fields of other frameworks that are ignored if they are off: False, None or empty."""

    @field_validator("failure_policy", mode="plain", check_fields=False)
    @classmethod
    def _can_decide(cls, value: object) -> object:
        return check_policy(value)

    if not TYPE_CHECKING:  # type checkers keep the signature made from the fields

        def __init__(self, *args: Any, **data: Any) -> None:
            if args:
                fields = ", ".join(f"{name}=..." for name in list(type(self).model_fields)[:3])
                raise ConfigError(f"{type(self).__name__} takes named fields: {type(self).__name__}({fields})")
            ignored = {
                name for name in self.accepted_if_off - type(self).model_fields.keys() if not data.get(name, True)
            }
            wanted = {name: value for name, value in data.items() if name not in ignored}
            try:
                super().__init__(**wanted)
            except ValidationError as error:
                raise ConfigError(_readable(type(self), error)) from None

    def __setattr__(self, name: str, value: object) -> None:
        try:
            super().__setattr__(name, value)
        except ValueError:  # pydantic raises it for a frozen or unknown field
            raise ConfigError(_cannot_be_set(type(self), name)) from None

    def __delattr__(self, name: str) -> None:
        try:
            super().__delattr__(name)
        except ValueError:
            raise ConfigError(_cannot_be_set(type(self), name)) from None


class Definition(Described):
    """A description of work. It holds no state of runs, so several runs may use it at the same time.

    Two definitions are equal only if they are the same object, even if all their fields are equal.
    """

    accepted_if_off = _ASKS_FOR_NOTHING_WHEN_OFF

    _bound: Any = PrivateAttr(default=None)
    """The default of `from_checkpoint` at a kickoff: a CheckpointConfig with `restore_from`, or None."""

    @field_validator("agents", "tasks", "context", mode="before", check_fields=False)
    @classmethod
    def _is_list(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, Definition):
            kind = type(value).__name__
            raise ConfigError(f"{info.field_name} is one {kind}; wanted a list: {info.field_name}=[...]")
        return value

    @field_validator("role", "goal", "backstory", "description", "expected_output", mode="before", check_fields=False)
    @classmethod
    def _is_text(cls, value: object) -> object:
        """Strip the white space around a text, such as the line break at the end of a folded text in YAML."""
        return value.strip() if isinstance(value, str) else value

    @field_validator("checkpoint", mode="before", check_fields=False)
    @classmethod
    def _is_setting(cls, value: object) -> object:
        if isinstance(value, str | os.PathLike):
            raise ConfigError(f"checkpoint is {value!r}; wanted True, False or CheckpointConfig(location={value!r})")
        return value

    @field_validator("llm", mode="before", check_fields=False)
    @classmethod
    def _is_model(cls, value: object) -> object:
        if isinstance(value, type):
            raise ConfigError(f"llm is the class {value.__name__}; wanted an instance: llm={value.__name__}(...)")
        return value

    if not TYPE_CHECKING:  # type checkers know the fields

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                if instead := instead_of(type(self), name):
                    raise AttributeError(f"{type(self).__name__} has no {name!r}: {instead}") from None
                raise

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def check_inputs(inputs: object) -> None:
    """Raise ConfigError unless inputs are None or a mapping with text keys. The names themselves are not checked."""
    if inputs is not None and not (isinstance(inputs, Mapping) and all(isinstance(name, str) for name in inputs)):
        raise ConfigError(f"inputs is {inputs!r}; wanted names and values, such as {{'topic': 'tides'}}")


def _cannot_be_set(cls: type[BaseModel], name: str) -> str:
    kind = cls.__name__
    if name not in cls.model_fields:
        hint = meant(name, cls.model_fields) or f"it has {', '.join(cls.model_fields)}"
        return f"{kind} has no field {name!r}; {hint}"
    return (
        f"{name!r} of a {kind} cannot be set: a {kind} is frozen once it is made, as many runs may use it at once. "
        f"Pass it to the constructor, {kind}({name}=...), or make a copy: .model_copy(update={{{name!r}: ...}})"
    )


def _readable(cls: type[BaseModel], error: ValidationError) -> str:
    problems, unlike = [], list[str]()
    for name, item in _each_once(error):
        if item["type"] == "extra_forbidden":
            hint = meant(name, cls.model_fields)
            problems.append(f"it has no field {name!r}{f'; {hint}' if hint else ''}")
            unlike += [] if hint else [name]
        elif item["type"] == "missing":
            problems.append(f"{name!r} is missing")
        else:
            message = item["msg"].removeprefix("Value error, ")
            problems.append(f"{name}: {message}" if name and name not in message else message)
    if unlike:
        problems.append(f"it has {', '.join(cls.model_fields)}")
    return f"{cls.__name__}: " + "; ".join(problems)


def _each_once(error: ValidationError) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the problems with their fields. A value that fits none of several types counts as one problem."""
    listed = error.errors(include_url=False)
    for field, items in itertools.groupby(listed, lambda item: item["loc"][:1]):
        same = list(items)
        if len(same) > 1 and all(len(item["loc"]) == 2 and item["input"] is same[0]["input"] for item in same):
            wanted = ", or ".join(dict.fromkeys(_wanted(item) for item in same))
            found = an(type(same[0]["input"]).__name__)  # not the value: it may hold a key
            yield str(field[0]), {"type": "union", "msg": f"{field[0]} is {found}; wanted {wanted}"}
        else:
            yield from ((".".join(map(str, item["loc"])), item) for item in same)


def _wanted(item: Mapping[str, Any]) -> str:
    """Return the values that one of several types accepts, in words."""
    plain = {"string_type": "text", "bool_type": "True or False", "bool_parsing": "True or False"}
    return plain.get(item["type"]) or item["msg"].removeprefix("Input should be ")
