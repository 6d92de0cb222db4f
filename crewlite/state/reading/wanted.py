"""Which answers a question takes, in words."""

from __future__ import annotations

import json
from typing import Any


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
    if schema.get("type") in ("integer", "number", "string") and not schema.keys() - {"type", "title"}:
        return {"integer": "a whole number", "number": "a number", "string": "any text"}[schema["type"]]
    return f"JSON that fits {json.dumps(schema)}"
