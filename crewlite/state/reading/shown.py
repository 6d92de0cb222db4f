"""Recorded values as text for people. No class of a value is needed."""

from __future__ import annotations

import json

from crewlite import kinds
from crewlite.encoding.codec import Json
from crewlite.state.format.fields import are_pairs


def outcome_as_text(kind: kinds.Kind, value: Json) -> str:
    """Return the outcome of a step as text: of a model call the reply and the calls it requests, of a task its text."""
    given = kind.given(value)
    speaks = kind.asks_model or kind.is_call or kind.worker == "model" or kind is kinds.TURN
    if not speaks or not isinstance(given, dict):
        return as_text(plain(given))
    text = given.get("raw", given.get("text"))
    calls = [f"{call[0]}({json.dumps(plain(call[1]), ensure_ascii=False)})" for call in given.get("tool_calls", ())]
    return "\n".join([*([as_text(plain(text))] if text or not calls else []), *calls])


def plain(data: Json) -> Json:
    """Return an encoded value as plain data: an instance of a class becomes a dict of its fields, a date its text."""
    if isinstance(data, list):
        return [plain(item) for item in data]
    if not isinstance(data, dict):
        return data
    if (tag := data.get("$")) is None:
        return {name: plain(item) for name, item in data.items()}
    value = data.get("v")
    if tag == "dict" and are_pairs(value):
        return {as_text(plain(name)): plain(item) for name, item in value}
    return "".join(map(str, value)) if tag == "str" and isinstance(value, list) else plain(value)


def as_text(value: Json) -> str:
    """Return plain data as text: a text as it is, other data as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
