"""The turns of a state that `@persist` keeps: each is a run, and begins with the final state of the turn before it.

The id of the state is the name of the first run; later ones are named `ID.2`, `ID.3` and so on. So a turn can be
resumed, forked and read like any run, and of two kickoffs that want to be the next turn only one gets its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from crewlite.encoding import codec
from crewlite.errors import ConfigError, RefError
from crewlite.flow.classes.state import StateKind
from crewlite.refs import as_run_id
from crewlite.runtime.kickoffs.request import Request, StateTurn
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.record import Record
from crewlite.state.format.turns import ID, number_of_turn, state_id_of
from crewlite.state.journal.lineage import find_lineage, readable_branches
from crewlite.state.providers import Store, exists, opened, provider_for, run_ids

_LONGEST = 90
"""The most characters of an id. A run's name has 100 at most, and that of a turn is the id with a number behind it."""
_DIGEST = "take a digest of it: hashlib.sha256(text.encode()).hexdigest()[:32]"
_REMEMBERED = 100
"""The number of latest turns whose operations are known. Each turn records them all, with some 50 bytes each."""


def turn_of(kind: StateKind, identity: str, request: Request, config: CheckpointConfig) -> Request:
    """Return the request with the turn that it asks for, a recorded one or the next one. Reads the store.

    A turn's name that a run of another state already has is skipped.

    Raises ConfigError for an id that cannot name a run and for a run_id of another state, RefError for an operation
    whose turn was deleted.
    """
    try:
        state_id = as_run_id((request.inputs or {})[ID], "id")
    except ConfigError as error:
        said = str(error).rstrip(".")
        raise ConfigError(
            f"The id of a flow with @persist is the run_id of its run. {said}. For any other text, {_DIGEST}"
        ) from None
    if request.run_id is not None and request.operation_id is not None:
        raise ConfigError("run_id and operation_id were passed, and both say which turn is meant: pass one of them")
    turns = _Turns(state_id, state_id)
    provider = provider_for(config.location, config.provider)
    if exists(config.location, provider):
        with opened(provider, config.location) as store:
            turns = _turns(store, state_id, identity)
            if run_id := turns.named(request):
                return _again(request, turns, turns.read(store, run_id, request))
    elif turns.named(request):
        raise turns.no_turn(request)
    newest = turns.newest
    if newest and not newest.finished:
        return _again(request, turns, newest)
    turns.check_names()
    given = request.inputs_of_caller or {}
    kept = _kept(kind, newest, given) if newest else {}
    inputs = {**(request.inputs or {}), **kept, **given, ID: state_id}
    turn = StateTurn(state_id, by_operation=turns.with_one_more(request))
    return replace(request, run_id=turns.free, inputs=inputs, state_turn=turn)


def _kept(kind: StateKind, newest: Record, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the newest turn has left in the state and is not `given`. Raises ConfigError if it does not fit."""
    known, left = newest.run["definition"], newest.value("")["state"]
    flow = str(known["name"])
    kind.warn_of_lost(flow, left.keys() & set(known.get("takes", ())))
    names = (name for name in left if name not in (*given, ID) and kind.has(name))
    kept = {name: codec.decode(left[name]) for name in names}
    try:
        kind.merged(flow, kind.made({}), kept, "the stored")
    except ConfigError as error:
        raise ConfigError(
            f"{error}. The last turn has left it: undo the change of the class, or pass the field in inputs"
        ) from None
    return kept


class _Turns(NamedTuple):
    """What a store has of a state: its newest turn, and the free name for the next one."""

    state_id: str
    free: str
    newest: Record | None = None

    @property
    def by_operation(self) -> Mapping[str, str]:
        """The run ids of the state's newest turns, by the digests of their operation ids."""
        return self.newest.run.get("turns", {}) if self.newest else {}

    def named(self, request: Request) -> str | None:
        """Return the run_id of the turn that the request names, by its run_id or operation; None for the next one."""
        if request.run_id not in (None, self.free):
            return str(request.run_id)
        return self.by_operation.get(_operation(request))

    def read(self, store: Store, run_id: str, request: Request) -> Record:
        """Return the record of the turn that the request names. Raises what `turn_of` does."""
        record = find_lineage(store, run_id, "main").record()
        if record.seq and state_id_of(record) in (self.state_id, None):
            return record
        if request.run_id is None:
            problem = f"was the turn of operation_id={request.operation_id!r}, and was deleted, with its result. For a "
            raise RefError(run_id, problem + "new turn, pass another operation_id")
        raise self.no_turn(request)

    def no_turn(self, request: Request) -> ConfigError:
        """Return the error for a run_id that names neither a turn of the state nor the next one."""
        return ConfigError(
            f"run_id={request.run_id!r} names no turn of the state {self.state_id!r}. Its turns name themselves "
            f"({self.free!r} is next): leave run_id out, and to make a repeated request the same turn, pass "
            f"operation_id={request.run_id!r}"
        )

    def check_names(self) -> None:
        """Raise ConfigError if the turns that follow could not be named after the id.

        A state that has turns already may have more until a name would be too long.
        """
        if not self.newest and (len(self.state_id) > _LONGEST or self.state_id.endswith(".")):
            raise ConfigError(
                f"The id {self.state_id!r} has {len(self.state_id)} characters; wanted at most {_LONGEST}, and no '.' "
                f"at the end: its turns are named after it, such as ID.2. For a shorter one, {_DIGEST}"
            )
        try:
            as_run_id(self.free)
        except ConfigError:
            raise ConfigError(
                f"The state {self.state_id!r} can have no further turn: its name would be {self.free!r}, which no run "
                f"can have. Begin a state with an id of at most {_LONGEST} characters, and no '.' at the end"
            ) from None

    def with_one_more(self, request: Request) -> Mapping[str, str]:
        """Return the turns to record with the next turn, which the request begins."""
        latest = dict([*self.by_operation.items()][1 - _REMEMBERED :])
        return latest | {_operation(request): self.free} if request.operation_id else latest


def _again(request: Request, turns: _Turns, record: Record) -> Request:
    """Return the request for a turn that is recorded. It passes no inputs if the caller's are the recorded ones."""
    given, recorded = request.inputs_of_caller or {}, record.run["inputs"]
    exact = not codec.holds_secret(recorded)  # else a mask replaces the secret in the record
    asked = {name: codec.encode(value) for name, value in given.items() if name != ID}
    same = exact and all(name in recorded and value == recorded[name] for name, value in asked.items())
    return replace(
        request,
        run_id=record.run["run_id"],
        inputs=None if same else {**codec.decode(recorded), **given},
        state_turn=StateTurn(turns.state_id, record.finished),
    )


def _operation(request: Request) -> str:
    return codec.digest(request.operation_id)


def _turns(store: Store, state_id: str, identity: str) -> _Turns:
    """Read the newest turn of a state. Its run may be one of another flow, which the kickoff refuses later."""
    numbers = {number: one for one in run_ids(store, state_id) if (number := number_of_turn(one, state_id))}
    free = ""
    for number in sorted(numbers, reverse=True):
        run_id = numbers[number]
        mains = (info for info in readable_branches(store, run_id) if info.base is None)
        if not any(info.identity == identity for info in mains):
            continue
        free = free or f"{state_id}.{number + 1}"
        record = find_lineage(store, run_id, "main").record()
        if not record.seq:  # it was deleted since it was listed
            return _turns(store, state_id, identity)
        if state_id_of(record) in (state_id, None):
            return _Turns(state_id, free, record)
    return _Turns(state_id, free or state_id)
