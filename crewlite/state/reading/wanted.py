"""Which answers a question takes, in words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}/]")


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
