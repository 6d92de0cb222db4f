"""The fixture of the provider laws: a location, its open stores, and branches as runs write them; and assertions."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from crewlite.encoding.codec import digest, dumps
from crewlite.errors import BranchConflictError
from crewlite.ids import new_id, now
from crewlite.state.format.commit import CheckpointRecord, CommitParts, ForkBase, RunStart, StepRecord
from crewlite.state.format.entry import SCHEMA, Entry, seal
from crewlite.state.providers import (
    BaseProvider,
    BranchInfo,
    CheckpointInfo,
    Commit,
    Exchange,
    ResultCache,
    Store,
    exchange_of,
    results_of,
)
from crewlite.state.providers.reading import branch_info, checkpoint_info
from crewlite.state.reading.locate import locate
from crewlite.state.reading.located import Located
from crewlite.texts.wording import cut


class NotOffered(Exception):
    """The current law is about an optional ability that this provider does not have."""


class Bench:
    """The fixture of one law: one provider, one location, and the stores opened there."""

    def __init__(self, provider: BaseProvider, location: str) -> None:
        self.provider, self.location = provider, location
        self._open: list[Store] = []

    def open(self) -> Store:
        """Open the location once more."""
        store = self.provider.open(self.location)
        self._open.append(store)
        return store

    def results(self, store: Store | None = None) -> ResultCache:
        """Return the result cache of this store, or of a newly opened one. Raises NotOffered if there is none."""
        if (results := results_of(store or self.open())) is None:
            raise NotOffered
        return results

    def exchange(self, store: Store | None = None) -> Exchange:
        """Return the result cache as one that can share data. Raises NotOffered if it cannot."""
        if (exchange := exchange_of(store or self.open())) is None:
            raise NotOffered
        return exchange

    def close(self, store: Store) -> None:
        """Close a store before the law ends."""
        self._open.remove(store)
        store.close()

    def find(self, ref: str) -> Located:
        """Resolve a ref, as a resume does."""
        return locate(ref, self.location, self.provider, None)

    def clear(self) -> None:
        """Close all open stores."""
        while self._open:
            self._open.pop().close()


class Branch:
    """Makes the entries of one branch, as a run would, and the commits that append them to a store."""

    def __init__(
        self,
        run_id: str = "run-1",
        branch: str = "main",
        *,
        name: str = "check",
        identity: str = "",
        uid: str = "",
        base: ForkBase | None = None,
    ) -> None:
        self.run_id, self.branch, self.uid = run_id, branch, uid or new_id()
        self.name, self.identity = name, identity or f"identity of {name}"
        self.base = base
        """The entry that a fork is forked from; None for a branch that is no fork."""
        self.entries: list[Entry] = []
        self._committed = 0

    def add(self, count: int = 1, **parts: Any) -> Branch:
        """Add entries: the very first begins the run, each other one records a step. Returns the branch itself."""
        for _ in range(count):
            number = len(self.entries)
            seq = self._before + number + 1
            own: CommitParts = {"steps": [_step(seq)]} if number else self._beginning()
            whole: Any = {"schema": SCHEMA, "seq": seq, "at": now().isoformat(), **own, **parts}
            self.entries.append(seal(whole, after=self._sum(number)))
        return self

    def checkpoint(self, *, drops: Sequence[str] = ()) -> CheckpointRecord:
        """Add an entry that names a checkpoint and drops others. Returns the record of the checkpoint."""
        more: CommitParts = {"drops": [(gone, None) for gone in drops]} if drops else {}
        checkpoint: CheckpointRecord = {
            "id": new_id(),
            "seq": self._before + len(self.entries) + 1,
            "parent": None,
            "trigger": "task_completed",
            "address": "task:write",
            "about": {"finished_tasks": 1, "tokens": 7},
            "at": now().isoformat(),
        }
        self.add(place=checkpoint, **more)
        return checkpoint

    def commit(self) -> Commit:
        """Return a commit of all entries that no earlier commit held."""
        start, self._committed = self._committed, len(self.entries)
        return self.part(start, self._committed)

    def part(self, start: int, stop: int) -> Commit:
        """Return a commit of the entries from `start` up to `stop`, counted from 0."""
        after = self._before + start
        return Commit(self.run_id, self.branch, after, self._sum(start), tuple(self.entries[start:stop]))

    def twin(self) -> Branch:
        """Return another writer of the same branch, which begins with the entries committed so far."""
        other = Branch(self.run_id, self.branch, name=self.name, identity=self.identity, uid=self.uid, base=self.base)
        other.entries, other._committed = self.entries[: self._committed], self._committed
        return other

    def forked(self, branch: str, seq: int, checkpoint: CheckpointRecord | None = None) -> Branch:
        """Return a fork at the entry `seq` of this branch, and at its checkpoint, if one is passed."""
        total = self._sum(seq - self._before)
        base: ForkBase = {"branch": self.branch, "seq": seq, "sum": total, "place": checkpoint}
        return Branch(self.run_id, branch, name=self.name, identity=self.identity, uid=self.uid, base=base)

    @property
    def _before(self) -> int:
        """How many entries of its base come before its own."""
        return self.base["seq"] if self.base else 0

    def _sum(self, number: int) -> str:
        if number:
            return self.entries[number - 1].sum
        return self.base["sum"] if self.base else ""

    def _beginning(self) -> CommitParts:
        definition = {"kind": "crew", "name": self.name, "tasks": [{"address": "task:write", "description": "Write."}]}
        run: RunStart = {
            "run_id": self.run_id,
            "branch": self.branch,
            "uid": self.uid,
            "identity": self.identity,
            "definition": definition,
        }
        if self.base:
            run["base"] = self.base
        else:
            run["inputs"] = {"topic": "tides"}
        return {"run": run}


def _step(seq: int) -> StepRecord:
    value = {"text": f"reply {seq}"}
    return {
        "address": f"task:write/llm#{seq}",
        "kind": "llm",
        "fingerprint": f"question {seq}",
        "value": value,
        "digest": digest(value),
        "ms": 1.5,
    }


@contextlib.contextmanager
def watched(stores: Sequence[Store], look: Callable[[Store], Iterable[str]]) -> Iterator[None]:
    """During the block, look at each of these stores again and again, in a thread of its own.

    `look` returns what is wrong there. Asserts that it never returned anything, and did not raise.
    """
    ended, problems = threading.Event(), list[str]()

    def read(store: Store) -> None:
        try:
            while not ended.is_set():
                problems.extend(look(store))
        except Exception as error:  # told by the law, not by a dying thread
            problems.append(f"a reader met {type(error).__name__}: {error}")

    readers = [threading.Thread(target=read, args=(store,)) for store in stores]
    for reader in readers:
        reader.start()
    try:
        yield
    finally:
        ended.set()
        for reader in readers:
            reader.join()
    assert not problems, problems[0]


def checkpoint_line(branch: Branch, checkpoint: CheckpointRecord) -> CheckpointInfo:
    """Return the line that a listing should have for a checkpoint."""
    return checkpoint_info(branch.entries[0].commit["run"], checkpoint)


def branch_line(branch: Branch) -> BranchInfo:
    """Return the line that a listing should have for a branch."""
    return branch_info(branch.entries[0])


def journal_is(store: Store, *branches: Branch) -> None:
    """Assert that a store holds exactly the entries of each of these branches."""
    for branch in branches:
        reads_as(store, branch, branch.entries)


def reads_as(store: Store, branch: Branch, written: Sequence[Entry]) -> None:
    """Assert that a branch is read as exactly these entries."""
    read = store.read(branch.run_id, branch.branch)
    for number, (found, wanted) in enumerate(zip(read, written, strict=False), 1):
        same = (found.seq, found.sum, found.body, found.line) == (wanted.seq, wanted.sum, wanted.body, wanted.line)
        assert same, f"entry {number} was stored as {short(wanted.line)} and is read as {short(found.line)}"
        assert dumps(found.commit) == wanted.body, (
            f"entry {number} says {short(found.commit)}, not {short(wanted.commit)}"
        )
    assert len(read) == len(written), f"{len(written)} entries were stored and {len(read)} are read"


def conflicts(store: Store, commit: Commit, how: str) -> None:
    """Assert that a commit is refused with a BranchConflictError that names its branch."""
    with raises(BranchConflictError, f"a commit {how}") as raised:
        store.append([commit])
    error = raised[0]
    assert isinstance(error, BranchConflictError)
    same((error.run_id, error.branch), (commit.run_id, commit.branch), "the BranchConflictError names")


@contextlib.contextmanager
def raises(wanted: type[Exception], what: str) -> Iterator[list[Exception]]:
    """Assert that the block raises this error, and put the error into the yielded list."""
    raised: list[Exception] = []
    try:
        yield raised
    except wanted as error:
        raised.append(error)
    except Exception as error:
        raise AssertionError(f"{what} raised {type(error).__name__}: {error}; wanted {wanted.__name__}") from error
    if not raised:
        raise AssertionError(f"{what} was accepted; wanted {wanted.__name__}")


def same(found: object, wanted: object, what: str) -> None:
    """Assert that two values are equal. `what` begins the sentence of the AssertionError."""
    assert found == wanted, f"{what} {short(found)}, not {short(wanted)}"


def short(value: object) -> str:
    """Return a value as text for such a sentence, cut to 300 characters."""
    return cut(repr(value), 300)
