"""Kick off one definition for many inputs, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from crewlite.durable import together
from crewlite.errors import ConfigError
from crewlite.permits import width
from crewlite.refs import as_run_id
from crewlite.runtime.engine import kickoff
from crewlite.runtime.request import Request
from crewlite.runtime.runnable import Runnable
from crewlite.runtime.sync_bridge import run_sync
from crewlite.secrets import Secrets

R = TypeVar("R")
_SHOWN = 200  # characters of the inputs that a note shows


def kickoff_for_each(definition: Runnable[R], inputs: Sequence[Mapping[str, Any]], **how: Any) -> list[R | Exception]:
    """Do the same as `akickoff_for_each`, and block until all runs have ended."""
    work = partial(akickoff_for_each, definition, inputs, **how)
    return run_sync("kickoff_for_each", work, lambda: "Call kickoff_for_each again with the same run_id.")


async def akickoff_for_each(
    definition: Runnable[R],
    inputs: Sequence[Mapping[str, Any]],
    *,
    run_id: str | UUID | None,
    max_concurrency: int | None,
    auto_approve: bool | None,
    return_exceptions: bool,
) -> list[R | Exception]:
    """Kick off the definition once for each of `inputs`, at most `max_concurrency` at once; return results in order.

    When all have ended, raises the first failure in this order, with a note that names its inputs, unless failures are
    to be returned in the places of their results.
    """
    if definition.bound_at is not None:
        kind = definition.run_kind
        raise ConfigError(
            f"This {kind} is bound to one run, but kickoff_for_each starts several: "
            f"call {kind}.bound_to(None).kickoff_for_each(...)"
        )
    if isinstance(inputs, Mapping) or not isinstance(inputs, Iterable):
        found = "one set of inputs" if isinstance(inputs, Mapping) else repr(inputs)
        raise ConfigError(f"inputs is {found}; wanted a list of them, one for each run: kickoff_for_each([{{...}}])")
    name = None if run_id is None else as_run_id(run_id)
    requests = [
        Request(each, f"{name}.{n}" if name else None, auto_approve=auto_approve) for n, each in enumerate(inputs)
    ]
    if max_concurrency is not None and (type(max_concurrency) is not int or max_concurrency < 1):
        raise ConfigError(f"max_concurrency is {max_concurrency!r}; wanted a whole number, 1 or more")
    free = asyncio.Semaphore(max_concurrency or width())

    async def in_turn(number: int, request: Request) -> tuple[R | Exception]:
        """Return the result in a tuple, so that a failure which is returned is not taken for one that was raised."""
        async with free:
            try:
                return (await kickoff(definition, request),)
            except Exception as error:
                given = Secrets.of(*definition.secret_sources()).mask(repr(request.inputs))
                shown = given if len(given) <= _SHOWN else f"{given[:_SHOWN]}..."
                error.add_note(f"kickoff_for_each: this was inputs[{number}] of {len(requests)}: {shown}")
                if return_exceptions:
                    return (error,)
                raise

    ended = await together([in_turn(number, request) for number, request in enumerate(requests)])
    return [result for (result,) in ended]
