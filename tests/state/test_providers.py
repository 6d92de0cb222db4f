"""Where the built-in providers can work: what cannot be is refused before anything is paid, and left alone."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat

import pytest

from crewlite.errors import BranchConflictError, SchemaTooNew, StoreUnusable
from crewlite.ids import now
from crewlite.state import JsonProvider, SqliteProvider
from crewlite.state.format.entry import SCHEMA, seal
from crewlite.state.providers import opened, provider_for
from crewlite.state.reading.locate import locate
from crewlite.system import disk
from crewlite.testing.bench import Branch

both = pytest.mark.parametrize("provider", [JsonProvider(), SqliteProvider()], ids=["json", "sqlite"])


def begin(provider, location):
    """What a kickoff does with a location: open it, and save the beginning of a run."""
    store = provider.open(str(location))
    try:
        store.append([Branch().add().commit()])
    finally:
        store.close()
    return store


@pytest.mark.parametrize(
    ("provider", "name", "problem"),
    [
        (SqliteProvider(), "", "is a directory.*JsonProvider"),
        (SqliteProvider(), "notes.db", "not a SQLite database"),
        (JsonProvider(), "notes.txt", "is a file.*directory"),
        (JsonProvider(), "runs.db", "is a database.*SqliteProvider"),
    ],
)
def test_what_is_no_store_of_a_provider_is_refused_and_left_alone(provider, name, problem, tmp_path):
    begin(SqliteProvider(), tmp_path / "runs.db")
    for notes in ("notes.db", "notes.txt"):
        (tmp_path / notes).write_text("these are notes, not tables")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(StoreUnusable, match=problem):
        provider.open(str(tmp_path / name))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("beside", ["-wal", "-journal"])
def test_sqlite_says_of_a_database_that_cannot_be_opened_now_what_to_do_and_leaves_it_alone(tmp_path, beside):
    path = tmp_path / "runs.db"
    begin(SqliteProvider(), path)
    before, obstacle = path.read_bytes(), path.with_name(f"runs.db{beside}")
    obstacle.mkdir()
    with pytest.raises(StoreUnusable, match=r"cannot be opened now \(.*\)\. Nothing was changed: .*, and try again"):
        SqliteProvider().open(str(path))
    obstacle.rmdir()
    assert path.read_bytes() == before
    with contextlib.closing(SqliteProvider().open(str(path))) as store:
        assert store.branches()


def test_sqlite_refuses_the_database_of_another_program_and_leaves_it_alone(tmp_path):
    path = tmp_path / "theirs.db"
    theirs = sqlite3.connect(path)
    theirs.execute("CREATE TABLE recipe (name TEXT)")
    theirs.execute("INSERT INTO recipe VALUES ('soup')")
    theirs.commit()
    theirs.close()
    with pytest.raises(StoreUnusable, match="another program"):
        begin(SqliteProvider(), path)
    theirs = sqlite3.connect(path)
    tables = theirs.execute("SELECT name FROM sqlite_master").fetchall()
    theirs.close()
    assert tables == [("recipe",)]


@both
@pytest.mark.parametrize("verb", ["mkdir", "write", "fsync_dir"])
def test_a_disk_that_fails_is_told_with_its_own_words(provider, verb, tmp_path):
    def fail(operation):
        if operation.verb == verb:
            raise OSError(28, "No space left on device")

    with disk.watched(fail), pytest.raises(OSError, match="No space left on device"):
        begin(provider, tmp_path / "new" / "store")


def a_fork_of(store):
    main = Branch().add(2)
    store.append([main.commit()])
    return main.forked("deep/fork", 2).add()


@pytest.mark.skipif(os.name == "nt", reason="Windows syncs no directories")
@pytest.mark.parametrize("make", [lambda store: Branch().add(), a_fork_of], ids=["a run", "a fork"])
def test_a_name_whose_sync_has_failed_is_taken_back_and_the_next_try_syncs_it(make, tmp_path):
    store, synced = JsonProvider().open(str(tmp_path / "store")), []
    made = make(store)
    commit, journal = made.commit(), tmp_path / "store/journal/run-1" / f"{made.branch}.jsonl"

    def fail(operation):
        if operation.verb == "fsync_dir" and journal.exists():
            raise OSError(5, "Input/output error")

    with disk.watched(fail), pytest.raises(OSError, match="Input/output error"):
        store.append([commit])
    assert not journal.exists()
    assert (made.branch == "main") == (store.branches("run-1") == [])
    with disk.watched(lambda operation: synced.append(operation.path) if operation.verb == "fsync_dir" else None):
        store.append([commit])
    renamed = journal.parent if made.branch == "main" else None  # synced under the name that it had before
    names = [str(path) for path in journal.parents if (tmp_path / "store") in path.parents and path != renamed]
    assert set(names) <= set(synced)


def test_a_location_says_which_provider_it_means(tmp_path):
    assert [provider_for(name).name for name in ("a.db", "a.SQLITE", "a.sqlite3", "a", "a.b", "db")] == [
        *["sqlite"] * 3,
        *["json"] * 3,
    ]


def test_sqlite_writes_at_the_location_unless_there_is_a_database_of_an_earlier_release_beside_it(tmp_path):
    assert begin(SqliteProvider(), tmp_path / "runs").location == str(tmp_path / "runs")
    begin(SqliteProvider(), tmp_path / "old.db").close()
    for given, made in (("old", "old.db"), (".checkpoints", ".checkpoints.db")):
        assert SqliteProvider().open(str(tmp_path / given)).location == str(tmp_path / made)


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps other books")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
@both
def test_what_is_written_is_for_its_owner_alone_whatever_the_umask(provider, umask, tmp_path):
    before = os.umask(umask)
    try:
        store, branch = provider.open(str(tmp_path / "deep" / "store")), Branch("run-1", "x/y").add()
        branch.checkpoint()
        store.append([branch.commit()])
        store.append([branch.add().commit()])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "deep").rglob("*")}
        kinds = {path.name: path.is_dir() for path in (tmp_path / "deep").rglob("*")}
        store.close()
    finally:
        os.umask(before)
    assert {name: oct(mode) for name, mode in modes.items()} == {
        name: "0o700" if is_directory else "0o600" for name, is_directory in kinds.items()
    }


def test_a_json_location_keeps_itself_out_of_version_control(tmp_path):
    JsonProvider().open(str(tmp_path / "store"))
    assert not (tmp_path / "store").exists(), "opening is not writing"
    begin(JsonProvider(), tmp_path / "store")
    assert (tmp_path / "store" / ".gitignore").read_text() == "*\n"


def newer(branch, **commit):
    entry = seal(
        {"schema": SCHEMA + 1, "seq": len(branch.entries) + 1, "at": now().isoformat(), **commit},
        after=branch.entries[-1].sum,
    )
    branch.entries.append(entry)
    return branch


@both
def test_a_newer_journal_is_refused_and_left_untouched(provider, tmp_path):
    location, branch = str(tmp_path / "store"), Branch().add()
    with opened(provider, location) as store:
        store.append([branch.commit()])
        other = branch.twin().add()
        store.append([newer(branch).commit()])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with opened(provider, location) as store, pytest.raises(SchemaTooNew, match="upgrade"):
        store.read("run-1", "main")
    with opened(provider, location) as store, pytest.raises((SchemaTooNew, BranchConflictError)):
        store.append([other.commit()])
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_writing_where_a_database_cannot_be_any_more_is_an_error_of_storage(tmp_path):
    store = SqliteProvider().open(str(tmp_path / "store.db"))
    (tmp_path / "store.db").mkdir()
    for write in (lambda: store.append([Branch().add().commit()]), lambda: store.results.remember("0" * 32, b"x")):
        with pytest.raises(OSError, match="unable to open"):
            write()


def test_a_newer_database_is_refused_and_left_untouched(tmp_path):
    path = tmp_path / "runs.db"
    begin(SqliteProvider(), path)
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version={SCHEMA + 1}")
    db.close()
    before = path.read_bytes()
    store = SqliteProvider().open(str(path))
    with pytest.raises(SchemaTooNew, match="upgrade"):
        store.read("run-1", "main")
    with pytest.raises(SchemaTooNew, match="upgrade"):
        store.append([Branch("run-2").add().commit()])
    store.close()
    assert path.read_bytes() == before


@both
def test_a_location_may_hold_any_character_that_a_path_may(provider, tmp_path):
    for name in ("a b", "a#b", "a?b", "ünï", "100%", "a~1@x"):
        location = str(tmp_path / name / "store")
        store, branch = provider.open(location), Branch().add()
        checkpoint = branch.checkpoint()
        store.append([branch.commit()])
        store.close()
        assert locate(store.ref(checkpoint), ".", provider, None).checkpoint == checkpoint["id"]
        assert locate(store.location, ".", provider, None).run_id == "run-1"
