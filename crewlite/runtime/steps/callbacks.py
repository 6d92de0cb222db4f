"""Callbacks of the user are called as recorded steps: once one has returned, no resume calls it again."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from types import CodeType
from typing import Any, TypeVar

from crewlite import durable, kinds
from crewlite.concurrency import background
from crewlite.definitions.callables import is_async, shape
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.encoding.codec import Json
from crewlite.errors import ConfigError
from crewlite.events.family import FamilyEvents
from crewlite.kinds import Kind
from crewlite.step_parts import INHERITED
from crewlite.tools.naming import address_name

T = TypeVar("T")
_TOLD_APART = 6  # hexadecimal digits of a digest that a name shows


async def call_back(callback: Callable[..., Any], argument: Any, question: Json, *, role: str = "") -> None:
    """Call a callback with one argument, as a recorded step, and ignore its result.

    `question`: the question of the step; if it changes, the callback is called again. `role`: as in `callback_step`.
    """

    async def act() -> None:
        await called(callback, argument)

    await durable.scope().step(callback_step(callback, act, question, role=role))


async def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the user, a blocking one in a thread, and return its result; await an awaitable result.

    Raises ConfigError for a generator, none of whose code would run.
    """
    if is_async(function):
        return await background.guarded(function(*arguments))
    result = await background.blocking(function, *arguments)
    if isinstance(result, Generator | AsyncGenerator):
        raise ConfigError(f"{name_of(function)} is a generator, so none of its code has run: let it return, not yield")
    return await background.guarded(result) if inspect.isawaitable(result) else result


def callback_step(
    callback: Callable[..., Any],
    work: Callable[[], Any],
    question: Json,
    *,
    kind: Kind = kinds.CALLBACK,
    role: str = "",
    name: str | None = None,
) -> Step[Any]:
    """Build the step that calls a callback. Its name is `name`, or else `role.function`.

    By this name, the outcome of one function never answers for another one, nor for the same one in another role.
    """
    title = _address_name(callback)
    name = name or (f"{role}.{title}" if role else title)
    label = None if name == title else name_of(callback)
    return Step(
        kind=kind,
        name=name,
        work=work,
        question=question,
        events=FamilyEvents.plain(callback, kind, name, label),
        drift="rerun",
        effect="idempotent",
        policies=INHERITED,
        label=label,
    )


def name_of(function: object) -> str:
    """Return the name of a function for messages: `lambda` for a lambda, the class for a callable object.

    A partial has the name of its function, unless it has a name of its own, as methods of a CrewBase class do.
    """
    while isinstance(function, functools.partial) and "__name__" not in vars(function):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__)).strip("<>")


def callback_address(callback: Callable[..., Any], role: str, number: int) -> str:
    """Return the address of a crew's callback: the `number`-th with this name and role, from 1."""
    first = f"{kinds.CALLBACK.name}:{role}.{_address_name(callback)}"
    return first if number == 1 else f"{first}#{number}"


def _address_name(function: object) -> str:
    """Return the name of a function for addresses; a lambda's ends with a digest of its code."""
    name, code = name_of(function), getattr(function, "__code__", None)
    if name == "lambda" and isinstance(code, CodeType):
        return f"lambda-{codec.digest(shape(code))[:_TOLD_APART]}"
    return address_name(name)
