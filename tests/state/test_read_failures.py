"""Files that the system does not read for the moment: they are not called damaged, and their runs not missing."""

from __future__ import annotations

import errno
import os
import sqlite3

import pytest

from crewlite import History
from crewlite.errors import StoreError
from crewlite.state.providers.sqlite_database import not_read_now
from tests.parts import Stop
from tests.state.doctoring import crew_at


@pytest.mark.parametrize("kind", ["checkpoint", "journal"])
def test_a_file_that_the_system_does_not_read_for_the_moment_is_not_called_damaged(kind, tmp_path, monkeypatch):
    crew = crew_at(tmp_path / "kept")
    crew.kickoff(run_id="r")
    ref = History(tmp_path / "kept").run("r").checkpoints()[-1].ref
    _unreadable(ref if kind == "checkpoint" else _journal(tmp_path, "main"), monkeypatch)
    _not_read_now(lambda: crew.kickoff(from_checkpoint=ref))
    monkeypatch.undo()
    assert crew.kickoff(from_checkpoint=ref).raw == "done"


@pytest.mark.parametrize("unread", ["main", "other"])
def test_a_run_that_the_system_does_not_read_for_the_moment_is_not_said_to_be_missing(unread, tmp_path, monkeypatch):
    crew = crew_at(tmp_path / "kept")
    crew.kickoff(run_id="r")
    with History(tmp_path / "kept") as history:
        history.fork("r", branch="other")
        _unreadable(_journal(tmp_path, unread), monkeypatch)
        reads = {
            "main": [lambda: history.run("r"), lambda: history.run_by_id("r"), lambda: history.branches("r")],
            "other": [lambda: history.run("r/other")],
        }
        for branch, verbs in reads.items():
            for verb in verbs:
                if branch == unread:
                    _not_read_now(verb)
                else:
                    verb()


def test_a_fork_that_the_system_does_not_read_for_the_moment_keeps_no_other_branch_from_its_verbs(
    tmp_path, monkeypatch
):
    with pytest.raises(Stop):
        crew_at(tmp_path / "kept", ["a", "b", Stop()], 3).kickoff(run_id="r")
    with History(tmp_path / "kept") as history:
        history.fork("r", branch="other")
        _unreadable(_journal(tmp_path, "other"), monkeypatch)
        assert history.label("r", "good").label == "good"
        assert "cannot be read now" in history.as_html("r")
    assert crew_at(tmp_path / "kept", ["c"], 3).kickoff(run_id="r").raw == "c"


def test_where_the_noted_length_of_a_journal_is_not_read_the_log_says_what_that_means(tmp_path, caplog, monkeypatch):
    crew = crew_at(tmp_path / "kept")
    crew.kickoff(run_id="r")
    note = str(tmp_path / "kept" / "heads" / "r" / "main.json")
    _unreadable(note, monkeypatch)
    assert crew.kickoff(run_id="r").raw == "done"
    assert f"{note} was not read: Input/output error. Until it is, an older copy of the journal is not" in caplog.text


@pytest.mark.skipif(os.name == "nt", reason="files are locked otherwise there")
def test_where_the_file_system_grants_no_locks_that_is_said(tmp_path, monkeypatch):
    """SQLite calls it "locking protocol"."""
    crew = crew_at(tmp_path / "kept")
    crew.kickoff(run_id="r")

    def refused(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refused)
    with pytest.raises(
        StoreError, match="cannot be read now .*No locks available.*; move it to a file system that grants locks"
    ):
        crew.kickoff(run_id="r")
    error = sqlite3.OperationalError("locking protocol")
    error.sqlite_errorcode = sqlite3.SQLITE_PROTOCOL
    assert "move it to a file system that grants locks" in str(not_read_now(error, "runs.db"))


def _journal(tmp_path, branch):
    return str(tmp_path / "kept" / "journal" / "r" / f"{branch}.jsonl")


def _unreadable(file, monkeypatch):
    """Have the system refuse to open one file."""
    working = os.open

    def failing(path, *arguments, **more):
        if str(path) == file:
            raise OSError(errno.EIO, os.strerror(errno.EIO), file)
        return working(path, *arguments, **more)

    monkeypatch.setattr(os, "open", failing)


def _not_read_now(read):
    with pytest.raises(StoreError, match=r"cannot be read now \(.*\); try again") as caught:
        read()
    assert type(caught.value) is StoreError
