"""Durable: what it adds that every outcome is on disk, synced, before the run goes on.

A crew of 100 tasks without and with a store, in turns with bare commits of the very same bytes on the same disk, which
are taken from the journal the crew wrote. Bare is, for SQLite, one open connection (WAL, synchronous=FULL) that does
the same UPDATE and INSERTs; for JSON, an open file that is appended to and synced, and for each checkpoint a temporary
file, synced, renamed, its directory synced. The value is (with - without) / bare: all that is not the disk's.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.crew import flatness
from benchmarks.measure import Row, in_turns, median_ms, scratch
from benchmarks.scenes import KINDS, Kind, answering, crew_of, stored
from crewlite import CheckpointConfig
from crewlite.state.entry import Entry

_TASKS = 100
_ROUNDS = 9


def measure() -> Iterator[Row]:
    for kind in KINDS:
        with scratch() as directory:
            yield _against_bare(kind, directory)
            crew = crew_of(400, answering(), checkpoint=stored(kind, directory, "flat"))
            value, unit, target, detail = flatness(crew, 3)
            yield Row(f"{kind}: last 100 of 400 tasks against the first 100", value, unit, target, detail)


def _against_bare(kind: Kind, directory: Path) -> Row:
    undurable = crew_of(_TASKS, answering())
    numbers = itertools.count()

    def durable() -> CheckpointConfig:
        config = stored(kind, directory, f"run-{next(numbers)}")
        crew_of(_TASKS, answering(), checkpoint=config).kickoff(run_id="run")
        return config

    config = durable()
    entries = config.provider.open(config.location).read("run", "main")
    bare = _bare_sqlite(entries, directory) if kind == "sqlite" else _bare_json(entries, config, directory)
    without, with_store, floor = in_turns(_ROUNDS, undurable.kickoff, durable, bare)
    values = [(b - a) / c for a, b, c in zip(without, with_store, floor, strict=True)]
    added = [b - a for a, b in zip(without, with_store, strict=True)]
    commits = len(entries)
    return Row(
        f"{kind}: added time against bare commits",
        statistics.median(values),
        "x",
        1.6,
        f"{commits} commits: {median_ms(added) / commits:.2f} ms against {median_ms(floor) / commits:.2f} ms each",
    )


def _bare_sqlite(entries: list[Entry], directory: Path) -> Callable[[], None]:
    db = sqlite3.connect(directory / "bare.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.executescript(
        """
        CREATE TABLE branch (id INTEGER PRIMARY KEY, run_id TEXT, name TEXT, seq INTEGER, head TEXT);
        CREATE UNIQUE INDEX one ON branch (run_id, name);
        CREATE TABLE entry (branch_id INTEGER, seq INTEGER, sum TEXT, body BLOB, PRIMARY KEY (branch_id, seq));
        CREATE TABLE place (id TEXT PRIMARY KEY, branch_id INTEGER, seq INTEGER, "trigger" TEXT, created_at TEXT);
        """
    )
    numbers = itertools.count(1)

    def work() -> None:
        run = next(numbers)
        db.execute("INSERT INTO branch VALUES (?,?,'main',0,'')", (run, f"run-{run}"))
        total = ""
        for entry in entries:
            db.execute("BEGIN IMMEDIATE")
            db.execute(
                "UPDATE branch SET seq=?, head=? WHERE run_id=? AND name='main' AND seq=? AND head=?",
                (entry.seq, entry.sum, f"run-{run}", entry.seq - 1, total),
            )
            db.execute("INSERT INTO entry VALUES (?,?,?,?)", (run, entry.seq, entry.sum, entry.body))
            if place := entry.facts.get("place"):
                row = (f"{run}-{place['id']}", run, place["seq"], place["trigger"], place["at"])
                db.execute("INSERT INTO place VALUES (?,?,?,?,?)", row)
            db.execute("COMMIT")
            total = entry.sum

    return work


def _bare_json(entries: list[Entry], config: CheckpointConfig, directory: Path) -> Callable[[], None]:
    store = config.provider.open(config.location)
    documents = {
        entry.seq: Path(store.ref(place)).read_bytes() for entry in entries if (place := entry.facts.get("place"))
    }
    numbers = itertools.count()

    def work() -> None:
        where = directory / f"bare-{next(numbers)}"
        where.mkdir()
        with open(where / "journal.jsonl", "ab", buffering=0) as journal:
            for entry in entries:
                journal.write(entry.line + b"\n")
                os.fsync(journal.fileno())
                if document := documents.get(entry.seq):
                    _put(where / f"{entry.seq}.json", document)

    return work


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
