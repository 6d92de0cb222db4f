"""A database beside itself: what another does between two steps is neither lost nor undone."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from crewlite.state import SqliteProvider
from crewlite.state.verbs.doctor import doctor
from crewlite.system import disk
from crewlite.testing.bench import Branch


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.db"


@pytest.fixture
def store(path):
    store = SqliteProvider().open(str(path))
    yield store
    store.close()


def test_a_reader_never_makes_a_database_where_one_was_moved_away(store, path):
    store.append([Branch().add().commit()])
    store.close()
    watching = True

    def move(event, args):
        if watching and event == "sqlite3.connect" and path.exists():
            path.rename(path.with_suffix(".moved"))

    sys.addaudithook(move)
    try:
        assert SqliteProvider().open(str(path)).branches() == []
    finally:
        watching = False
    assert not path.exists()


def test_a_delete_whose_free_pages_cannot_be_given_back_is_done(store):
    store.append([Branch().add(50).commit()])
    last = store.read("run-1", "main")[-1]

    def full(operation):
        if b"incremental_vacuum" in operation.data:
            raise OSError(5, "the disk is ill")

    with disk.watched(full):
        store.remove("run-1", {"main": (last.seq, last.sum)})
    assert store.branches() == []


def test_a_repair_does_not_take_a_run_for_what_had_its_number_before(store, path):
    store.append([Branch("old").add().commit()])
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE entry SET body=CAST('damaged' AS BLOB)")
        db.execute("DELETE FROM branch")
        db.commit()
    new, done = Branch("new").add(3), []

    def another(operation):
        if operation.verb == "sql" and b"BEGIN" in operation.data and not done:
            done.append(operation)
            doctor(SqliteProvider().open(str(path)), repair=True)
            store.append([new.commit()])

    with disk.watched(another):
        doctor(SqliteProvider().open(str(path)), repair=True)
    assert done
    assert store.read("new", "main") == new.entries
    assert doctor(store) == []


@pytest.fixture
def connects():
    """Notes each connection to a database that this process opens."""
    opened, listening = [], [True]

    def note(event, args):
        if listening and event == "sqlite3.connect":
            opened.append(args)

    sys.addaudithook(note)
    yield opened
    listening.clear()


@pytest.mark.parametrize("holds", [True, False], ids=["holds", "does not"])
def test_a_store_that_holds_opens_the_database_once_to_read_it_and_sees_all_that_others_do(
    holds, store, path, connects
):
    branch = Branch().add()
    store.append([branch.commit()])
    reading = SqliteProvider().open(str(path))
    if holds:
        reading.hold()
    connects.clear()
    assert reading.read("run-1", "main") == branch.entries
    store.append([branch.add().commit()])
    assert reading.read("run-1", "main") == branch.entries
    assert [info.run_id for info in reading.branches()] == ["run-1"]
    assert len(connects) == (1 if holds else 3)
    store.close()
    for file in path.parent.iterdir():  # whatever is there afterwards is another database
        file.unlink()
    assert reading.branches() == []
    with contextlib.closing(SqliteProvider().open(str(path))) as other:
        other.append([Branch("other").add().commit()])
        assert [info.run_id for info in reading.branches()] == ["other"]
        reading.close()
    assert sorted(found.name for found in path.parent.iterdir()) == ["runs.db"]


def test_a_store_that_is_closed_while_threads_read_leaves_nothing_open(store, path):
    store.append([Branch().add().commit()])
    store.hold()
    begun, closed = threading.Barrier(4), threading.Event()

    def ask(db):
        begun.wait(10)
        assert closed.wait(10)
        return db.execute("SELECT run_id FROM branch").fetchall()

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(store._database.read, ask, []) for _ in range(3)]
        begun.wait(10)
        store.close()
        closed.set()
        assert [one.result() for one in asked] == [[("run-1",)]] * 3
    assert sorted(found.name for found in path.parent.iterdir()) == ["runs.db"], "SQLite deletes the others at the end"


def test_of_connections_that_are_closed_at_the_same_moment_one_is_the_last(store, path):
    begun, together = threading.Barrier(4), threading.Barrier(4)

    def ask(db):
        db.execute("SELECT run_id FROM branch").fetchall()
        begun.wait(10)
        together.wait(10)

    with ThreadPoolExecutor(3) as pool:
        for number in range(300):
            store.append([Branch(f"run-{number}").add().commit()])
            asked = [pool.submit(store._database.read, ask, None) for _ in range(3)]
            begun.wait(10)
            store.close()
            together.wait(10)
            assert [one.result() for one in asked] == [None] * 3
            assert [found.name for found in path.parent.iterdir()] == ["runs.db"], "the last one deletes the log"
