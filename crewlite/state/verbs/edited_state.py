"""Edits of the state in a fork: a field gets another value, as if a finished step had set it last."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

from crewlite import kinds
from crewlite.encoding import codec
from crewlite.encoding.codec import Json
from crewlite.errors import ConfigError, meant
from crewlite.state.format.commit import StepRecord
from crewlite.state.format.kept import is_outermost
from crewlite.state.format.operations import ABSENT, ITEMS, Operation, applied
from crewlite.state.format.outcome import Outcome
from crewlite.state.format.record import Record
from crewlite.state.reading.fitting import Typed, typed
from crewlite.state.verbs import edited_values
from crewlite.texts.secrets import Secrets

_MARK = ".state."
OUTCOME = ""
"""Stands in place of the name of a field for the outcome itself."""


class Editable(Protocol):
    """A definition that can check the edits of a fork and convert them."""

    def check_edit(self, record: Record, address: str, value: Json) -> None:
        """Raise ConfigError if the definition cannot use `value`, recorded, as the outcome of a step of this run."""

    def as_field(self, record: Record, name: str, value: Any) -> Any:
        """Convert a value for the field `name` of this run's state. Raises ConfigError if it does not fit."""


def split(key: str, known: Collection[str]) -> tuple[str, str]:
    """Split the key of an edit into the address of a step and the name of a field: `method:plan.state.tone`.

    The name is OUTCOME if the key is an address alone. `known`: the run's addresses, which may contain ".state.", too.
    """
    parts = [] if key in known or key.endswith(_MARK) else key.split(_MARK)
    ways = [(_MARK.join(parts[:n]), _MARK.join(parts[n:])) for n in range(1, len(parts))]
    return next((way for way in ways if way[0] in known), ways[0] if ways else (key, OUTCOME))


def operations(
    record: Record,
    outcome: Outcome,
    fields: Mapping[str, Any],
    secrets: Secrets,
    definition: Editable | None,
) -> list[Operation]:
    """Return what an edit of a step adds to its changes of the state: each of the `fields` gets its value.

    Raises ConfigError for a field that the state does not have, and for a value that does not fit.
    """
    address = outcome.address
    own = is_outermost(address)
    known = applied(record.values if own else {}, outcome.changes)

    def as_set(name: str, value: Any) -> Operation:
        what, was = f"The edit of {address}{_MARK}{name}", known.get(name, ABSENT)
        if name.startswith(ITEMS) or (was is ABSENT and f"{ITEMS}{name}" in known):
            raise ConfigError(f"{what} is a collection, whose items cannot be edited; edit the step that added them")
        if own:
            _check_name(record, name, known, what)
        if isinstance(value, Typed):
            value = typed(value, None) if was is ABSENT else edited_values.read(value, was)
        if own and definition:
            value = definition.as_field(record, name, value)
        data: Any = secrets.mask_data(codec.encode_to_keep(value, what))
        return ["set", [name], data if was is ABSENT else edited_values.as_recorded(data, was, what)]

    return [as_set(name, value) for name, value in fields.items()]


def shown(record: Record, steps: Iterable[StepRecord]) -> list[Operation]:
    """Return the operations by which the edits in these step records change the state that the run continues with."""
    edited = ((step["address"], step["state"]) for step in steps if "state" in step and is_outermost(step["address"]))
    return [one for address, changes in edited for one in changes[len(record.outcomes[address].changes) :]]


def _check_name(record: Record, name: str, known: Collection[str], what: str) -> None:
    """Raise ConfigError for a name that the state cannot have, as far as the record tells."""
    definition = record.run["definition"]
    fields = definition.get("takes") if kinds.has_methods(definition) else None
    if fields is not None and name not in fields and name not in known:
        hint = meant(name, fields) or f"it has {', '.join(fields)}"
        raise ConfigError(f"{what} names no field of the state; {hint}")
