"""The form that an answer of a person must have: a type, or a list of choices."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter


def adapter_of(schema: Any) -> TypeAdapter[Any]:
    """Build the validator of answers. Raises TypeError, ValueError or an error of pydantic's for an unusable schema."""
    if schema is None:
        return TypeAdapter(str)
    if isinstance(schema, str | bytes | dict | BaseModel):
        raise TypeError("this is a value")
    if isinstance(schema, list | tuple):
        if not schema:
            raise ValueError("there is nothing to choose from")
        schema = Literal[tuple(schema)]
    return TypeAdapter(schema)


def choices_shown(schema: Any) -> str:
    """Return the possible answers as a hint, such as "[y/n] "; "" if the schema lists none."""
    if schema is None:
        return ""
    if {"type": "boolean"} in schema.get("anyOf", ()) and "description" in schema:
        return f"[{schema['description']}] "
    if schema.get("type") == "boolean":
        return "[y/n] "
    known = listed(schema)
    return f"[{'/'.join(map(str, known))}] " if known else ""


def listed(schema: Any) -> list[Any]:
    """Return the answers that a JSON schema lists; [] if it lists none."""
    known = schema or {}
    return [*known.get("enum", ()), *([known["const"]] if "const" in known else ())]
