"""Recorded values as text for people, and in words which answers a question takes. No class of a value is needed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from crewlite import kinds
from crewlite.encoding.codec import Json
from crewlite.state.format.fields import are_pairs

_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}/]")


def said(kind: kinds.Kind, value: Json) -> str:
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


def what_fits(schema: Any) -> str:
    """Return in words which answers fit a JSON schema, None for any text; for a complex schema, the schema itself."""
    if schema is None:
        return "any text"
    if isinstance(schema.get("enum"), list):
        return f"one of {', '.join(str(choice) for choice in schema['enum'])}"
    if schema.get("type") == "boolean":
        return "yes or no"
    if "description" in schema and ({"type": "boolean"} in schema.get("anyOf", ()) or "pattern" in schema):
        return str(schema["description"])
    if schema.get("type") in ("integer", "number", "string") and not schema.keys() - {"type", "title", "description"}:
        plain = {"integer": "a whole number", "number": "a number", "string": "any text"}[schema["type"]]
        return str(schema.get("description", plain))
    return f"JSON that fits {json.dumps(schema)}"


def begins_with(names: Iterable[str]) -> str:
    """Return the pattern of texts that are one of these names, or begin with one and a colon, in any case."""
    return rf"^\s*({'|'.join(''.join(map(_any_case, name.strip())) for name in names)})\s*(:|$)"


def _any_case(letter: str) -> str:
    """Return the pattern of a letter in any case. Patterns of JSON schemas have no flags."""
    forms = dict.fromkeys((letter.upper(), letter, letter.lower(), letter.casefold()))
    if len(forms) == 1:
        return _SPECIAL.sub(r"\\\g<0>", letter)
    return f"({'|'.join(forms)})" if any(len(form) > 1 for form in forms) else f"[{''.join(forms)}]"
