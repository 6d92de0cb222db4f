"""Durable: what it adds that every outcome is on disk, synced, before the run goes on.

A crew of 100 tasks without and with a store, in turns with bare commits of the very same bytes on the same disk, which
are taken from the journal the crew wrote. Bare is, for SQLite, one connection (WAL, synchronous=FULL) that does the
same UPDATE and INSERTs; for JSON, an open file that is appended to and synced, and for each checkpoint a temporary
file, synced, renamed, its directory synced. The value is (with - without) / bare, where with and without are whole
kickoffs, the opening and closing of the store included, and bare is the commits alone.

With durability="async" the run does not wait, so there is nothing to compare it with: the value is with - without, per
task, until kickoff returns, when all is on disk.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.crew import flatness
from benchmarks.measure import Row, in_turns, median_ms, ratio, scratch, seconds
from benchmarks.scenes import KINDS, Kind, answering, crew_of, stored
from crewlite.state.format.entry import Entry
from crewlite.state.providers import Store

_TASKS = 100
_ROUNDS = 9


def measure() -> Iterator[Row]:
    for kind in KINDS:
        directory = scratch()
        crews = (crew_of(_TASKS, answering(), checkpoint=at) for at in (None, stored(kind, directory, "runs")))
        yield against_bare(kind, directory, *(crew.kickoff for crew in crews))
        yield _asynchronous(kind, directory)
        crew = crew_of(400, answering(), checkpoint=stored(kind, directory, "flat"))
        value, unit, target, detail = flatness(crew, 3)
        yield Row(f"{kind}: last 100 of 400 tasks against the first 100", value, unit, target, detail)


def against_bare(kind: Kind, directory: Path, undurable: Callable[..., object], durable: Callable[..., object]) -> Row:
    """What a store adds to a kickoff, against commits of the same bytes; `durable` keeps its runs in "runs" there."""
    config = stored(kind, directory, "runs")
    durable(run_id="first")
    with contextlib.closing(config.provider.open(config.location)) as store:
        commits = [_Commit(entry, store) for entry in store.read("first", "main")]
    added, floor = [], []
    for number in range(_ROUNDS + 1):
        without, with_store = seconds(undurable), seconds(durable)
        with _BARE[kind](commits, directory, number) as bare:
            floor.append(seconds(bare))
        added.append(with_store - without)
    added, floor = added[1:], floor[1:]  # the first round warms up
    each = f"{median_ms(added) / len(commits):.2f} ms against {median_ms(floor) / len(commits):.2f} ms"
    return Row(f"{kind}: added time against bare commits", ratio(added, floor), "x", 1.6, f"{each} a commit")


def _asynchronous(kind: Kind, directory: Path) -> Row:
    undurable = crew_of(_TASKS, answering())
    durable = crew_of(_TASKS, answering(), checkpoint=stored(kind, directory, "async", durability="async"))
    without, with_store = in_turns(_ROUNDS, undurable.kickoff, durable.kickoff)
    added = [b - a for a, b in zip(without, with_store, strict=True)]
    detail = f"{median_ms(with_store) / _TASKS:.2f} ms against {median_ms(without) / _TASKS:.2f} ms"
    return Row(f'{kind}: durability="async" adds per task', median_ms(added) / _TASKS, "ms", 0.35, detail)


class _Commit:
    """A commit of the journal, and the checkpoint file that went with it."""

    def __init__(self, entry: Entry, store: Store) -> None:
        self.entry, self.place = entry, entry.commit.get("place")
        file = Path(store.ref(self.place)) if self.place else None
        self.document = file.read_bytes() if file and file.exists() else None


@contextlib.contextmanager
def _bare_sqlite(commits: list[_Commit], directory: Path, number: int) -> Iterator[Callable[[], None]]:
    """Opened anew for each round, as a run does: a log that still grows syncs more slowly than one that is reused."""
    db = sqlite3.connect(directory / "bare.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.executescript(_TABLES)
    db.execute("INSERT INTO branch VALUES (?,?,'main',0,'',?)", (number, f"run-{number}", time.time()))

    def work() -> None:
        head = (0, "")
        for commit in commits:
            entry, place = commit.entry, commit.place
            db.execute("BEGIN IMMEDIATE")
            db.execute(_MOVE, (entry.seq, entry.sum, time.time(), f"run-{number}", *head))
            db.execute("INSERT INTO entry VALUES (?,?,?,?)", (number, entry.seq, entry.sum, entry.body))
            if place:
                told = [place.get(name) for name in ("seq", "parent", "trigger", "address", "label", "at")]
                db.execute("INSERT INTO place VALUES (?,?,?,?,?,?,?,?)", (f"{number}-{place['id']}", number, *told))
            db.execute("COMMIT")
            head = entry.seq, entry.sum

    yield work
    db.close()


@contextlib.contextmanager
def _bare_json(commits: list[_Commit], directory: Path, number: int) -> Iterator[Callable[[], None]]:
    where = directory / "bare"
    where.mkdir(exist_ok=True)
    with open(where / f"run-{number}.jsonl", "ab", buffering=0) as journal:

        def work() -> None:
            for commit in commits:
                journal.write(commit.entry.line + b"\n")
                os.fsync(journal.fileno())
                if commit.document:
                    _put(where / f"{number}-{commit.entry.seq}.json", commit.document)

        yield work


def _put(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    with open(temporary, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    handle = os.open(path.parent, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


_BARE = {"sqlite": _bare_sqlite, "json": _bare_json}
_MOVE = "UPDATE branch SET seq=?, head=?, touched=? WHERE run_id=? AND name='main' AND seq=? AND head=?"
_TABLES = """
    CREATE TABLE IF NOT EXISTS branch (
        id INTEGER PRIMARY KEY, run_id TEXT, name TEXT, seq INTEGER, head TEXT, touched FLOAT
    );
    CREATE UNIQUE INDEX IF NOT EXISTS one ON branch (run_id, name);
    CREATE TABLE IF NOT EXISTS entry (
        branch_id INTEGER, seq INTEGER, sum TEXT, body BLOB, PRIMARY KEY (branch_id, seq)
    );
    CREATE TABLE IF NOT EXISTS place (
        id TEXT PRIMARY KEY, branch_id INTEGER, seq INTEGER,
        parent_id TEXT, "trigger" TEXT, address TEXT, label TEXT, created_at TEXT
    );
    CREATE INDEX IF NOT EXISTS of_branch ON place (branch_id);
"""
