"""Arguments described by a JSON schema, as tools of other frameworks and services have them.

The model is shown the schema as it is. What is checked here is what a call mostly gets wrong: names, and plain types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Field, create_model

from crewlite.errors import ConfigError

_PLAIN = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "object": dict[str, Any],
    "array": list[Any],
    "null": None,
}


def model_of(name: str, schema: Mapping[str, Any]) -> type[BaseModel]:
    """A pydantic model of the arguments that a JSON schema describes. Raises ConfigError if it describes no object."""
    properties = schema.get("properties", {})
    if schema.get("type", "object") != "object" or not isinstance(properties, Mapping):
        raise ConfigError(
            f"Tool {name!r} takes {schema.get('type')!r} by its schema; wanted an object with properties, as a model "
            f"passes arguments by name"
        )
    shown = {"type": "object", "properties": {}, **schema}
    open_to_more = bool(schema.get("additionalProperties", "properties" not in schema))
    required = schema.get("required", ())
    fields: dict[str, Any] = {
        f"a{number}": (_type(item), Field(... if key in required else None, alias=key))
        for number, (key, item) in enumerate(properties.items())
    }  # numbered, as a key may be no name that Python knows

    def as_given(made: dict[str, Any]) -> None:
        made.clear()
        made.update(shown)

    config = ConfigDict(extra="allow" if open_to_more else "forbid", json_schema_extra=as_given)
    return create_model(f"{name}_arguments", __config__=config, **fields)


def _type(schema: object) -> Any:
    """The Python type of a property; Any where it takes more than a type to say."""
    if not isinstance(schema, Mapping):
        return Any
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        plain = values and all(value is None or isinstance(value, str | int | bool) for value in values)
        return Literal[tuple(values)] if plain else Any
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return Union[tuple(_type({**schema, "type": kind}) for kind in kinds)] if kinds else Any  # noqa: UP007 - as many as there are
    if kinds == "array" and "items" in schema:
        return list[_type(schema["items"])]  # type: ignore[misc]
    return _PLAIN.get(str(kinds), Any)
