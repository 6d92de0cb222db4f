"""What of a definition is recorded: plain fields as data, and of live ones only what they are called.

A run can then be rebuilt where the script that made it is not at hand (`rebuild`). No live object is ever written:
a tool, a function or a class leaves no more than its name, a model by name its plain settings, and never a key.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Any

from crewlite.codec import JsonObject
from crewlite.definition import Described
from crewlite.llm.base import BaseLLM
from crewlite.state.config import CheckpointConfig
from crewlite.tools.base import BaseTool

OF_THE_STORE = frozenset({"location", "provider", "restore_from"})
"""Fields of a CheckpointConfig that are not recorded: where a run is kept is known from where it was found."""

_NEVER = "redact"  # the one field of plain texts that must not be stored
_LIVE = object()


def facts_of(definition: Described, base: type[Described], apart: Collection[str] = ()) -> JsonObject:
    """The fields that are not as `base` has them by default, as plain data; under "live", what the others are called.

    What a subclass adds counts as live: nobody knows here whether it may be stored. `apart` names fields left out.
    """
    facts: JsonObject = {}
    live: dict[str, str | list[str]] = {}
    models: dict[str, dict[str, Any]] = {}
    for name, field in type(definition).model_fields.items():
        value = getattr(definition, name)
        if name in apart or value is field.default:
            continue
        plain = _plain(value) if name in base.model_fields and name != _NEVER else _LIVE
        if isinstance(value, CheckpointConfig):
            facts[name] = facts_of(value, CheckpointConfig, OF_THE_STORE)
        elif plain is _LIVE:
            live[name] = _called(value)
            if isinstance(value, BaseLLM) and (settings := value.plain_settings()):
                models[name] = settings
        elif plain != _plain(field.default):
            facts[name] = plain
    if type(definition) is not base:
        live["class"] = type(definition).__name__
    return facts | ({"live": live} if live else {}) | ({"models": models} if models else {})


def is_plain(data: object) -> bool:
    """Whether this is what a plain field is recorded as: text, a number, a truth value, nothing, or a list of them."""
    return _is_scalar(data) or (isinstance(data, list) and all(map(_is_scalar, data)))


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | bool | int | float)


def _plain(value: object) -> Any:
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, tuple | list):
        items = [_plain(item) for item in value]
        return items if is_plain(items) else _LIVE
    if isinstance(value, int) and value.bit_length() > 64:
        return _LIVE  # more digits than a reader of JSON may take
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)  # JSON has no word for it; a field of type float takes this one
    return value if _is_scalar(value) else _LIVE


def _told_apart(names: list[str]) -> list[str]:
    """Names of functions as paths have them: the second `check` is `check#2`."""
    return [f"{name}#{n}" if (n := names[: at + 1].count(name)) > 1 else name for at, name in enumerate(names)]


def _called(value: object) -> str | list[str]:
    if isinstance(value, tuple | list):
        tools = [str(item.name) for item in value if isinstance(item, BaseTool)]
        functions = [str(_called(item)) for item in value if callable(item)]
        return tools or _told_apart(functions) or f"{len(value)} texts"
    name = value.model if isinstance(value, BaseLLM) else getattr(value, "__name__", None)
    return str(name or type(value).__name__)
