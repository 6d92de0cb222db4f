"""The settings of a recorded definition under flat names, such as `agents.Writer.llm`, so that two can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

from crewlite.codec import Json, JsonObject

_INLINE = ("live", "models")
"""Keys whose content counts as settings of the definition itself: names of live objects, and settings of its models."""


Settings = tuple[dict[str, Json], dict[str, Json]]
"""(the settings of models, all other settings), each by name."""


def settings_of(definition: JsonObject) -> Settings:
    """Return the settings of a definition."""
    found: dict[str, Json] = {}
    for parts, value in _flat(definition, ()):
        found.setdefault(".".join(parts), value)
    for name in [name for name in found if name.endswith(".model") and name.removesuffix(".model") in found]:
        del found[name]  # the model is named already
    models = {name: value for name, value in found.items() if _is_of_model(name)}
    return models, {name: value for name, value in found.items() if name not in models}


def _flat(value: Json, name: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Json]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, name if key in _INLINE else (*name, key))
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        names: set[str] = set()
        for number, item in enumerate(value, 1):
            names.add(own := _named(item, number, names))
            yield from _flat(item, (*name, own))
    else:
        yield name, value


def _named(item: Mapping[str, Json], number: int, taken: set[str]) -> str:
    """Return a name for an agent or a task in a list that is not in `taken`: a second Editor is Editor#2."""
    own = str(item.get("address") or item.get("role") or number).removeprefix("task:")
    return own if own not in taken else next(name for n in count(2) if (name := f"{own}#{n}") not in taken)


def _is_of_model(name: str) -> bool:
    return any(part == "model" or part.endswith("llm") for part in name.split("."))
