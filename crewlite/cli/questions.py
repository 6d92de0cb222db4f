"""Print the questions that a run waits with: their text, the answers that fit, and the command that answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crewlite.state.run_history import Waiting


def told(waiting: Sequence[Waiting], line: Callable[[str], str]) -> list[str]:
    """Return the lines to print. `line` returns the command that answers the question at an address."""
    lines = []
    for question in waiting:
        first, *rest = question.question.strip().splitlines() or [""]
        lines += [f"{question.address}: {first}", *(f"  {text}" for text in rest)]
        wanted = f"{what_fits(question.schema)}"
        if question.until:
            wanted += f", until {question.until.strftime('%Y-%m-%dT%H:%M:%SZ')}"
        lines += [f"  wanted: {wanted}", f"  {line(question.address)}"]
    return lines


def what_fits(schema: Any) -> str:
    """Return in words which answers fit a schema; for a complex schema, the schema itself."""
    if schema is None:
        return "any text"
    if isinstance(schema.get("enum"), list):
        return f"one of {', '.join(str(choice) for choice in schema['enum'])}"
    if schema.get("type") == "boolean":
        return "yes or no"
    if "description" in schema and ({"type": "boolean"} in schema.get("anyOf", ()) or "pattern" in schema):
        return str(schema["description"])
    if schema.get("type") in ("integer", "number", "string") and not schema.keys() - {"type", "title"}:
        return {"integer": "a whole number", "number": "a number", "string": "any text"}[schema["type"]]
    return f"JSON that fits {json.dumps(schema)}"
