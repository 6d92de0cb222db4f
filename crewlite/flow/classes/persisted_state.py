"""The run that a kickoff with the id of a persisted state goes on with, for flows with `@persist`.

The id names the first run; the runs that continue its state are `ID.2`, `ID.3` and so on. Each begins with the state
of the one before as its inputs, so it can be resumed, forked and read like any run.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from crewlite import codec
from crewlite.codec import JsonObject
from crewlite.errors import ConfigError
from crewlite.flow.classes.state import ID, StateKind
from crewlite.refs import as_run_id
from crewlite.runtime.kickoffs.request import Request
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.record import Record
from crewlite.state.journal.lineage import find_lineage
from crewlite.state.providers import exists, provider_for


def continued(kind: StateKind, identity: str, request: Request, config: CheckpointConfig) -> Request:
    """Return the request with the run that it goes on with, or begins. Reads the store.

    Raises ConfigError for an id that cannot name a run.
    """
    given = dict(request.inputs or {})
    try:
        state_id = as_run_id(given[ID])
    except ConfigError as error:
        raise ConfigError(f"The id of a flow with @persist is the run_id of its run. {error}") from None
    number, record = _newest(state_id, identity, config)
    if record is None:
        return replace(request, run_id=state_id)
    run_id = _run_id(state_id, number)
    recorded: JsonObject = record.run["inputs"]
    if not record.finished:
        exact = not codec.holds_secret(recorded)  # else the record has masks
        same = exact and all(codec.encode(value) == recorded.get(name) for name, value in given.items() if name != ID)
        inputs = None if same else {**codec.decode(recorded), **given}
        return replace(request, run_id=run_id, inputs=inputs)
    left: dict[str, Any] = {name: codec.decode(value) for name, value in record.value("")["state"].items()}
    kept = {name: value for name, value in left.items() if kind.is_open or name in kind.fields}
    return replace(request, run_id=_run_id(state_id, number + 1), inputs={**kept, **given, ID: state_id})


def _run_id(state_id: str, number: int) -> str:
    return state_id if number == 1 else f"{state_id}.{number}"


def _newest(state_id: str, identity: str, config: CheckpointConfig) -> tuple[int, Record | None]:
    """Return the number and the record of the newest run of a state; None if there is none of this flow.

    A run of this name that is of another flow is left to the kickoff, which refuses it.
    """
    provider = provider_for(config.location, config.provider)
    if not exists(config.location, provider):
        return 1, None
    named = re.compile(re.escape(state_id) + r"(?:\.(\d+))?")
    store = provider.open(config.location)
    try:
        found = [
            int(match[1] or 1)
            for info in store.branches()
            if info.base is None and info.identity == identity and (match := named.fullmatch(info.run_id))
        ]
        if not found:
            return 1, None
        return max(found), Record.of(find_lineage(store, _run_id(state_id, max(found)), "main"))
    finally:
        store.close()
