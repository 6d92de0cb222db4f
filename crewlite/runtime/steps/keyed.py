"""`with keyed(...)`: readable addresses for steps that are requested in parallel: `crew:writers#[2]`."""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar, Token, copy_context
from typing import Any, NamedTuple

from crewlite import durable
from crewlite.concurrency import background, own_threads
from crewlite.durable import Scope
from crewlite.errors import ConfigError
from crewlite.runtime.steps.frame import Frame
from crewlite.state.format.addresses import can_be_name

_LONGEST = 100  # characters of a key


class _Held(NamedTuple):
    """The key of a block, and where it applies: in this scope and, if there is a task, in this task only."""

    scope: Scope
    key: str
    task: asyncio.Task[Any] | None


_held: ContextVar[_Held | None] = ContextVar("crewlite_key", default=None)


class keyed:  # noqa: N801 - a context manager
    """Name the steps, crews, agents and flows that the block requests by a key: `step:fetch#[alpha]`.

    For coroutines and threads of your own that run in parallel. Without a key, the addresses of their steps hold a
    digest: `step:fetch#3f9a1c07d2be`. With a key, an address holds the key and the order of the request in the block.
    So the key must be the same in every kickoff, and be used once in a flow, method or step. Tasks that begin inside
    the block are outside of it. Outside a run it does nothing.

    ```python
    from crewlite.flow import keyed


    async def write(number, writers):
        with keyed(number):
            return await writers.akickoff({"chapter": number})
    ```

    Raises ConfigError for a key that cannot be part of an address, or that was used before.
    """

    __slots__ = ("_key", "_token")

    def __init__(self, key: str | int) -> None:
        text = str(key)
        fits = can_be_name(text) and text.isprintable() and not set("[]") & set(text) and len(text) <= _LONGEST
        if isinstance(key, bool) or not isinstance(key, str | int) or not fits:
            raise ConfigError(
                f"keyed({key!r}): wanted a number, or a text of 1 to {_LONGEST} characters without / # ! [ and ]"
            )
        self._key = text
        self._token: Token[_Held | None] | None = None

    def __enter__(self) -> None:
        scope = durable.scope()
        if not isinstance(scope, Frame):
            return
        if not scope.children.beside_here().takes_key(self._key):
            where = scope.address or scope.origin.name
            raise ConfigError(f"keyed({self._key!r}) was used before in {where}: give each block a key of its own")
        self._token = _held.set(_Held(scope, self._key, _task_here()))

    def __exit__(self, *raised: object) -> None:
        if self._token:
            _held.reset(self._token)


def to_another_loop() -> Context:
    """Return a copy of the context variables for a request that another event loop takes.

    It carries the key of the enclosing block and the identity of the code that makes the request.
    """
    context, held, scope = copy_context(), _held.get(), durable.scope()
    if held:
        context.run(_held.set, held._replace(task=None) if held.task in (None, _task_here()) else None)
    if not isinstance(scope, Frame):
        return context
    loop, foreign = background.running_loop(), background.in_foreign_thread()
    if loop is None and foreign:
        own_threads.note_foreign(context, scope)
    elif loop is not None and scope.is_beside:
        if foreign and loop is not scope.loop and not background.on_loop_thread():
            own_threads.note_call(scope)
        scope.children.beside_here().note_asker(context)
    return context


def key_here(scope: Scope) -> str | None:
    """Return the key of the block in which the running code requests steps of `scope`; None outside of a block."""
    held = _held.get()
    if held is None or held.scope is not scope or (held.task and held.task is not asyncio.current_task()):
        return None
    return held.key


def _task_here() -> asyncio.Task[Any] | None:
    """Return the running task; None in a thread without an event loop."""
    return asyncio.current_task() if background.running_loop() else None
