"""The `id` that the state of a class flow gets when a run of it begins: a text of its own for each run.

Two runs that do the same differ in it, as in their run ids, so it does not count as a difference.
"""

from __future__ import annotations

from collections.abc import Mapping

from crewlite.codec import Json
from crewlite.state.format.addresses import BEGINNING
from crewlite.state.format.record import Record

ID = "id"
_OWN = "(made by the run)"


def has_own_id(record: Record, address: str, state: Mapping[str, Json]) -> bool:
    """Return whether the state of the flow at an address has the id that the run made for it.

    It has another one if inputs gave it to the run, or a method has changed it.
    """
    if ID not in state or (not address and ID in record.run["inputs"]):
        return False
    begun = record.outcomes.get(f"{address}/{BEGINNING}" if address else BEGINNING)
    return begun is not None and ["set", [ID], state[ID]] in begun.changes


def without_own_id(record: Record, address: str, value: Json) -> Json:
    """Return the outcome of a flow as it is compared: with the same words in place of an id that the run made."""
    state = value.get("state") if isinstance(value, dict) else None
    if isinstance(state, dict) and has_own_id(record, address, state):
        return {**value, "state": {**state, ID: _OWN}}
    return value
