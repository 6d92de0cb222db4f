"""What a crew's own callbacks make of its inputs and its result.

Each is a step, so a resume calls none again that has returned.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ConfigDict

from crewlite import codec, durable
from crewlite.crew.crew import Crew
from crewlite.crew.output import CrewOutput
from crewlite.errors import ConfigError, an
from crewlite.runtime.callbacks import callback_step, called, name_of
from crewlite.state.format.record import Record

_BEFORE, _AFTER = "before_kickoff", "after_kickoff"
CHANGEABLE = ("raw", "json_dict")
"""Fields of a result that a callback may change, as they are plain data."""


async def prepared(crew: Crew, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs as the before_kickoff_callbacks make them, each given what the one before it returned."""
    made = dict(inputs)
    for callback in crew.before_kickoff_callbacks:
        made = await _prepare(callback, made)
    return made


def recorded_inputs(crew: Crew, record: Record) -> dict[str, Any] | None:
    """The prepared inputs of a run that has come so far; None of one that has not."""
    for number in range(len(crew.before_kickoff_callbacks), 0, -1):
        address = f"callback:{_BEFORE}" + (f"#{number}" if number > 1 else "")
        if address in record.outcomes:
            found: dict[str, Any] = codec.decode(record.value(address))
            return found
    return None


async def finished(crew: Crew, result: CrewOutput) -> dict[str, Any]:
    """What the after_kickoff_callbacks change of a result, by field."""
    changed: dict[str, Any] = {}
    for callback in crew.after_kickoff_callbacks:
        changed |= await _finish(callback, result.model_copy(update=changed))
    return changed


async def _prepare(callback: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Any]:
    async def act() -> dict[str, Any]:
        given = dict(inputs)
        made = await called(callback, given)
        if made is None:  # it has changed what it was given
            return given
        if not isinstance(made, Mapping) or not all(isinstance(name, str) for name in made):
            raise ConfigError(f"before_kickoff callback {name_of(callback)!r} returned {made!r}; wanted the inputs")
        return dict(made)

    step = callback_step(
        callback,
        act,
        codec.known(inputs),
        name=_BEFORE,
        drift="rerun",
        encode=codec.encode,
        decode=codec.decode,
        round_trip=True,
    )
    made: dict[str, Any] = await durable.scope().step(step)
    return made


async def _finish(callback: Callable[..., Any], result: CrewOutput) -> dict[str, Any]:
    async def act() -> dict[str, Any]:
        draft = _Draft.model_construct(**copy.deepcopy(dict(result)))
        made = await called(callback, draft)
        return _changes(result, draft if made is None else made, name_of(callback))

    question = [[codec.digest(output.raw) for output in result.tasks_output], codec.known(_plain(result))]
    step = callback_step(
        callback,
        act,
        question,
        name=_AFTER,
        drift="rerun",
        encode=codec.encode,
        decode=codec.decode,
        round_trip=True,
    )
    changed: dict[str, Any] = await durable.scope().step(step)
    return changed


class _Draft(CrewOutput):
    """A result that a callback may set fields of."""

    model_config = ConfigDict(frozen=False)


def _changes(result: CrewOutput, made: object, callback: str) -> dict[str, Any]:
    """What a callback has changed. Raises ConfigError for what it may not change."""
    said = f"after_kickoff callback {callback!r}"
    if not isinstance(made, CrewOutput):
        raise ConfigError(f"{said} returned {an(type(made).__name__)}; wanted the CrewOutput, or None")
    changed = {name: value for name, value in dict(made).items() if value != getattr(result, name)}
    if fixed := sorted(changed.keys() - CHANGEABLE):
        raise ConfigError(
            f"{said} changed {', '.join(fixed)} of the result; it may change {' and '.join(CHANGEABLE)}, and the rest "
            f"tells what the tasks did"
        )
    if not isinstance(made.raw, str) or not isinstance(made.json_dict, dict | None):
        raise ConfigError(
            f"{said} made the result's raw {made.raw!r} and json_dict {made.json_dict!r}; wanted text, "
            f"and a dict or None"
        )
    return changed


def _plain(result: CrewOutput) -> dict[str, Any]:
    return {name: getattr(result, name) for name in CHANGEABLE}
