"""Find the classes of results that methods return, even without annotations: in the module that defines the flow.

A file never causes an import. So a recorded object becomes one of its class again if the module of the flow has that
class, defined there or imported, or if a method has returned such an object in this process.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

from pydantic import BaseModel

from crewlite.agent.output import LiteAgentOutput
from crewlite.crew.output import CrewOutput
from crewlite.encoding import codec
from crewlite.encoding.codec import Json

_known = set[str]()
codec.declare(CrewOutput | LiteAgentOutput)


def declare_results(method: Callable[..., Any]) -> frozenset[type]:
    """Declare the classes that a method names in its annotations, and those that its module has; return the former."""
    named = codec.declare_hints(method)
    module = getattr(method, "__module__", "")
    if module in _known:
        return named
    _known.add(module)
    for value in list(getattr(method, "__globals__", {}).values()):
        if isinstance(value, type) and _is_data(value) and not value.__module__.startswith("crewlite."):
            codec.declare(value)
    return named


def encoded(value: Any) -> Json:
    """Encode what a method has returned, and declare its classes, so that it can be decoded here. Raises NotCodable."""
    coded = codec.encode_to_keep(value)  # before `_declare`, as this refuses a value that contains itself
    if type(value) not in codec.IMMUTABLE:
        _declare(value)
    return coded


def _declare(value: Any) -> None:
    if isinstance(value, list | tuple | set | frozenset | deque):
        for item in value:
            _declare(item)
    if isinstance(value, dict):
        for item in (*value, *value.values()):
            _declare(item)
    elif type(value) not in codec.IMMUTABLE:
        codec.declare(type(value))
        if _is_data(type(value)):  # prefer it to a class with the same name that was declared later
            codec.register(type(value))


def _is_data(kind: type) -> bool:
    return issubclass(kind, BaseModel | Enum) or dataclasses.is_dataclass(kind)
