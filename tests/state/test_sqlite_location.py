"""A database beside itself: what another does between two steps is neither lost nor undone."""

from __future__ import annotations

import contextlib
import sqlite3
import sys

import pytest

from crewlite import disk
from crewlite.state import SqliteProvider
from crewlite.state.verbs.doctor import doctor
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
