"""Forking: a second line of work after an old checkpoint. The checkpoint, and what came after it, stay unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crewlite import events, kinds, templates
from crewlite.codec import JsonObject, decode, digest, encode, laid_over
from crewlite.definition import check_inputs
from crewlite.errors import (
    BranchConflictError,
    BranchExists,
    ConfigError,
    CrewliteError,
    JournalCorrupt,
    RefError,
    StoreError,
    meant,
)
from crewlite.events.event_bus import event_bus
from crewlite.ids import new_id, short
from crewlite.refs import check_name
from crewlite.secrets import Secrets
from crewlite.state.format.commit import CheckpointRecord, CommitParts, ForkBase, RunStart, invalidated
from crewlite.state.format.entry import STATE, Entry
from crewlite.state.format.record import Record
from crewlite.state.journal.lineage import gone, read_lineage
from crewlite.state.providers import BranchInfo, CheckpointInfo, Commit, InMemoryProvider, Store
from crewlite.state.reading.locate import Located
from crewlite.state.verbs.edit import changed_steps
from crewlite.state.verbs.transfer import commits

TEMPLATES = ("description", "expected_output", "output_file", "role", "goal", "backstory")
"""The fields of tasks and agents in which placeholders are filled in."""
_TRIES = 10  # a head that is forked may be compacted away by a pruning, but not again and again


@dataclass(frozen=True, slots=True)
class Changes:
    """What a fork begins with that is not as it was recorded."""

    edits: Mapping[str, Any] = field(default_factory=dict)
    rerun: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Laid over the recorded ones."""
    takes: frozenset[str] = frozenset()
    """Inputs that the definition takes as it is now, besides those that its record knows."""

    @classmethod
    def of(
        cls, edits: Mapping[str, Any] | None, rerun: Iterable[str], inputs: Mapping[str, Any] | None = None
    ) -> Changes:
        """As callers give them. Raises ConfigError."""
        check_inputs(inputs)
        if edits is not None and not (isinstance(edits, Mapping) and all(isinstance(at, str) for at in edits)):
            raise ConfigError(
                f"edits is {edits!r}; wanted outcomes by address, such as {{'task:research': 'other text'}}"
            )
        again = (rerun,) if isinstance(rerun, str) else tuple(rerun) if isinstance(rerun, Iterable) else (rerun,)
        if not all(isinstance(at, str) for at in again):
            raise ConfigError(f"rerun is {rerun!r}; wanted addresses of steps, such as ['task:research']")
        return cls(dict(edits or {}), again, dict(inputs or {}))

    def operation_digest(self, operation_id: str) -> str:
        """The digest of an operation that makes these. What its id says is nobody's business."""
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
) -> Located:
    """Begin a branch at the checkpoint that was found, or at the head of its branch, and announce it.

    With an `operation_id`, doing it again gives the same branch. What is changed is recorded without the `secrets`, or
    those of the environment. Raises RefError if there is nothing to fork, BranchExists if the name is taken, StoreError
    if it cannot be saved; then there is no such branch.
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
        store = found.provider.open(found.location)
        try:
            _fork(store, found, name, operation, changed, secrets or Secrets.of())
        finally:
            store.close()
    except Exception as error:
        said = {"error": str(error), "error_type": type(error).__qualname__}
        event_bus.emit(source, events.CheckpointForkFailedEvent(**about, **said))
        if isinstance(error, OSError) and not isinstance(error, CrewliteError):
            raise StoreError(found.location, f"nothing was forked ({error})") from error
        raise
    event_bus.emit(source, events.CheckpointForkCompletedEvent(**about))
    return Located(found.provider, found.location, found.run_id, name)


def tried(found: Located, changed: Changes) -> Located:
    """The fork that this would be, in memory: nothing is written or announced. Raises RefError, ConfigError."""
    kept, provider = found.provider.open(found.location), InMemoryProvider()
    try:
        there = provider.open(found.location)
        there.append(commits(kept, found.run_id, found.branch))
    finally:
        kept.close()
    made = Located(provider, found.location, found.run_id, f"fork/{short(new_id())}")
    _fork(there, found, made.branch, None, changed, Secrets.of())
    return made


def _fork(store: Store, found: Located, name: str, operation: str | None, changed: Changes, secrets: Secrets) -> None:
    run_id, origin = found.run_id, found.branch
    infos = {info.branch: info for info in _branches(store, run_id)}
    if origin not in infos:
        raise RefError(f"{run_id}/{origin}", f"names no branch in {store.location}", list(infos))
    if not _is_free(infos.get(name), found, operation):
        return
    for left in reversed(range(_TRIES)):
        base, first = _base(store, found, changed, secrets)
        base["operation"] = operation or new_id()  # so that no two beginnings are ever alike
        # Listed after the base was read: if the run was begun anew in between, that is not there, and this is refused.
        infos = {info.branch: info for info in _branches(store, run_id)}
        if origin not in infos:
            raise gone(store, f"{run_id}/{origin}", "branch")
        if not _is_free(infos.get(name), found, operation):
            return
        try:
            store.append([_beginning(infos[origin], name, base, first)])
        except BranchConflictError:  # somebody was faster, or took the base away
            if not left:
                raise
        else:
            return


def _branches(store: Store, run_id: str) -> list[BranchInfo]:
    """The branches of a run that can be read: one that cannot does not keep the others from being forked."""
    try:
        return store.branches(run_id)
    except JournalCorrupt:
        return [info for info in store.branches() if info.run_id == run_id]


def _is_free(taken: BranchInfo | None, found: Located, operation: str | None) -> bool:
    """Whether a branch can be made; False if this operation has made it, here. Raises BranchExists for another's."""
    if taken is None:
        return True
    base = taken.base
    there = base["place"]["id"] if base and base["place"] else None
    same = operation is not None and base is not None and base.get("operation") == operation
    if not same or found.checkpoint not in (None, there):
        raise BranchExists(found.run_id, taken.branch)
    return False


