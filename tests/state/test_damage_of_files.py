"""Damage of files and databases that chance would seldom do, and what each kind of it is called."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest

from crewlite import CheckpointConfig, History
from crewlite.errors import CheckpointMismatch, CrewliteError, JournalCorrupt, StoreError, StoreUnusable
from crewlite.flow import flow, step as flow_step
from crewlite.state import JsonProvider, RuntimeState, SqliteProvider
from crewlite.state.providers import opened, provider_for
from crewlite.state.reading.locate import locate
from crewlite.testing.bench import Branch
from crewlite.texts.resuming import in_shell
from tests import children

# Files


@pytest.fixture
def kept(tmp_path):
    store, branch = JsonProvider().open(str(tmp_path / "store")), Branch().add(6)
    store.append([branch.commit()])
    return tmp_path / "store", branch, tmp_path / "store" / "journal" / "run-1" / "main.jsonl"


def test_one_zero_in_the_middle_is_damage_and_no_torn_tail(kept):
    root, branch, journal = kept
    whole = journal.read_bytes()
    for at in range(whole.index(b"\n") + 1, len(whole) - 2):
        journal.write_bytes(whole[:at] + b"\0" + whole[at + 1 :])
        try:
            found = JsonProvider().open(str(root)).read("run-1", "main")
        except JournalCorrupt:
            continue
        torn = at - whole.rfind(b"\n", 0, at) == 1 and at % 512 == 511
        assert torn or found == branch.entries[:-1], f"byte {at} hid commits that were there"


def test_an_empty_journal_is_damage_and_no_new_run(kept):
    root, _, journal = kept
    journal.write_bytes(b"")
    with pytest.raises(JournalCorrupt, match="empty"):
        JsonProvider().open(str(root)).read("run-1", "main")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-be"])
def test_a_head_file_in_another_encoding_is_not_read(tmp_path, encoding):
    """It would take an import to read it."""
    store, branch = JsonProvider().open(str(tmp_path / "store")), Branch().add()
    branch.checkpoint()
    store.append([branch.commit()])
    (head,) = (tmp_path / "store").rglob("*main.json")
    assert store.heads.read(branch.run_id, branch.branch)["seq"] == 2
    head.write_text(head.read_text(), encoding=encoding)
    assert store.heads.read(branch.run_id, branch.branch) == {}


def test_a_changed_checkpoint_file_is_left_out_of_the_list(tmp_path, caplog):
    store, branch = JsonProvider().open(str(tmp_path / "store")), Branch().add()
    checkpoint = branch.checkpoint()
    store.append([branch.commit()])
    (file,) = (tmp_path / "store").glob("*.json")
    file.write_text(file.read_text().replace('"task_completed"', '"something_else"'))
    with caplog.at_level(logging.WARNING):
        assert store.places() == []
    assert checkpoint["id"] in caplog.text


def test_a_write_that_was_cut_is_told_of_once_however_often_the_journal_is_read(tmp_path, caplog):
    store, branch = JsonProvider().open(str(tmp_path / "store")), Branch().add()
    branch.checkpoint()
    store.append([branch.commit()])
    with (tmp_path / "store" / "journal" / "run-1" / "main.jsonl").open("ab") as journal:
        journal.write(b'{"seq":')
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert len(store.read("run-1", "main")) > 0
    assert caplog.text.count("ends in a write that was cut") == 1


@pytest.mark.skipif(os.name == "nt", reason="a file is hidden from its owner in other ways there")
@pytest.mark.parametrize("hidden", ["main.jsonl", ""], ids=["journal", "run"])
def test_what_may_not_be_read_is_left_out_of_the_list_and_told_when_asked_for(hidden, forbidden, caplog):
    with forbidden() as directory:
        store = JsonProvider().open(str(directory / "store"))
        store.append([Branch().add(6).commit()])
        (directory / "store" / "journal" / "run-1" / hidden).chmod(0)
        with History(directory / "store") as history, caplog.at_level(logging.WARNING):
            assert history.runs() == []
        assert "left out" in caplog.text
        with pytest.raises(StoreError):
            store.read("run-1", "main")


@pytest.mark.skipif(os.name == "nt", reason="a directory is made read-only in other ways there")
def test_a_label_of_which_only_the_journal_was_saved_says_so_and_is_completed_by_the_next(forbidden, tmp_path):
    def label(directory):
        store, branch = JsonProvider().open(str(directory / "store")), Branch().add(2)
        branch.checkpoint()
        store.append([branch.commit()])
        with History(directory / "store") as history:
            yield history
            labelled = history.label(branch.entries[-1].commit["place"]["id"], "good")
            assert [one.label for one in history.run("run-1").checkpoints()] == [None, "good"]
            assert history.checkpoint("run-1@label:good") == labelled
            assert history.doctor() == []
        yield history

    list(label(tmp_path))  # imports what root alone may
    with forbidden() as directory:
        giving = label(directory)
        history = next(giving)
        (directory / "store").chmod(0o500)  # the files in it can be written, and none can be made
        with pytest.raises(StoreError, match="the label was not saved, or not completely .*, and try again"):
            history.label(history.checkpoints()[0].id, "good")
        (directory / "store").chmod(0o700)
        next(giving)


@pytest.mark.skipif(os.name == "nt", reason="a directory is hidden from its owner in other ways there")
@pytest.mark.parametrize("name", ["store", "runs.db"])
def test_a_location_that_may_not_be_looked_at_is_not_said_to_be_missing(name, forbidden):
    with forbidden() as directory:
        location = str(directory / "above" / name)
        with opened(provider_for(location), location) as store:
            store.append([Branch().add(1).commit()])
        with History(location) as history:
            (directory / "above").chmod(0)
            for look in (lambda: History(location), history.runs, lambda: history.run("run-1")):
                with pytest.raises(
                    StoreError, match=r"cannot be read now \(Permission denied\); give this user the right"
                ):
                    look()
            with pytest.raises(StoreError, match="Permission denied.*give this user the right"):
                RuntimeState.open("bag", location)
            (directory / "above").chmod(0o700)


@pytest.mark.skipif(os.name == "nt", reason="permissions of files are others there")
def test_a_location_without_permissions_says_which_are_missing_and_what_was_not_done(forbidden):
    with forbidden() as directory:
        location = str(directory / "runs")
        with opened(provider_for(location), location) as store:
            store.append([Branch().add(1).commit()])
        with History(location) as history:
            history.fork("run-1", branch="first")  # imports what root alone may
            Path(location, "journal", "run-1").chmod(0o500)
            with pytest.raises(StoreError, match="nothing was forked .*make the location readable and writable"):
                history.fork("run-1", branch="side")
            Path(location).chmod(0o100)
            with pytest.raises(StoreError, match="not all of it was checked .*make the location readable"):
                history.doctor()
            Path(location).chmod(0o700)


def test_what_stands_in_the_place_of_a_journal_is_not_tried_again(tmp_path):
    (tmp_path / "journal").write_text("mine")
    with History(tmp_path) as history, pytest.raises(StoreError, match="Not a directory.*look at what is at this path"):
        history.runs()


# Databases


@pytest.mark.skipif(os.name == "nt", reason="permissions of files are others there")
def test_a_database_that_was_read_only_names_the_file_beside_it_that_still_is(forbidden):
    with forbidden() as directory:
        location, branch = directory / "runs.db", Branch().add(1)
        with opened(SqliteProvider(), str(location)) as store:
            store.append([branch.commit()])
        location.chmod(0o400)
        with History(location) as history:
            assert len(history.runs()) == 1  # which makes the files beside it, with its permissions
        location.chmod(0o600)
        more = branch.add(1).commit()
        with opened(SqliteProvider(), str(location)) as store:
            with pytest.raises(OSError, match=r"readonly database \(.*/runs\.db-shm may not be written\)"):
                store.append([more])
            for beside in ("-wal", "-shm"):
                (directory / f"runs.db{beside}").chmod(0o600)
            store.append([more])


@pytest.mark.skipif(os.name == "nt", reason="permissions of files are others there")
def test_a_database_in_a_read_only_directory_is_not_read_without_its_log(tmp_path, forbidden):
    with opened(SqliteProvider(), str(tmp_path / "runs.db")) as store:
        store.append([Branch().add(3).commit()])
        files = {f"runs.db{end}": (tmp_path / f"runs.db{end}").read_bytes() for end in ("", "-wal")}
    with forbidden() as directory:
        for name, data in files.items():
            (directory / name).write_bytes(data)
        directory.chmod(0o500)
        with (
            pytest.raises(StoreError, match="beside it.* or copy all of them"),
            History(directory / "runs.db") as found,
        ):
            found.runs()
        directory.chmod(0o700)
        with History(directory / "runs.db") as found:
            assert len(found.runs()) == 1


def test_a_database_that_lost_its_log_answers_as_it_stood_before_or_says_so(tmp_path):
    store, branch = SqliteProvider().open(str(tmp_path / "runs.db")), Branch().add(3)
    store.append([branch.commit()])
    store.append([branch.add(3).commit()])
    for gone in ("-wal", "-shm"):
        copy = tmp_path / f"copy{gone}"
        copy.mkdir()
        for file in tmp_path.glob("runs.db*"):
            if not file.name.endswith(gone):
                shutil.copy(file, copy)
        try:
            with History(copy / "runs.db") as history:
                told = [len(run.steps) for run in history.runs()]
            assert told in ([], [5])
        except CrewliteError:
            pass
    store.close()


def as_killed(where):
    """A copy of the database runs.db in this directory, with its log, as a killed process leaves it."""
    killed = where / "as a killed process leaves it"
    killed.mkdir()
    for file in where.glob("runs.db*"):
        shutil.copy(file, killed)
    return killed / "runs.db"


@pytest.mark.parametrize("gone", [("-wal",), ("-shm",), ("-wal", "-shm")])
def test_a_log_that_is_deleted_during_a_run_takes_nothing_with_it_that_is_stored_after(tmp_path, gone):
    store, branch = SqliteProvider().open(str(tmp_path / "runs.db")), Branch().add(3)
    store.append([branch.commit()])
    for name in gone:
        (tmp_path / f"runs.db{name}").unlink()
    store.append([branch.add(2).commit()])
    with History(as_killed(tmp_path)) as history:
        assert [len(run.steps) for run in history.runs()] == [4]
        assert history.doctor() == []
    store.close()


def test_a_program_that_copies_its_database_during_a_run_loses_nothing(tmp_path):
    location = tmp_path / "runs.db"
    mine, theirs = Branch("mine").add(1), Branch("theirs").add(1).commit()
    with opened(SqliteProvider(), str(location)) as store:
        store.append([mine.commit()])
        assert len(store.branches()) == 1
        shutil.copy(location, tmp_path / "backup.db")  # the system drops all locks that this process has on the file
        code = "import pickle, sys; from crewlite.state.providers import SqliteProvider as P; s = P().open(sys.argv[1])"
        code += (
            "; s.append([pickle.loads(sys.stdin.buffer.read())]); s.close()"  # deletes the log, as if it were the last
        )
        children.run([sys.executable, "-c", code, str(location)], input=pickle.dumps(theirs), check=True)
        assert len(store.branches()) == 2
        store.append([mine.add(2).commit()])
        with History(as_killed(tmp_path)) as history:
            assert {run.run_id: len(run.steps) for run in history.runs()} == {"mine": 2, "theirs": 0}
            assert history.doctor() == []


def test_the_database_of_another_program_is_told_by_looking_too(tmp_path):
    for version in (0, 1):
        path = tmp_path / f"theirs-{version}.db"
        theirs = sqlite3.connect(path)
        theirs.execute("CREATE TABLE recipe (name TEXT)")
        theirs.execute(f"PRAGMA user_version={version}")
        theirs.close()
        with History(path) as history, pytest.raises((StoreUnusable, JournalCorrupt)):
            history.runs()


def test_a_row_that_is_gone_is_told_by_a_warning(tmp_path, caplog):
    store = SqliteProvider().open(str(tmp_path / "runs.db"))
    store.append([Branch("one").add(2).commit(), Branch("two").add(2).commit()])
    store.close()
    with sqlite3.connect(tmp_path / "runs.db") as db:
        db.execute("DELETE FROM branch WHERE run_id='one'")
    db.close()
    with History(tmp_path / "runs.db") as history, caplog.at_level(logging.WARNING):
        assert [run.run_id for run in history.runs()] == ["two"]
    assert "branches that are gone" in caplog.text


@pytest.fixture
def rows(tmp_path):
    """A database in which the newest branches are those of run "one", and a function that deletes a row of these."""
    path = tmp_path / "runs.db"
    store, one = SqliteProvider().open(str(path)), Branch("one").add(3)
    store.append([Branch("two").add(2).commit()])
    store.append([one.commit()])
    base = {"branch": "main", "seq": 3, "sum": one.entries[-1].sum, "place": None}
    store.append([Branch("one", "late", uid=one.uid, base=base).add(3).commit()])
    store.close()

    def delete(branch):
        with contextlib.closing(sqlite3.connect(path)) as db:
            assert db.execute("DELETE FROM branch WHERE run_id='one' AND name=?", (branch,)).rowcount == 1
            db.commit()

    return path, delete


def test_a_new_branch_takes_no_commits_of_a_branch_whose_row_is_gone(rows):
    path, delete = rows
    delete("late")
    store = SqliteProvider().open(str(path))
    store.append([Branch("three").add(8).commit()])
    assert len(store.read("three", "main")) == 8
    store.close()
    with History(path) as history:
        assert [finding.what for finding in history.doctor(repair=True)] == ["stale_index"]
        assert history.doctor() == []
        assert len(history._store.read("one", "late")) == 3


def test_a_run_whose_row_is_gone_is_not_begun_again(rows):
    path, delete = rows
    delete("late")
    delete("main")
    store = SqliteProvider().open(str(path))
    with pytest.raises(JournalCorrupt, match="its row in the table of branches, with id 2, is gone") as caught:
        store.append([Branch("one").add(3).commit()])
    assert in_shell("doctor --repair", str(path)) in str(caught.value)
    store.close()
    with History(path) as history:
        history.doctor(repair=True)
        assert {run.ref for run in history.runs()} == {"one/main", "one/late", "two/main"}


def test_a_checkpoint_whose_row_is_damaged_is_not_taken_for_that_of_a_fork_with_other_inputs(tmp_path):
    path = tmp_path / "runs.db"

    @flow_step
    def noted(about):
        return f"of {about}"

    @flow(checkpoint=CheckpointConfig(location=path))
    def told(about):
        return noted(about)

    told.kickoff("tides", run_id="one")
    with History(path) as history:
        place = history.run("one").checkpoints()[0]
        history.fork(place, inputs={"about": "ships"}, branch="other")
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("UPDATE place SET seq = seq + 1000 WHERE id = ?", (place.id,)).rowcount == 1
        db.commit()
    assert told.kickoff(from_checkpoint=f"{path}#{place.id}") == "of tides"


# Found by chance, kept as they are.


def test_a_fork_takes_other_inputs_also_where_a_name_is_unusual(make_crew, on_disk):
    config = on_disk()
    make_crew(lambda messages: "said", checkpoint=config).kickoff({"$": 1, "topic": "tides"}, run_id="r")
    crew = make_crew(lambda messages: "said", checkpoint=CheckpointConfig(location=config.location))
    crew.fork("r", branch="b").kickoff({"topic": "ships"})
    with History(config.location) as history:
        assert history.run("r/b").inputs == {"$": 1, "topic": "ships"}


def test_a_checkpoint_file_copied_over_another_is_not_taken_for_it(tmp_path):
    store, branch = JsonProvider().open(str(tmp_path / "store")), Branch().add()
    branch.checkpoint()
    branch.checkpoint()
    store.append([branch.commit()])
    first, second = sorted((tmp_path / "store").glob("*.json"))
    shutil.copy(second, first)
    with pytest.raises(CheckpointMismatch, match="changed after it was written"):
        locate(str(first), "", None, None)
    (finding,) = History(tmp_path / "store").doctor(repair=True)
    assert finding.what == "stale_index"
    assert History(tmp_path / "store").doctor() == []
    assert locate(str(first), "", None, None).checkpoint in first.name
