"""The facts of a definition, which are recorded: plain fields as data, live objects (tools, models) only by name.

From these, `rebuild` can rebuild the definition without the script that made it. No live object is ever written: for a
tool, a function or a class only the name is recorded, for a model made by name its plain settings, and never a key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from functools import lru_cache
from itertools import count
from typing import Any

from crewlite.definitions.definition import Described
from crewlite.encoding.codec import JsonObject
from crewlite.knowledge.sources import KnowledgeSource
from crewlite.llm.base import BaseLLM
from crewlite.state.config import CheckpointConfig
from crewlite.tools.base import BaseTool

OF_THE_STORE = frozenset({"location", "provider", "restore_from"})
"""Fields of a CheckpointConfig that are not recorded: they only tell where the run is stored."""

PLAIN = "plain"
"""In a list that also holds live objects: the key of a text, or of the paths of a source of knowledge."""

_NEVER = "redact"  # the one field with plain texts that must not be stored
_LIVE = object()


def facts_of(definition: Described, base: type[Described], apart: Collection[str] = ()) -> JsonObject:
    """Return the plain fields that differ from their defaults, as data; under "live", the names of the live objects.

    Fields that a subclass of `base` adds count as live, as it is unknown whether they may be stored. Fields in `apart`
    are left out.
    """
    facts: JsonObject = {}
    live: dict[str, str | list[Any]] = {}
    models: dict[str, dict[str, Any]] = {}
    held, (defaults, plain_defaults), (known, _) = vars(definition), _defaults(type(definition)), _defaults(base)
    for name, default in defaults.items():
        if (value := held[name]) is default or name in apart:
            continue
        plain = _plain(value) if name in known and name != _NEVER else _LIVE
        if plain is not _LIVE:
            if plain != plain_defaults[name]:
                facts[name] = plain
        elif isinstance(value, CheckpointConfig):
            facts[name] = facts_of(value, CheckpointConfig, OF_THE_STORE)
        else:
            live[name] = _called(value)
            if isinstance(value, BaseLLM) and (settings := value.plain_settings()):
                models[name] = settings
    if type(definition) is not base:
        live["class"] = type(definition).__name__
    return facts | ({"live": live} if live else {}) | ({"models": models} if models else {})


@lru_cache(maxsize=1024)
def _defaults(cls: type[Described]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the defaults of the fields of a class, as they are and as they would be recorded."""
    defaults = {name: field.default for name, field in cls.model_fields.items()}
    return defaults, {name: _plain(default) for name, default in defaults.items()}


def is_plain(data: object) -> bool:
    """Return whether data has the form in which a plain field is recorded.

    That is a text, number, boolean or None, a list of these, or a mapping of names to these.
    """
    items = data if isinstance(data, list) else data.values() if isinstance(data, dict) else (data,)
    return all(map(_is_scalar, items))


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | bool | int | float)


def _plain(value: object) -> Any:
    if value is None or type(value) is str:
        return value
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, tuple | list):
        items = [_plain(item) for item in value]
        return items if is_plain(items) else _LIVE
    if isinstance(value, Mapping):
        named = {str(name): _plain(item) for name, item in value.items()}
        return named if is_plain(named) else _LIVE
    if isinstance(value, int) and value.bit_length() > 64:
        return _LIVE  # more digits than a JSON parser may accept
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)  # inf or nan, which JSON lacks; a field of type float accepts the text
    return value if _is_scalar(value) else _LIVE


def told_apart(names: Iterable[Any]) -> list[Any]:
    """Return names, made unique: the second `check` becomes `check#2`. What is no text stays as it is."""
    found: list[Any] = []
    for name in names:
        numbered = (f"{name}#{number}" for number in count(2) if f"{name}#{number}" not in found)
        found.append(next(numbered) if isinstance(name, str) and name in found else name)
    return found


def _called(value: object) -> str | list[Any]:
    if isinstance(value, tuple | list):
        tools = [str(item.name) for item in value if isinstance(item, BaseTool)]
        if tools or all(isinstance(item, str) for item in value):
            return tools or f"{len(value)} texts"
        plain = [item.recorded_paths if isinstance(item, KnowledgeSource) else item for item in value]
        return told_apart(
            [
                {PLAIN: own} if isinstance(own, str | list) else _called(item)
                for item, own in zip(value, plain, strict=True)
            ]
        )
    name = value.model if isinstance(value, BaseLLM) else getattr(value, "__name__", None)
    return str(name or type(value).__name__)
