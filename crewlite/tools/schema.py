"""The schema of a function's arguments, from its signature and docstring."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError

from crewlite.errors import ConfigError

_ARGS = re.compile(r"^\s*(?:Args|Arguments|Parameters):\s*$", re.MULTILINE)
_ENTRY = re.compile(r"^(\s+)(\w+)\s*(?:\([^)]*\))?:\s*(.+)$")


def arguments_model(name: str, fn: Callable[..., Any]) -> type[BaseModel]:
    """A pydantic model of the arguments of `fn`; unknown arguments are refused. Raises ConfigError."""
    try:
        hints = get_type_hints(_annotated(fn), include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"Tool {name!r} has a type that cannot be found ({error}): define it where the module can see it"
        ) from error
    described = argument_descriptions(inspect.getdoc(fn) or "")
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ConfigError(
                f"Tool {name!r} takes {parameter}; a model passes arguments by name, so give each one a name"
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        hint = hints.get(parameter.name, Any)
        fields[parameter.name] = (hint, Field(default, description=described.get(parameter.name)))
    try:
        with warnings.catch_warnings():  # an argument may well be called `json` or `copy`
            warnings.filterwarnings("ignore", message="Field name .* shadows an attribute")
            return create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)
    except (PydanticUserError, NameError) as error:
        problem = str(error).partition("\n")[0]
        raise ConfigError(f"Tool {name!r} has an argument that a model cannot pass: {problem}") from error


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
