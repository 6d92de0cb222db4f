"""The turns of a state that `@persist` keeps, by the names of their runs.

The id of the state names the first run; those that follow are `ID.2`, `ID.3` and so on.
"""

from __future__ import annotations

import re

from crewlite.encoding import codec
from crewlite.state.format.record import Record
from crewlite.texts.masking import MASK

ID = "id"
"""The input that is the id of the state."""
_LATER = re.compile(r"\.([2-9]|[1-9]\d+)")  # one spelling for each number: ID.1 and ID.02 name no turns of ID


def number_of_turn(run_id: str, state_id: str) -> int | None:
    """Return which turn of a state a run is by its name, from 1; None if the name is that of no turn."""
    if run_id == state_id:
        return 1
    found = _LATER.fullmatch(run_id, len(state_id)) if run_id.startswith(state_id) else None
    return int(found[1]) if found else None


def state_id_of(record: Record) -> str | None:
    """Return the id of the state that a run began with: an input, or else its run_id; None if the record masks it."""
    given = str(codec.decode(record.run["inputs"].get(ID)) or record.run["run_id"])
    return None if MASK in given else given
