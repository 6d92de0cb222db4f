"""Forking: a new branch that continues from an old checkpoint. The branch with that checkpoint does not change."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

from crewlite import events
from crewlite.codec import digest, encode, laid_over
from crewlite.definition import check_inputs, to_rerun
from crewlite.errors import (
    BranchConflictError,
    BranchExists,
    ConfigError,
    CrewliteError,
    EffectsRepeat,
    JournalCorrupt,
    QuestionsChanged,
    RefError,
    StoreError,
)
from crewlite.events.event_bus import event_bus
from crewlite.ids import new_id, short
from crewlite.refs import check_name
from crewlite.resuming import nth_attempt
from crewlite.secrets import Secrets
from crewlite.state.format.commit import CheckpointRecord, CommitParts, ForkBase, RunStart, invalidated
from crewlite.state.format.entry import STATE, Entry
from crewlite.state.format.record import Record
from crewlite.state.journal.lineage import gone, read_lineage, readable_branches, trace
from crewlite.state.providers import BranchInfo, CheckpointInfo, Commit, InMemoryProvider, Store
from crewlite.state.reading.locate import Located, abandoned_by
from crewlite.state.verbs.accepted_inputs import check_accepted
from crewlite.state.verbs.edit import changed_steps
from crewlite.state.verbs.effects import check_effects
from crewlite.state.verbs.from_outside import appended
from crewlite.state.verbs.transfer import commits


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that the first commit of a fork makes to the record."""

    edits: Mapping[str, Any] = field(default_factory=dict)
    rerun: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """New values for some of the recorded inputs, by name."""
    takes: frozenset[str] = frozenset()
    """Names of inputs that the current definition takes, which may be more than the recorded definition takes."""
    check: Callable[[str, Any], None] | None = None
    """check(address, value) raises ConfigError for an edit that the current definition cannot use."""

    @classmethod
    def of(
        cls, edits: Mapping[str, Any] | None, rerun: Iterable[str], inputs: Mapping[str, Any] | None = None
    ) -> Changes:
        """Build the changes from the arguments of `fork`. Raises ConfigError if one has the wrong type."""
        check_inputs(inputs)
        if edits is not None and not (isinstance(edits, Mapping) and all(isinstance(at, str) for at in edits)):
            raise ConfigError(
                f"edits is {edits!r}; wanted outcomes by address, such as {{'task:research': 'another text'}}"
            )
        return cls(dict(edits or {}), tuple(starmap(nth_attempt, to_rerun(rerun).items())), dict(inputs or {}))

    def operation_digest(self, operation_id: str) -> str:
        """Return a digest of the operation id and these changes, so that the id itself need not be stored."""
        edits, inputs = encode(self.edits, "edits"), encode(self.inputs, "inputs")
        same = [operation_id, edits, self.rerun, *([inputs] if self.inputs else [])]
        return digest(same if self else operation_id)

    def __bool__(self) -> bool:
        return bool(self.edits or self.rerun or self.inputs)


NO_CHANGES = Changes()


def fork(
    found: Located,
    source: object,
    *,
    branch: str | None,
    operation_id: str | None,
    changed: Changes = NO_CHANGES,
    secrets: Secrets | None = None,
    base: ForkBase | None = None,
    check: Callable[[Record], None] | None = None,
    allow_effects: bool = True,
) -> Located:
    """Create a branch that starts at `found`: at its checkpoint or, without one, at the head of its branch.

    Emits the fork events with `source`, such as a crew or a History, as their source. Returns the new branch. Raises
    what `History.fork` raises, which describes the other arguments, and what `check` raises. No branch exists after an
    error. `secrets` are masked in the recorded changes; None means those of the environment. `base`: the base of
    another fork, to start at the same commit; `found` is then that fork's origin. `check` is called with the record
    that the fork would begin with.
    """
    if operation_id is not None and not (isinstance(operation_id, str) and operation_id):
        raise ConfigError(f"operation_id is {operation_id!r}; wanted a text that is the same whenever this is repeated")
    operation = changed.operation_digest(operation_id) if operation_id else None
    name = branch if branch is not None else f"fork/{operation[:8] if operation else short(new_id())}"
    check_name("branch", name, slashes=True)
    about: dict[str, Any] = {"location": found.location, "provider": found.provider.name}
    about |= {"run_id": found.run_id, "branch": name}
    about |= {"parent_branch": found.branch, "parent_checkpoint_id": found.checkpoint}
    event_bus.emit(source, events.CheckpointForkStartedEvent(**about))
    try:
        known = secrets or Secrets.of()
        with contextlib.closing(found.provider.open(found.location)) as store:
            _fork(store, found, name, operation, changed, known, base, check=check, allow_effects=allow_effects)
    except Exception as error:
        said = {"error": str(error), "error_type": type(error).__qualname__}
        event_bus.emit(source, events.CheckpointForkFailedEvent(**about, **said))
        if isinstance(error, OSError) and not isinstance(error, CrewliteError):
            raise StoreError(found.location, f"nothing was forked ({error})") from error
        raise
    event_bus.emit(source, events.CheckpointForkCompletedEvent(**about))
    return Located(found.provider, found.location, found.run_id, name)


