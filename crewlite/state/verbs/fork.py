"""Forking: a new branch that continues from an old checkpoint. The branch with that checkpoint does not change."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any
from uuid import UUID

from crewlite import errors, events
from crewlite.definitions.definition import check_inputs
from crewlite.encoding.codec import digest, encode, laid_over
from crewlite.events.event_bus import event_bus
from crewlite.ids import new_id, short
from crewlite.refs import as_operation_id, check_name, to_rerun
from crewlite.state.format.commit import CheckpointRecord, CommitParts, ForkBase, RunStart, invalidated
from crewlite.state.format.entry import STATE, Entry
from crewlite.state.format.record import Record
from crewlite.state.journal.effects import MARKS, check_effects
from crewlite.state.journal.lineage import Lineage, gone, read_lineage, readable_branches
from crewlite.state.providers import BranchInfo, CheckpointInfo, Commit, InMemoryProvider, Store, may_mention
from crewlite.state.providers.writing import not_saved
from crewlite.state.reading.locate import abandoned_by
from crewlite.state.reading.located import Located
from crewlite.state.verbs import edited_state
from crewlite.state.verbs.accepted_inputs import check_accepted
from crewlite.state.verbs.edit import changed_steps
from crewlite.state.verbs.edited_state import Editable
from crewlite.state.verbs.from_outside import appended
from crewlite.state.verbs.transfer import commits
from crewlite.system.forked import cached_property
from crewlite.texts.resuming import nth_attempt
from crewlite.texts.secrets import Secrets


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that the first commit of a fork makes to the record."""

    edits: Mapping[str, Any] = field(default_factory=dict)
    rerun: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """New values for some of the recorded inputs, by name."""
    takes: frozenset[str] = frozenset()
    """Names of inputs that the current definition takes, which may be more than the recorded definition takes."""
    definition: Editable | None = None
    """The current definition, which says what edits it can use; None if it is not known."""

    @classmethod
    def of(
        cls, edits: Mapping[str, Any] | None, rerun: Iterable[str], inputs: Mapping[str, Any] | None = None
    ) -> Changes:
        """Build the changes from the arguments of `fork`. Raises ConfigError if one has the wrong type."""
        check_inputs(inputs)
        if edits is not None and not (isinstance(edits, Mapping) and all(isinstance(at, str) for at in edits)):
            raise errors.ConfigError(
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
    operation_id: str | UUID | None,
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
    operation = None if operation_id is None else changed.operation_digest(as_operation_id(operation_id))
    name = branch if branch is not None else f"fork/{operation[:8] if operation else short(new_id())}"
    check_name("branch", name, slashes=True)
    about = found.event_fields | {"parent_branch": found.branch, "parent_checkpoint_id": found.checkpoint}
    about["branch"] = name
    event_bus.emit(source, events.CheckpointForkStartedEvent(**about))
    known = secrets or Secrets.of()
    try:
        with found.opened() as store:
            _fork(store, found, name, operation, changed, known, base, check=check, allow_effects=allow_effects)
    except Exception as error:
        failure = {"error": known.mask(errors.text_of(error)), "error_type": type(error).__qualname__}
        event_bus.emit(source, events.CheckpointForkFailedEvent(**about, **failure))
        if isinstance(error, OSError) and not isinstance(error, errors.CrewliteError):
            raise not_saved(found.location, "nothing was forked", error) from error
        raise
    event_bus.emit(source, events.CheckpointForkCompletedEvent(**about))
    return Located(found.provider, found.location, found.run_id, name)


def fork_in_memory(found: Located, changed: Changes, check: Callable[[Record], None]) -> Located:
    """Create the fork in memory only, for a preview, with no event. Raises what `fork` raises, but no StoreError."""
    provider = InMemoryProvider()
    there = provider.open(found.location)
    with found.opened() as kept:
        there.append(commits(kept, found.run_id, found.branch))
    made = Located(provider, found.location, found.run_id, f"fork/{short(new_id())}")
    _fork(there, found, made.branch, None, changed, Secrets.of(), check=check)
    return made


def with_fork_advice(error: errors.QuestionsChanged, found: Located) -> errors.QuestionsChanged:
    """Return an error that advises to fork, with `allow_effects` in its advice if that fork would repeat calls."""
    with found.opened() as store:
        return ForkOrigin(store, found).with_advice(error)


def changed_parts(record: Record, changed: Changes, secrets: Secrets | None = None) -> CommitParts:
    """Return what a fork's first commit changes in the `record` at its base. Raises what `changed_steps` raises."""
    if changed.inputs and record.kind == STATE:
        raise errors.ConfigError(
            f"{record.run['run_id']} is a saved state, and a state takes no inputs: fork it without inputs=, open the "
            f"fork with RuntimeState.open, and change its values there"
        )
    secrets = secrets or Secrets.of()
    check_accepted(record, changed.inputs, changed.takes)
    steps, parts = changed_steps(record, changed.edits, changed.rerun, secrets, changed.definition), CommitParts()
    given: Any = secrets.mask_data(encode(changed.inputs, "inputs"))
    inputs = laid_over(record.run["inputs"], given)
    if digest(inputs) != digest(record.run["inputs"]):
        parts["inputs"] = inputs
        if record.finished:  # the recorded result answers the old inputs
            steps.append(invalidated("", record.outcomes[""].kind))
    if steps:
        parts["steps"] = steps
    if seen := edited_state.shown(record, steps):
        parts["values"] = {"seen": seen}
    return parts


class ForkOrigin:
    """The place that a fork starts from. Its journal is read when it is first needed.

    `same`: the base of another fork of this place, to start at the same commit.
    """

    def __init__(self, store: Store, found: Located, same: ForkBase | None = None) -> None:
        self._store, self._found, self._same = store, found, same

    @cached_property
    def _lineage(self) -> Lineage:
        return read_lineage(self._store, self._found.run_id, self._found.branch)

    @property
    def entries(self) -> list[Entry]:
        """All entries of the branch, also those after the base."""
        return self._lineage.entries

    @property
    def base(self) -> ForkBase:
        """The commit that the fork starts from. Raises RefError if there is none."""
        return self._same or self._place[0]

    @cached_property
    def record(self) -> Record:
        """The record at the base."""
        return self._at(self._same["seq"]) if self._same else self._place[1]

    @cached_property
    def _place(self) -> tuple[ForkBase, Record]:
        """The commit that the fork starts from, and the record there."""
        found, (entries, lacks) = self._found, self._lineage
        if found.abandoned is not None:
            entries = abandoned_by(entries, found.abandoned, found.ref)
        whole = Record.of(entries, lacks)
        if found.checkpoint is None:
            base: ForkBase = {
                "branch": found.branch,
                "seq": whole.seq,
                "sum": whole.sum,
                "place": whole.checkpoints.newest,
            }
            return base, whole
        checkpoint = whole.checkpoints.get(found.checkpoint)
        if checkpoint is None:
            problem = f"names no checkpoint of run {found.run_id!r} any more: it was pruned or deleted"
            raise errors.RefError(short(found.checkpoint), problem)
        then = self._at(checkpoint["seq"])
        return {"branch": then.run["branch"], "seq": then.seq, "sum": then.sum, "place": checkpoint}, then

    def _at(self, seq: int) -> Record:
        return Record.of(entry for entry in self.entries if entry.seq <= seq)

    def check_effects(self, first: CommitParts, *, anew: bool = False) -> None:
        """Call `check_effects` for the fork, as far as its calls can be read."""
        with contextlib.suppress(errors.JournalCorrupt):  # a damaged journal can be forked before the damage
            check_effects(self.entries, self.base["seq"], self._found.ref, first, anew=anew)

    def check(self, made: Commit, check: Callable[[Record], None]) -> None:
        """Call `check` with the record of the fork that begins with the commit `made`."""
        with contextlib.suppress(errors.JournalCorrupt):  # a damaged journal can be forked before the damage
            record = Record.of([*(entry for entry in self.entries if entry.seq <= self.base["seq"]), *made.entries])
            try:
                check(record)
            except errors.QuestionsChanged as error:
                raise self.with_advice(error) from None

    def with_advice(self, error: errors.QuestionsChanged) -> errors.QuestionsChanged:
        """Return the error with the advice of `with_fork_advice`."""
        again = Changes(rerun=tuple(address for address in error.changed if address))
        found, repeats = self._found, False
        try:
            check_effects(self.entries, self.base["seq"], found.ref, changed_parts(self.record, again))
        except errors.EffectsRepeat:
            repeats = True
        branch = found.branch
        return errors.QuestionsChanged(
            error.run_id, error.changed, kind=error.kind, branch=branch, repeats_effects=repeats
        )


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
    ref, infos = f"{found.run_id}/{found.branch}", _readable(store, found)
    if found.branch not in infos:
        raise errors.RefError(ref, f"names no branch in {store.location}", list(infos))
    if not _is_free(infos.get(name), found, operation):
        return

    def make() -> tuple[list[Commit], None]:
        simple = found.checkpoint if same is None and not changed else None
        origin = ForkOrigin(store, found, _at_listed(store, found.run_id, simple) if simple else same)
        first = changed_parts(origin.record, changed, secrets) if changed else CommitParts()
        if not allow_effects and _may_have_effects(store, infos, found.branch):
            origin.check_effects(first)
        base: ForkBase = {**origin.base, "operation": operation or new_id()}  # so that no two first commits are equal
        # List the branches after reading the base. If the run is deleted and started again in between, its new branches
        # lack that base, so the store refuses the commit.
        after = _readable(store, found)
        if found.branch not in after:
            raise gone(store, ref, "branch")
        if not _is_free(after.get(name), found, operation):
            return [], None
        made = _beginning(after[found.branch], name, base, first)
        if check:
            origin.check(made, check)
        return [made], None

    try:
        appended(store, make)
    except errors.BranchConflictError:
        store.read(found.run_id, name)  # raises JournalCorrupt for a damaged branch of this name, which is not listed
        raise


def _may_have_effects(store: Store, infos: Mapping[str, BranchInfo], branch: str) -> bool:
    """Return whether a branch, or one that it is forked from, may have made calls with effect="once"."""
    while (info := infos.get(branch)) and not may_mention(store, info.run_id, branch, *MARKS):
        if info.base is None:
            return False
        branch = info.base["branch"]
    return True


def _readable(store: Store, found: Located) -> dict[str, BranchInfo]:
    return {info.branch: info for info in readable_branches(store, found.run_id)}


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
        raise errors.BranchExists(found.run_id, taken.branch)
    return False


def _at_listed(store: Store, run_id: str, identifier: str) -> ForkBase | None:
    """Build the base at a checkpoint in the store's list, reading only that entry; None if it is not in the list."""
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


def _beginning(origin: BranchInfo, name: str, base: ForkBase, changed: CommitParts) -> Commit:
    run: RunStart = {
        "run_id": origin.run_id,
        "branch": name,
        "uid": origin.uid,
        "identity": origin.identity,
        "definition": {"kind": origin.kind, "name": origin.name},
        "base": base,
    }
    return Commit.of(origin.run_id, name, (base["seq"], base["sum"]), {"run": run, **changed})