def _base(store: Store, found: Located, changed: Changes, secrets: Secrets) -> tuple[ForkBase, CommitParts]:
    """The base of a fork, and the changes as parts of its first commit. Reads the journal once at most."""
    if found.checkpoint and not changed and (base := _at_checkpoint(store, found.run_id, found.checkpoint)):
        return base, {}
    entries = read_lineage(store, found.run_id, found.branch)
    named = found.checkpoint
    base = _at_inherited(entries, found.run_id, named) if named else _at_head(entries, found.branch)
    if not changed:
        return base, {}
    return base, _changes(Record.of([entry for entry in entries if entry.seq <= base["seq"]]), changed, secrets)


def _at_checkpoint(store: Store, run_id: str, identifier: str) -> ForkBase | None:
    """The base at a listed checkpoint; None if it is not listed. Reads only the entry that names it."""
    checkpoint = _listed(store, identifier)
    total = store.sum_at(run_id, checkpoint.branch, checkpoint.seq) if checkpoint else None
    if checkpoint is None or total is None or not _listed(store, identifier):
        return None  # or the run was begun anew since it was listed, and what has its number now is another
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
    """The base at a checkpoint in these entries, even if its own branch has dropped it."""
    checkpoint = Record.of(entries).checkpoints.get(identifier)
    if checkpoint is None:
        raise RefError(short(identifier), f"names no checkpoint of run {run_id!r} any more")
    then = [entry for entry in entries if entry.seq <= checkpoint["seq"]]
    return {"branch": Record.of(then).run["branch"], "seq": then[-1].seq, "sum": then[-1].sum, "place": checkpoint}


def _at_head(entries: Sequence[Entry], branch: str) -> ForkBase:
    record = Record.of(entries)
    return {"branch": branch, "seq": record.seq, "sum": record.sum, "place": record.newest_checkpoint}


def _changes(record: Record, changed: Changes, secrets: Secrets) -> CommitParts:
    """What the first commit says of them; `record` is what the fork stands on."""
    if changed.inputs and record.run["definition"]["kind"] == STATE:
        raise ConfigError(
            f"{record.run['run_id']} is a state, which has no inputs; change its values once the fork is open"
        )
    check_taken(record, changed.inputs, changed.takes)
    steps, parts = changed_steps(record, changed.edits, changed.rerun, secrets), CommitParts()
    given: Any = secrets.mask_data(encode(changed.inputs, "inputs"))
    inputs = laid_over(record.run["inputs"], given)
    if digest(inputs) != digest(record.run["inputs"]):
        parts["inputs"] = inputs
        if record.finished:  # the result answers what was asked, not what is
            steps.append(invalidated("", record.outcomes[""].kind))
    if steps:
        parts["steps"] = steps
    return parts


def check_taken(record: Record, inputs: Iterable[str], takes: Iterable[str]) -> None:
    """Raises ConfigError for an input that was not recorded, and that no text and no parameter asks for.

    `takes`: what the definition asks for as it is now.
    """
    asked = asked_for(record.run["definition"])
    if asked is None:
        return
    known = sorted({*decode(record.run["inputs"]), *asked, *takes})
    for name in inputs:
        if name not in known:
            hint = meant(name, known) or f"it takes {', '.join(known) or 'none'}"
            raise ConfigError(f"Run {record.run['run_id']!r} has no input {name!r}; {hint}")


def asked_for(definition: JsonObject) -> list[str] | None:
    """The inputs that a recorded definition asks for; None if only its code knows, or an early release recorded it."""
    live = definition.get("live")
    if isinstance(live, dict) and "before_kickoff_callbacks" in live:
        return None
    if "agents" in definition:
        facts = [*definition["tasks"], *definition["agents"]]
        texts = [fact.get(name) for fact in facts for name in TEMPLATES]
        return [name for text in texts if isinstance(text, str) for name in templates.placeholders(text)]
    takes: list[str] | None = ["messages"] if kinds.of(definition["kind"]).takes_messages else definition.get("takes")
    return takes


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