def tried(found: Located, changed: Changes, check: Callable[[Record], None]) -> Located:
    """Create the fork in memory only, for a preview, with no event. Raises what `fork` raises, but no StoreError."""
    provider = InMemoryProvider()
    there = provider.open(found.location)
    with contextlib.closing(found.provider.open(found.location)) as kept:
        there.append(commits(kept, found.run_id, found.branch))
    made = Located(provider, found.location, found.run_id, f"fork/{short(new_id())}")
    _fork(there, found, made.branch, None, changed, Secrets.of(), check=check)
    return made


def with_fork_advice(error: QuestionsChanged, found: Located) -> QuestionsChanged:
    """Return the error with advice for this place: the fork that it names also allows calls that it would repeat."""
    with contextlib.closing(found.provider.open(found.location)) as store:
        base, entries = _place(store, found, None)
    return _with_advice(error, entries, base, found)


def _with_advice(error: QuestionsChanged, entries: Sequence[Entry], base: ForkBase, found: Located) -> QuestionsChanged:
    again = Changes(rerun=tuple(address for address in error.changed if address))
    repeats = False
    try:
        check_effects(entries, base["seq"], found.ref, changed_parts(_record_at(base, entries), again))
    except EffectsRepeat:
        repeats = True
    return QuestionsChanged(error.run_id, error.changed, kind=error.kind, branch=found.branch, repeats_effects=repeats)


def place_of(store: Store, found: Located, same: ForkBase | None = None) -> tuple[ForkBase, Record]:
    """Return the base of a fork of `found`, or `same`, and the record there. Raises RefError if there is none."""
    base, entries = _place(store, found, same)
    return base, _record_at(base, entries)


def changed_parts(record: Record, changed: Changes) -> CommitParts:
    """Return the parts of a fork's first commit at this record. Raises RefError, AnswerRefused, ConfigError."""
    return _changes(record, changed, Secrets.of())


def _fork(
    store: Store,
    found: Located,
    name: str,
    operation: str | None,
    changed: Changes,
    secrets: Secrets,
    same: ForkBase | None = None,
    *,
    check: Callable[[Record], None] | None = None,
    allow_effects: bool = True,
) -> None:
    run_id, origin = found.run_id, found.branch
    infos = {info.branch: info for info in readable_branches(store, run_id)}
    if origin not in infos:
        raise RefError(f"{run_id}/{origin}", f"names no branch in {store.location}", list(infos))
    if not _is_free(infos.get(name), found, operation):
        return

    def make() -> tuple[list[Commit], None]:
        base, first, read = _base(store, found, changed, secrets, same)
        if not allow_effects:
            check_fork_effects(store, found, base, first, read)
        base["operation"] = operation or new_id()  # so that the first commits of two forks always differ
        # List the branches after reading the base. If the run is deleted and started again in between, its new branches
        # lack that base, so the store refuses the commit.
        infos = {info.branch: info for info in readable_branches(store, run_id)}
        if origin not in infos:
            raise gone(store, f"{run_id}/{origin}", "branch")
        if not _is_free(infos.get(name), found, operation):
            return [], None
        made = _beginning(infos[origin], name, base, first)
        if check:
            _check(store, found, base, made, read, check)
        return [made], None

    try:
        appended(store, make)
    except BranchConflictError:
        store.read(run_id, name)  # raises JournalCorrupt for a damaged branch of this name, which is not listed
        raise


def _check(
    store: Store,
    found: Located,
    base: ForkBase,
    made: Commit,
    entries: Sequence[Entry] | None,
    check: Callable[[Record], None],
) -> None:
    """Call `check` with the record of the fork that begins with the commit `made`."""
    with contextlib.suppress(JournalCorrupt):  # a damaged journal can be forked before the damage
        entries = read_lineage(store, found.run_id, found.branch) if entries is None else entries
        record = Record.of([*(entry for entry in entries if entry.seq <= base["seq"]), *made.entries])
        try:
            check(record)
        except QuestionsChanged as error:
            raise _with_advice(error, entries, base, found) from None


def _is_free(taken: BranchInfo | None, found: Located, operation: str | None) -> bool:
    """Return whether the branch can be created; False if this same operation has created it already.

    Raises BranchExists if `taken`, the branch of that name, was created by another operation or at another checkpoint.
    """
    if taken is None:
        return True
    base = taken.base
    there = base["place"]["id"] if base and base["place"] else None
    same = operation is not None and base is not None and base.get("operation") == operation
    if not same or found.checkpoint not in (None, there):
        raise BranchExists(found.run_id, taken.branch)
    return False


def _base(
    store: Store, found: Located, changed: Changes, secrets: Secrets, same: ForkBase | None
) -> tuple[ForkBase, CommitParts, list[Entry] | None]:
    """Return a fork's base, its changes as parts of its first commit, and the entries of `found` if it read them."""
    simple = found.checkpoint if same is None and not changed else None
    if simple and (base := _at_checkpoint(store, found.run_id, simple)):
        return base, {}, None
    base, entries = _place(store, found, same)
    parts = _changes(_record_at(base, entries), changed, secrets) if changed else CommitParts()
    return base, parts, entries if same is None else None


