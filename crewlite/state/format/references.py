"""Texts that an outcome shares with those it was made from: recorded once, and referred to by their address."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from crewlite.codec import Json


def by_reference(value: Json, references: Mapping[str, str]) -> Json:
    """`value` with each text that is recorded elsewhere replaced by where that is."""
    if not references:
        return value
    if isinstance(value, str):
        return {"$": "of", "v": references[value]} if value in references else value
    if isinstance(value, dict):
        return {key: by_reference(item, references) for key, item in value.items()}
    if isinstance(value, list):
        return [by_reference(item, references) for item in value]
    return value


def resolved(value: Json, text_at: Callable[[str], Json], only: Container[str] | None = None) -> Json:
    """`value` with its texts instead of references; with `only`, no others than those to these addresses."""
    if isinstance(value, dict):
        if value.get("$") == "of" and (only is None or value["v"] in only):
            return text_at(value["v"])
        return {key: resolved(item, text_at, only) for key, item in value.items()}
    if isinstance(value, list):
        return [resolved(item, text_at, only) for item in value]
    return value
