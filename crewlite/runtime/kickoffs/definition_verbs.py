"""Decorators for the verbs of definitions: callable on the class too, or with another function's parameters."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from crewlite.runtime.kickoffs.request import KickoffOptions, Request

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")


class on_class_too(Generic[P, R]):  # noqa: N801 - a decorator
    """Makes a verb callable on a definition and on its class. The verb receives the object it is called on."""

    def __init__(self, verb: Callable[Concatenate[Any, P], R]) -> None:
        self._verb = verb

    def __get__(self, instance: object, owner: type) -> Callable[P, R]:
        return MethodType(self._verb, owner if instance is None else instance)


class made_on_class_too(on_class_too[P, Any]):  # noqa: N801 - a decorator
    """As `on_class_too`, for a verb that returns a definition of the class."""

    def __get__(self, instance: D | None, owner: type[D]) -> Callable[P, D]:
        return super().__get__(instance, owner)


def signed(verb: Any, asked: Callable[..., Any]) -> Any:
    """Return a copy of the method `verb` with the signature of `asked`: `help()` and editors then list each option."""
    made = FunctionType(verb.__code__, verb.__globals__, verb.__name__, verb.__defaults__, verb.__closure__)
    made.__doc__, made.__module__, made.__qualname__ = verb.__doc__, verb.__module__, verb.__qualname__
    made.__annotations__ = dict(verb.__annotations__)
    returned = verb.__annotations__["return"]
    vars(made)["__signature__"] = inspect.Signature(_parameters(asked), return_annotation=returned)
    return made


@functools.cache  # six verbs of a class have the same
def _parameters(asked: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    parameters = list(inspect.signature(asked).parameters.values())
    if parameters[-1].annotation == "Unpack[KickoffOptions]":
        parameters[-1:] = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=getattr(_DEFAULTS, name),
                annotation=hint.__forward_arg__,
            )
            for name, hint in KickoffOptions.__annotations__.items()
        ]
    return parameters


_DEFAULTS = Request()