def check_fork_effects(
    store: Store,
    found: Located,
    base: ForkBase,
    first: CommitParts,
    entries: Sequence[Entry] | None = None,
    *,
    anew: bool = False,
) -> None:
    """Raise EffectsRepeat for calls with effect="once" that a fork may make again, as far as they can be read.

    `first` and `anew` are those of check_effects; `entries` are those of the branch, if they were read before.
    """
    with contextlib.suppress(JournalCorrupt):  # a damaged journal can be forked before the damage
        entries = read_lineage(store, found.run_id, found.branch) if entries is None else entries
        check_effects(entries, base["seq"], found.ref, first, anew=anew)


def _place(store: Store, found: Located, same: ForkBase | None) -> tuple[ForkBase, list[Entry]]:
    """Return the base of a fork, and all entries of the branch that it starts from, also those after the base."""
    if same is not None:
        return {**same}, read_lineage(store, found.run_id, same["branch"])
    entries, lost = trace(store, found.run_id, found.branch)
    if not entries:
        raise gone(store, f"{found.run_id}/{found.branch}", "branch")
    if named := found.checkpoint:
        return _at_inherited(entries, found.run_id, named), entries
    then = Record.of(entries)
    if found.abandoned is not None:
        lost |= then.dropped
        then = Record.of(abandoned_by(entries, found.abandoned, found.ref))
    then.forget(lost)  # a fork cannot start at a checkpoint that was dropped
    return {"branch": found.branch, "seq": then.seq, "sum": then.sum, "place": then.newest_checkpoint}, entries


def _record_at(base: ForkBase, entries: Sequence[Entry]) -> Record:
    return Record.of([entry for entry in entries if entry.seq <= base["seq"]])


def _at_checkpoint(store: Store, run_id: str, identifier: str) -> ForkBase | None:
    """Build the base at a listed checkpoint, reading only the entry that names it; None if it is not listed."""
    checkpoint = _listed(store, identifier)
    total = store.sum_at(run_id, checkpoint.branch, checkpoint.seq) if checkpoint else None
    if checkpoint is None or total is None or not _listed(store, identifier):
        return None  # also if the run was deleted and started again meanwhile: another entry has that number then
    named: CheckpointRecord = {
        "id": checkpoint.id,
        "seq": checkpoint.seq,
        "parent": checkpoint.parent_id,
        "trigger": checkpoint.trigger,
        "address": checkpoint.address,
        "about": {},
        "at": checkpoint.created_at,
    }
    if checkpoint.label:
        named["label"] = checkpoint.label
    return {"branch": checkpoint.branch, "seq": checkpoint.seq, "sum": total, "place": named}


def _listed(store: Store, identifier: str) -> CheckpointInfo | None:
    return next((one for one in store.places(identifier) if one.id == identifier), None)


def _at_inherited(entries: Sequence[Entry], run_id: str, identifier: str) -> ForkBase:
    """Build the base at a checkpoint in these entries, even if the branch of that checkpoint has dropped it."""
    checkpoint = Record.of(entries).checkpoints.get(identifier)
    if checkpoint is None:
        raise RefError(short(identifier), f"names no checkpoint of run {run_id!r} any more: it was pruned or deleted")
    then = [entry for entry in entries if entry.seq <= checkpoint["seq"]]
    return {"branch": Record.of(then).run["branch"], "seq": then[-1].seq, "sum": then[-1].sum, "place": checkpoint}


def _changes(record: Record, changed: Changes, secrets: Secrets) -> CommitParts:
    """Build the parts of the first commit that hold the changes. `record` is the record at the base of the fork."""
    if changed.inputs and record.kind == STATE:
        raise ConfigError(
            f"{record.run['run_id']} is a saved state, which has no inputs: fork it without inputs, open the fork with "
            f"RuntimeState.open, and change its values there"
        )
    check_accepted(record, changed.inputs, changed.takes)
    steps, parts = changed_steps(record, changed.edits, changed.rerun, secrets, changed.check), CommitParts()
    given: Any = secrets.mask_data(encode(changed.inputs, "inputs"))
    inputs = laid_over(record.run["inputs"], given)
    if digest(inputs) != digest(record.run["inputs"]):
        parts["inputs"] = inputs
        if record.finished:  # the recorded result answers the old inputs
            steps.append(invalidated("", record.outcomes[""].kind))
    if steps:
        parts["steps"] = steps
    return parts


def _beginning(origin: BranchInfo, name: str, base: ForkBase, changed: CommitParts) -> Commit:
    run: RunStart = {
        "run_id": origin.run_id,
        "branch": name,
        "uid": origin.uid,
        "identity": origin.identity,
        "definition": {"kind": origin.kind, "name": origin.name},
        "base": base,
    }
    return Commit.saying(origin.run_id, name, (base["seq"], base["sum"]), {"run": run, **changed})
