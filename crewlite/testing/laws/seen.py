"""Assertions that the laws share, with the sentences for a broken law."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from crewlite.codec import dumps
from crewlite.errors import BranchConflictError
from crewlite.state.format.commit import CheckpointRecord
from crewlite.state.format.entry import Entry
from crewlite.state.providers import BranchInfo, CheckpointInfo, Commit, Store
from crewlite.state.providers.reading import branch_info, checkpoint_info
from crewlite.testing.bench import Branch


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
        except Exception as error:  # noqa: BLE001 - told by the law, not by a dying thread
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


def journal_is(store: Store, branch: Branch) -> None:
    """Assert that a store holds exactly the entries of a branch."""
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


def oddities(store: Store, branch: Branch) -> Iterator[str]:
    """Yield what a reader sees and never should, while commits of three entries arrive."""
    numbers = [entry.seq for entry in store.read(branch.run_id, branch.branch)]
    if numbers != list(range(1, len(numbers) + 1)) or len(numbers) % 3:
        yield f"a reader met entries {numbers[-3:]} at the end, and commits are of 3"
    later = [entry.seq for entry in store.read(branch.run_id, branch.branch)]
    if len(later) < len(numbers):
        yield f"a reader met {len(later)} entries after it had met {len(numbers)}"
    found = {info.run_id for info in store.branches()} | {one.run_id for one in store.places()}
    if found > {branch.run_id}:
        yield f"a listing names {sorted(found)}"


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
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}…"
