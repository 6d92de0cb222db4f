"""A database of an earlier crewlite goes on: its tables are migrated with the first write, as a whole."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest

from crewlite import History
from crewlite.state import SqliteProvider
from crewlite.testing.bench import Branch
from tests import children, soak

OLD = Path(__file__).parents[1] / "golden" / "schema-1" / "store.db"
"""Made by the first crewlite that had this schema, which counted no layouts."""
WRITE = """
import sys
from crewlite.state import SqliteProvider
from crewlite.testing.bench import Branch
store = SqliteProvider().open(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
store.append([Branch(sys.argv[2]).add(2).commit()])
print("sqlite_utils" in sys.modules)
"""


def append(path, limit):
    """Append a run, and die before statement `limit`. Returns how many statements there were."""
    count = 0

    def hear(frame, event, function):
        nonlocal count
        count += event == "c_call" and getattr(function, "__name__", "") in ("execute", "executescript", "executemany")
        if count == limit:
            os._exit(9)

    store, commit = SqliteProvider().open(str(path)), Branch("later").add(2).commit()
    sys.setprofile(hear)
    store.append([commit])
    sys.setprofile(None)
    store.close()
    return count


def tables(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return sorted(db.execute("SELECT type, name, sql FROM sqlite_master").fetchall())


def entries(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT branch_id, seq, sum, body FROM entry ORDER BY branch_id, seq").fetchall()


def started(path, name):
    return children.Child(
        [sys.executable, "-c", WRITE, str(path), name], stdin=children.PIPE, stdout=children.PIPE, text=True, cold=True
    )


@pytest.fixture
def old(tmp_path):
    return Path(shutil.copy(OLD, tmp_path / "runs.db"))


def test_an_old_database_gets_the_tables_of_a_new_one_with_the_first_write_and_keeps_its_runs(old, tmp_path):
    runs = entries(old)
    assert "_sqlite_migrations" not in {name for _, name, _ in tables(old)}
    with History(old) as history:
        assert history.doctor() == []
    store, new = SqliteProvider().open(str(old)), SqliteProvider().open(str(tmp_path / "new.db"))
    for opened in (store, new):
        opened.append([Branch("later").add(2).commit()])
        opened.results.remember("0" * 32, b"kept")
        assert (opened.results.recall("0" * 32), len(opened.read("later", "main"))) == (b"kept", 2)
        opened.close()
    assert {name for _, name, _ in tables(old)} == {name for _, name, _ in tables(tmp_path / "new.db")}
    assert set(runs) < set(entries(old))
    with History(old) as history:
        assert history.doctor() == []
        assert {"finished", "folded", "later"} <= {run.run_id for run in history.runs()}


def test_a_database_that_has_the_newest_tables_is_opened_without_the_library_that_makes_them(old):
    for name, loads in (("first", "True"), ("second", "False")):
        assert started(old, name).communicate("go\n")[0].split() == ["ready", loads]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a child")
@soak.every(3)
def test_a_migration_that_is_killed_anywhere_leaves_the_old_tables_or_the_new_ones(old, every, tmp_path):
    left, before, runs = [], tables(old), entries(old)
    pattern = shutil.copy(old, tmp_path / "whole.db")
    statements = append(pattern, -1)
    after = tables(pattern)
    for limit in range(statements, 0, -every):
        path = shutil.copy(old, tmp_path / f"{limit}.db")
        child = os.fork()
        if not child:
            append(path, limit)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        left.append(tables(path))
        assert left[-1] in (before, after)
        assert set(runs) <= set(entries(path))
        store = SqliteProvider().open(str(path))
        store.append([Branch("again").add().commit()])
        store.close()
        assert tables(path) == after
    assert statements > 10
    assert {tuple(found) for found in left} == {tuple(before), tuple(after)}


@pytest.mark.parametrize("there", [True, False], ids=["old", "new"])
def test_processes_that_open_one_database_at_once_all_write(there, old, tmp_path):
    path = old if there else tmp_path / "new.db"
    several = [started(path, f"r{number}") for number in range(4)]
    for child in several:
        assert child.stdout.readline() == "ready\n"
    for child in several:
        child.stdin.write("go\n")
        child.stdin.flush()
    assert [child.wait() for child in several] == [0] * 4
    store = SqliteProvider().open(str(path))
    assert {f"r{number}" for number in range(4)} <= {info.run_id for info in store.branches()}
    with History(path) as history:
        assert history.doctor() == []
