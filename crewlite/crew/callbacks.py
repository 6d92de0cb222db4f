"""Call a crew's before_kickoff and after_kickoff callbacks, which may change its inputs and its result.

Each call is a recorded step, named after its function, and its arguments are what the step is asked. So a resume does
not repeat a call that has returned, if its arguments are the same, even if the order of the callbacks has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ConfigDict

from crewlite import durable, kinds
from crewlite.agent.input_files import FILES
from crewlite.crew.crew import Crew
from crewlite.crew.output import CrewOutput
from crewlite.encoding import codec
from crewlite.encoding.comparable import comparable, copied_apart
from crewlite.errors import ConfigError
from crewlite.runtime.steps.callbacks import callback_address, callback_step, called, name_of
from crewlite.state.format.earlier import inputs_at
from crewlite.state.format.record import Record
from crewlite.texts.wording import what_is

_BEFORE, _AFTER = "before_kickoff", "after_kickoff"
CHANGEABLE = ("raw", "json_dict")
"""Fields of a result that a callback may change, as they are plain data."""


async def prepared(crew: Crew, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Call the before_kickoff_callbacks, each with the result of the one before it; return the resulting inputs."""
    made = {name: value for name, value in inputs.items() if name != FILES}
    for callback in crew.before_kickoff_callbacks:
        made = await _prepare(callback, made)
    return made | _files_in(inputs)


def recorded_inputs(crew: Crew, record: Record) -> dict[str, Any] | None:
    """Return the inputs that the callbacks of a recorded run have prepared; None if they had not all returned.

    If the last callback has been replaced since, these are the last inputs that any callback has returned.
    """
    if not crew.before_kickoff_callbacks:
        return None
    *others, last = crew.before_kickoff_callbacks
    first = callback_address(last, _BEFORE, 1)
    same = sum(callback_address(other, _BEFORE, 1) == first for other in others)
    address = callback_address(last, _BEFORE, same + 1)
    if address not in record.outcomes:
        made = [at for at in record.outcomes if at.startswith(f"{kinds.CALLBACK}:{_BEFORE}.")]
        address = max(made, key=lambda at: record.outcomes[at].seq, default="")
    if not address:
        return None
    found: dict[str, Any] = codec.decode(record.value(address))
    return found | _files_in(codec.decode(inputs_at(record, address)))


def _files_in(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the inputs that is the files, which callbacks are not given."""
    return {FILES: inputs[FILES]} if FILES in inputs else {}


async def finished(crew: Crew, result: CrewOutput) -> dict[str, Any]:
    """Call the after_kickoff_callbacks; return the fields of the result that they change, with their new values."""
    changed: dict[str, Any] = {}
    for callback in crew.after_kickoff_callbacks:
        changed |= await _finish(callback, result.model_copy(update=changed))
    return changed


async def _prepare(callback: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Any]:
    async def act() -> dict[str, Any]:
        given: dict[str, Any] = copied_apart(inputs)  # other code uses the values too
        made = await called(callback, given)
        if made is None:  # it has changed what it was given
            return given
        if not isinstance(made, Mapping) or not all(isinstance(name, str) for name in made):
            called_back = f"before_kickoff callback {name_of(callback)!r}"
            raise ConfigError(f"{called_back} returned {made!r}; wanted a dict of inputs")
        return dict(made)

    return await _recorded(callback, act, comparable(inputs), _BEFORE)


async def _finish(callback: Callable[..., Any], result: CrewOutput) -> dict[str, Any]:
    async def act() -> dict[str, Any]:
        draft = _Draft.model_construct(**copied_apart(dict(result)))
        made = await called(callback, draft)
        if isinstance(made, str):
            draft.raw, made = made, draft
        return _changes(result, draft if made is None else made, name_of(callback))

    changeable = {name: getattr(result, name) for name in CHANGEABLE}
    question = [[codec.digest(output.raw) for output in result.tasks_output], comparable(changeable)]
    return await _recorded(callback, act, question, _AFTER)


async def _recorded(callback: Callable[..., Any], act: Callable[[], Any], question: Any, role: str) -> dict[str, Any]:
    """Call a callback with `act`, in a step that records the values which it returns by name."""
    step = callback_step(callback, act, question, role=role)
    step = replace(step, encode=codec.encode_to_keep, decode=codec.decode, round_trip=True)
    made: dict[str, Any] = await durable.scope().step(step)
    return made


class _Draft(CrewOutput):
    """A copy of a result: callbacks may set its fields."""

    model_config = ConfigDict(frozen=False)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in CrewOutput.model_fields:
            raise ConfigError(_wrongly(f"set {name!r}"))
        super().__setattr__(name, value)


def _changes(result: CrewOutput, made: object, callback: str) -> dict[str, Any]:
    """Return the fields that a callback has changed. Raises ConfigError for one that it may not change."""
    said = f"after_kickoff callback {callback!r}"
    if not isinstance(made, CrewOutput):
        raise ConfigError(f"{said} returned {what_is(made)}; wanted the CrewOutput, its text, or None")
    changed = {name: value for name, value in dict(made).items() if value != getattr(result, name)}
    if fixed := sorted(changed.keys() - CHANGEABLE):
        raise ConfigError(f"{said} {_wrongly('changed ' + ', '.join(fixed))}")
    if not isinstance(made.raw, str) or not isinstance(made.json_dict, dict | None):
        raise ConfigError(
            f"{said} set the result's raw to {made.raw!r} and json_dict to {made.json_dict!r}; wanted "
            f"a text, and a dict or None"
        )
    return changed


def _wrongly(changed: str) -> str:
    return f"{changed} of the result; it may change {' and '.join(CHANGEABLE)}, and the rest tells what the tasks did"
