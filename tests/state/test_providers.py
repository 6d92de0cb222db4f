"""The built-in providers tell a damaged store from a sound one, and what cannot work from what can."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crewlite.errors import (
    BranchConflictError,
    CheckpointMismatch,
    JournalCorrupt,
    RefError,
    SchemaTooNew,
    StoreUnusable,
)
from crewlite.ids import now
from crewlite.state import JsonProvider, SqliteProvider
from crewlite.state.format.entry import SCHEMA, seal
from crewlite.state.journal.compaction import compact_entries
from crewlite.state.providers import opened, provider_for
from crewlite.state.reading.locate import locate
from crewlite.system import disk
from crewlite.testing.bench import Branch

# Locations that cannot work are refused by opening them or by the first commit, before anything is paid.


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


@pytest.mark.parametrize("provider", [JsonProvider(), SqliteProvider()], ids=["json", "sqlite"])
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


def test_two_who_write_to_the_same_runs_in_another_order_never_wait_for_each_other(tmp_path):
    stores, runs = [JsonProvider().open(str(tmp_path)) for _ in range(2)], [f"run-{n}" for n in range(8)]
    sides = [[Branch(run, branch=f"side-{n}").add() for run in order] for n, order in enumerate((runs, runs[::-1]))]
    stores[0].append([Branch(run).add().commit() for run in runs])

    def write(store, branches):
        store.append([branch.commit() for branch in branches])
        for _ in range(20):
            store.append([branch.add().commit() for branch in branches])

    with ThreadPoolExecutor() as threads:
        for writing in [threads.submit(write, store, side) for store, side in zip(stores, sides, strict=True)]:
            writing.result(30)
    assert {len(stores[0].read(run, f"side-{n}")) for run in runs for n in range(2)} == {21}


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
@pytest.mark.parametrize("provider", [JsonProvider(), SqliteProvider()], ids=["json", "sqlite"])
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


# Damage is told, never read over.


@pytest.fixture
def kept(tmp_path):
    """A JSON store with a run of five entries, places at 2 and 4: (store, branch, path of the journal, places)."""
    store, branch = JsonProvider().open(str(tmp_path / "store")), Branch()
    checkpoints = []
    for _ in range(2):
        store.append([branch.add().commit()])
        checkpoints.append(branch.checkpoint())
        store.append([branch.commit()])
    store.append([branch.add().commit()])
    return store, branch, tmp_path / "store" / "journal" / "run-1" / "main.jsonl", checkpoints


def again(store):
    return JsonProvider().open(store.location)


def test_a_torn_tail_is_left_out_wherever_the_write_was_cut(kept):
    store, branch, journal, _ = kept
    whole = journal.read_bytes()
    last = len(branch.entries[-1].line) + 1
    for cut in range(1, last + 1):
        journal.write_bytes(whole[:-cut])
        assert again(store).read("run-1", "main") == branch.entries[:-1]


def test_blocks_that_a_power_cut_left_unwritten_are_left_out(kept):
    store, branch, journal, _ = kept
    whole = journal.read_bytes()
    for end in (b"\0" * 4096, branch.entries[-1].line[:40] + b"\0" * 40, b"\0\n"):
        journal.write_bytes(whole + end)
        assert again(store).read("run-1", "main") == branch.entries


def test_the_next_append_cuts_a_torn_tail_off(kept):
    store, branch, journal, _ = kept
    journal.write_bytes(journal.read_bytes() + b'{"sum":"0123')
    other = again(store)
    other.append([branch.add(2).commit()])
    assert again(store).read("run-1", "main") == branch.entries
    assert journal.read_bytes() == b"".join(entry.line + b"\n" for entry in branch.entries)


def test_a_flipped_byte_is_corruption_and_names_the_newest_sound_place(kept):
    store, branch, journal, checkpoints = kept
    whole = journal.read_bytes()
    starts = list(itertools.accumulate((len(entry.line) + 1 for entry in branch.entries), initial=0))
    sound = [None, None, store.ref(checkpoints[0]), store.ref(checkpoints[0]), store.ref(checkpoints[1])]
    for line, (start, stop) in enumerate(itertools.pairwise(starts)):
        for at in range(start, min(stop, len(whole) - 1), 7):
            journal.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(JournalCorrupt, match=f"line {line + 1}") as raised:
                again(store).read("run-1", "main")
            assert raised.value.sound == sound[line]


def test_damage_in_the_middle_is_not_taken_for_a_torn_tail(kept):
    store, _, journal, _ = kept
    whole = journal.read_bytes()
    at = whole.index(b"\n") + 60
    journal.write_bytes(whole[:at] + b"#" + whole[at + 1 :] + b'{"sum":"torn')
    with pytest.raises(JournalCorrupt, match="line 2"):
        again(store).read("run-1", "main")


def test_a_torn_tail_hides_no_commits_of_another_process(kept):
    store, branch, journal, _ = kept
    mine = branch.twin().add()
    again(store).append([branch.add(2).commit()])
    journal.write_bytes(journal.read_bytes() + b'{"sum":"torn')
    with pytest.raises(BranchConflictError):
        store.append([mine.commit()])
    assert again(store).read("run-1", "main") == branch.entries


def test_a_branch_is_not_made_over_one_with_a_torn_tail(kept):
    store, branch, journal, _ = kept
    journal.write_bytes(journal.read_bytes() + b'{"sum":"torn')
    with pytest.raises(BranchConflictError):
        again(store).append([Branch().add().commit()])
    assert again(store).read("run-1", "main") == branch.entries


def test_sqlite_tells_a_changed_entry_and_a_missing_one(tmp_path):
    path = tmp_path / "runs.db"
    store, branch = SqliteProvider().open(str(path)), Branch().add()
    checkpoint = branch.checkpoint()
    store.append([branch.add(2).commit()])
    ref = store.ref(checkpoint)
    store.close()
    for damage in (
        "UPDATE entry SET body = replace(body, 'reply 4', 'reply 5') WHERE seq = 4",
        "DELETE FROM entry WHERE seq = 3",
    ):
        db = sqlite3.connect(path)
        db.execute(damage)
        db.commit()
        db.close()
        store = SqliteProvider().open(str(path))
        with pytest.raises(JournalCorrupt, match=r"commit 4") as raised:
            store.read("run-1", "main")
        assert raised.value.sound == ref
        store.close()


def test_a_database_with_overwritten_pages_is_corruption_not_a_traceback_of_sqlite(tmp_path):
    path = tmp_path / "runs.db"
    store, branch = SqliteProvider().open(str(path)), Branch().add(200)
    store.append([branch.commit()])
    store.close()
    whole = path.read_bytes()
    for page in range(1, len(whole) // 4096):
        path.write_bytes(whole[: page * 4096] + b"\xa5" * 4096 + whole[(page + 1) * 4096 :])
        try:
            store = SqliteProvider().open(str(path))
        except (JournalCorrupt, StoreUnusable):
            continue
        try:
            assert store.read("run-1", "main") in ([], branch.entries)
            store.branches()
            store.places()
        except JournalCorrupt:
            pass
        finally:
            store.close()


# A newer crewlite's records are left alone.


def newer(branch, **commit):
    entry = seal(
        {"schema": SCHEMA + 1, "seq": len(branch.entries) + 1, "at": now().isoformat(), **commit},
        after=branch.entries[-1].sum,
    )
    branch.entries.append(entry)
    return branch


@pytest.mark.parametrize("provider", [JsonProvider(), SqliteProvider()], ids=["json", "sqlite"])
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


# A checkpoint file is a view: the journal decides.


def test_a_checkpoint_file_names_its_place(kept):
    store, _, _, checkpoints = kept
    for checkpoint in checkpoints:
        assert locate(store.ref(checkpoint), ".", None, None).checkpoint == checkpoint["id"]
        document = json.loads(Path(store.ref(checkpoint)).read_text())
        assert (document["run_id"], document["branch"], document["seq"]) == ("run-1", "main", checkpoint["seq"])
        assert list(document)[:6] == ["schema", "id", "run_id", "branch", "parent_id", "seq"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seq", 1),
        ("label", "mine"),
        ("trigger", "other"),
        ("parent_id", "x"),
        ("about", {}),
        ("extra", 1),
        ("id", "0" * 32),
    ],
)
def test_a_checkpoint_file_changed_by_hand_is_refused(field, value, kept):
    store, _, _, checkpoints = kept
    path = store.ref(checkpoints[0])
    document = json.loads(Path(path).read_text())
    Path(path).write_text(json.dumps({**document, field: value}))
    with pytest.raises(CheckpointMismatch) as raised:
        locate(path, ".", None, None)
    assert raised.value.sound == store.ref(checkpoints[1])


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"run_id": 1}', '{"run_id": "run-1", "branch": "main"}', "null"]
)
def test_a_checkpoint_file_that_is_none_any_more_is_refused(text, kept):
    store, _, _, checkpoints = kept
    path = store.ref(checkpoints[0])
    Path(path).write_text(text)
    with pytest.raises(CheckpointMismatch):
        locate(path, ".", None, None)


def test_a_checkpoint_file_that_points_beyond_its_journal_is_refused(kept):
    store, branch, journal, checkpoints = kept
    journal.write_bytes(b"".join(entry.line + b"\n" for entry in branch.entries[:3]))
    assert locate(store.ref(checkpoints[0]), ".", None, None).checkpoint == checkpoints[0]["id"]
    with pytest.raises(CheckpointMismatch, match="does not name this checkpoint") as raised:
        locate(store.ref(checkpoints[1]), ".", None, None)
    assert raised.value.sound == store.ref(checkpoints[0])
    journal.unlink()
    with pytest.raises(CheckpointMismatch, match="its journal is missing"):
        locate(store.ref(checkpoints[0]), ".", None, None)


def test_a_checkpoint_file_that_does_not_exist_is_a_ref_that_names_nothing(kept):
    store, _, _, checkpoints = kept
    with pytest.raises(RefError, match="does not exist") as raised:
        locate(store.ref(checkpoints[0]).replace(".json", "0.json"), ".", None, None)
    assert store.ref(checkpoints[1]) in raised.value.candidates


def test_missing_checkpoint_files_are_made_again_at_the_next_append(kept):
    store, branch, _, checkpoints = kept
    before = {store.ref(checkpoint): Path(store.ref(checkpoint)).read_bytes() for checkpoint in checkpoints}
    for path in before:
        os.unlink(path)
    other = again(store)
    other.append([branch.add().commit()])
    assert {path: Path(path).read_bytes() for path in before} == before


def test_foreign_json_files_in_the_location_disturb_nobody(kept, tmp_path):
    store, _, _, checkpoints = kept
    for text in ("{}", "[1, 2]", '{"id": 7}', "not json"):
        (tmp_path / "store" / "my_notes.json").write_text(text)
        assert [checkpoint.id for checkpoint in again(store).places(checkpoints[0]["id"])] == [checkpoints[0]["id"]]
        assert len(again(store).places(checkpoints[0]["id"][:4])) == 2


def test_a_failed_checkpoint_file_is_made_by_trying_again(tmp_path):
    store, branch = JsonProvider().open(str(tmp_path / "store")), Branch().add()
    store.append([branch.commit()])
    checkpoint = branch.checkpoint()
    commit = branch.commit()

    def fail(operation):
        if operation.verb == "rename":
            raise OSError(28, "No space left on device")

    with disk.watched(fail), pytest.raises(OSError, match="No space left"):
        store.append([commit])
    store.append([commit])
    assert store.read("run-1", "main") == branch.entries
    assert [found.id for found in store.places(checkpoint["id"])] == [checkpoint["id"]]


def test_a_location_may_hold_any_character_that_a_path_may(tmp_path):
    for provider, name in itertools.product(
        [JsonProvider(), SqliteProvider()], ["a b", "a#b", "a?b", "ünï", "100%", "a~1@x"]
    ):
        location = str(tmp_path / f"{provider.name} {name}" / "store")
        store, branch = provider.open(location), Branch().add()
        checkpoint = branch.checkpoint()
        store.append([branch.commit()])
        store.close()
        assert locate(store.ref(checkpoint), ".", provider, None).checkpoint == checkpoint["id"]
        assert locate(store.location, ".", provider, None).run_id == "run-1"


def test_a_journal_that_was_folded_to_its_old_length_is_not_taken_for_the_old_one(tmp_path):
    ours, theirs = (JsonProvider().open(str(tmp_path / "store")) for _ in range(2))
    branch = Branch().add(12)
    ours.append([branch.commit()])
    journal = tmp_path / "store" / "journal" / "run-1" / "main.jsonl"
    length, late = journal.stat().st_size, branch.twin().add()
    own = theirs.read("run-1", "main")
    compacted = compact_entries([], own, ())
    theirs.rewrite("run-1", "main", own, compacted)
    gap = length - journal.stat().st_size - len(branch.twin().add().entries[-1].line) - 1
    branch.add(note="x" * (gap - len(',"note":""')))
    theirs.append([branch.commit()])
    assert journal.stat().st_size == length, "as long as before, and another"
    with pytest.raises(BranchConflictError):
        ours.append([late.commit()])
    assert theirs.read("run-1", "main")[-1].sum == branch.entries[-1].sum
