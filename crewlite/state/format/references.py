"""References: a text that an outcome shares with an earlier outcome is stored once, and referred to by address."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from crewlite.codec import Json


def by_reference(value: Json, references: Mapping[str, str]) -> Json:
    """Return `value`, each text that is a key of `references` replaced by a reference to the step that recorded it."""
    if isinstance(value, str):
        return {"$": "of", "v": references[value]} if value in references else value
    if isinstance(value, dict):
        return {key: by_reference(item, references) for key, item in value.items()}
    if isinstance(value, list):
        return [by_reference(item, references) for item in value]
    return value


def resolved(value: Json, text_at: Callable[[str], Json], only: Container[str] | None = None) -> Json:
    """Return `value` with its references replaced by texts; with `only`, just the references to these addresses."""
    if isinstance(value, dict):
        if value.get("$") == "of" and (only is None or value["v"] in only):
            return text_at(value["v"])
        return {key: resolved(item, text_at, only) for key, item in value.items()}
    if isinstance(value, list):
        return [resolved(item, text_at, only) for item in value]
    return value
