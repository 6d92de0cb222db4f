"""The model of a tool's arguments: of a function's signature and docstring, or of a JSON schema."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable, Mapping
from types import GenericAlias, new_class
from typing import Annotated, Any, Literal, Union, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.errors import PydanticUserError

from crewlite.errors import ConfigError

_ARGS = re.compile(r"^\s*(?:Args|Arguments|Parameters):\s*$", re.MULTILINE)
_ENTRY = re.compile(r"^(\s+)(\w+)\s*(?:\([^)]*\))?:\s*(.+)$")


def arguments_model(name: str, fn: Callable[..., Any]) -> type[BaseModel]:
    """A pydantic model of the arguments of `fn`; only `**kwargs` take unknown ones. Raises ConfigError."""
    try:
        hints = get_type_hints(_annotated(fn), include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"Tool {name!r} has a type that cannot be found ({error}): define or import it at the top level of the "
            f"tool's module"
        ) from error
    described = argument_descriptions(inspect.getdoc(fn) or "")
    fields: dict[str, Any] = {}
    any_more = takes_any(fn)
    more: tuple[Any, str | None] | None = None
    for parameter in inspect.signature(fn).parameters.values():
        if any_more and parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            if parameter.kind is parameter.VAR_KEYWORD:
                more = hints.get(parameter.name, Any), described.get(parameter.name)
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise ConfigError(
                f"Tool {name!r} takes {parameter}; a model passes arguments by name, so give each one a name"
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        hint = hints.get(parameter.name, Any)
        fields[parameter.name] = (hint, Field(default, description=described.get(parameter.name)))
    try:
        with warnings.catch_warnings():  # an argument may well be called `json` or `copy`
            warnings.filterwarnings("ignore", message="Field name .* shadows an attribute")
            return create_model(f"{name}_arguments", __base__=_taking(more), **fields)
    except (PydanticUserError, NameError) as error:
        hints = {argument: field[0] for argument, field in fields.items()}
        raise cannot_pass(name, hints, str(error).partition("\n")[0]) from None


def _taking(more: tuple[Any, str | None] | None) -> type[BaseModel]:
    """Return the base of a model that takes unknown arguments of this type and description; None: that takes none."""
    if more is None or more == (Any, None):
        return create_model("Arguments", __config__=ConfigDict(extra="allow" if more else "forbid"))
    each: Any = Annotated[more[0], Field(description=more[1])]
    held = {"__annotations__": {"__pydantic_extra__": dict[str, each]}, "model_config": ConfigDict(extra="allow")}
    made: type[BaseModel] = new_class("Arguments", (BaseModel,), exec_body=lambda names: names.update(held))
    return made


def takes_any(fn: Callable[..., Any]) -> bool:
    """Return whether a function has `**kwargs`."""
    return any(one.kind is one.VAR_KEYWORD for one in inspect.signature(fn).parameters.values())


def cannot_pass(name: str, hints: Mapping[str, Any], problem: str) -> ConfigError:
    """The error for a tool with arguments that have no JSON schema. `problem`: what is wrong if each has one."""
    unfit = [f"{argument}: {getattr(hint, '__name__', hint)}" for argument, hint in hints.items() if not _fits(hint)]
    if not unfit:
        return ConfigError(f"Tool {name!r} has an argument that a model cannot pass: {problem}")
    return ConfigError(
        f"Tool {name!r} takes {', '.join(unfit)}, which a model cannot pass; wanted types that JSON has, or classes of "
        f"pydantic. What your program provides itself, such as a client, belongs in a field of a BaseTool"
    )


def _fits(hint: Any) -> bool:
    try:
        TypeAdapter(hint).json_schema()
    except PydanticUserError:
        return False
    return True


def _annotated(fn: Any) -> Any:
    """Where the annotations of a callable are found."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(getattr(fn, "__func__", fn))
    return fn if inspect.isroutine(fn) else type(fn).__call__


def summary(docstring: str) -> str:
    """What a docstring says before its list of arguments."""
    match = _ARGS.search(docstring)
    return " ".join((docstring[: match.start()] if match else docstring).split())


def argument_descriptions(docstring: str) -> dict[str, str]:
    """What a docstring (Google style) says of each argument."""
    match = _ARGS.search(docstring)
    if not match:
        return {}
    found: dict[str, str] = {}
    last = ""
    for line in docstring[match.end() :].strip("\n").splitlines():
        if not line.strip():
            break
        if entry := _ENTRY.match(line):
            last = entry[2]
            found[last] = entry[3].strip()
        elif last and line.startswith(" "):
            found[last] += f" {line.strip()}"
        else:
            break
    return found


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
    properties, required = schema.get("properties") or {}, schema.get("required") or ()
    if schema.get("type", "object") != "object" or not isinstance(properties, Mapping):
        raise ConfigError(
            f"Tool {name!r} takes {schema.get('type')!r} by its schema; wanted an object with properties, as a model "
            f"passes arguments by name"
        )
    open_to_more = schema.get("additionalProperties", "properties" not in schema)
    fields: dict[str, Any] = {
        f"a{number}": (_type(item), Field(... if key in required else None, alias=key))
        for number, (key, item) in enumerate(properties.items())
    }  # numbered, as a key may be no name that Python knows

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="allow" if open_to_more else "forbid")

        @classmethod
        def model_json_schema(cls, *args: Any, **how: Any) -> dict[str, Any]:
            """Return the schema as it was given: pydantic would not know the definitions that it refers to."""
            return {**schema, "type": "object", "properties": dict(properties)}

    return create_model(f"{name}_arguments", __base__=Arguments, **fields)


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
        return GenericAlias(list, (_type(schema["items"]),))
    return _PLAIN.get(str(kinds), Any)
