"""Functions of users that a run calls at its joints, as steps: once one has returned, no later life calls it again."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from crewlite import background, durable, kinds
from crewlite.codec import Json
from crewlite.durable import Drift, Step
from crewlite.kinds import Kind
from crewlite.runtime.plain_voice import PlainVoice
from crewlite.tools.base import is_async

T = TypeVar("T")


async def call_back(callback: Callable[..., Any], argument: Any, question: Json) -> None:
    """Have a callback called with one argument, whatever it returns."""

    async def act() -> None:
        await called(callback, argument)

    await durable.scope().step(callback_step(callback, act, question))


async def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the user's, sync (in a thread) or async, and await what it returns where that can be."""
    if is_async(function):
        return await function(*arguments)
    result = await background.blocking(function, *arguments)
    return await result if inspect.isawaitable(result) else result


def callback_step(
    callback: Callable[..., Any],
    work: Callable[[], Any],
    question: Json,
    *,
    kind: Kind = kinds.CALLBACK,
    name: str | None = None,
    drift: Drift = "diverge",
    encode: Callable[[Any], Json] = durable.same,
    decode: Callable[[Json], Any] = durable.same,
    round_trip: bool = False,
) -> Step[Any]:
    """The step in which a callback is called. It is named after the function, unless it has a `name` of its own."""
    title = name_of(callback)
    label = title if name else None
    return Step(
        kind=kind,
        name=name or title,
        work=work,
        question=question,
        voice=PlainVoice(callback, kind, name or title, label),
        encode=encode,
        decode=decode,
        round_trip=round_trip,
        drift=drift,
        effect="idempotent",
        inherits=True,
        label=label,
    )


def name_of(function: object) -> str:
    """What a function is called: `lambda` if it has no name, its class if it is an object that can be called."""
    return str(getattr(function, "__name__", type(function).__name__)).strip("<>")
