"""A verb about all runs of a location: what cannot be read is left as it is and named, and the others are done."""

import errno
import json
import os
import sqlite3
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

from crewlite import CheckpointConfig, History
from crewlite.cli.main import main
from crewlite.errors import JournalCorrupt, StoreError
from crewlite.flow import Flow, flow, persist, start, step
from crewlite.system import disk
from tests.parts import deletes_a_run

AT_ONCE = timedelta(0)


def job(location):
    @step
    def work(how):
        return how

    @flow(checkpoint=CheckpointConfig(location=location))
    def job(how):
        return work(how) + work("more")

    return job


@pytest.fixture
def runs(location):
    """Three finished runs, and a fork of the second one."""
    for run_id in ("first", "second", "third"):
        job(location).kickoff("done", run_id=run_id)
    with History(location) as history:
        history.fork("second", branch="fork", edits={"step:work": "other"})
    job(location).kickoff(from_checkpoint="second/fork")
    return location


def damage(location, run_id="second", branch="main", *, seq=2):
    """Change a commit of a branch, as a failing disk would."""
    if location.endswith(".db"):
        with sqlite3.connect(location) as db:
            key = f"SELECT id FROM branch WHERE run_id='{run_id}' AND name='{branch}'"
            [first] = db.execute(f"SELECT min(seq) FROM entry WHERE branch_id=({key})").fetchone()
            where = f"branch_id=({key}) AND seq={first + seq - 1}"
            changed = db.execute(f"UPDATE entry SET body=CAST(replace(body, '\"at\"', '\"AT\"') AS BLOB) WHERE {where}")
            assert changed.rowcount == 1
        db.close()
        return
    path = Path(location, "journal", run_id, f"{branch}.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[seq - 1] = lines[seq - 1].replace(b'"at"', b'"AT"')
    path.write_bytes(b"".join(lines))


def told(caplog):
    return [one.getMessage() for one in caplog.records if "is skipped" in one.getMessage()]


def dump(location, run_id):
    """All that is stored about a run."""
    if not location.endswith(".db"):
        return {path.name: path.read_bytes() for path in Path(location, "journal", run_id).rglob("*")}
    with sqlite3.connect(location) as db:
        found = db.execute("SELECT name, entry.* FROM entry JOIN branch ON branch_id=id WHERE run_id=?", (run_id,))
        rows = found.fetchall()
    db.close()
    return rows


@pytest.mark.parametrize("limits", [{"older_than": AT_ONCE}, {"keep_last": 1}, {"keep_last": 1, "older_than": AT_ONCE}])
@pytest.mark.parametrize(("branch", "seq"), [("main", 2), ("fork", 2), ("fork", 1)])
def test_a_prune_leaves_a_damaged_run_with_all_its_branches_and_prunes_the_others(runs, branch, seq, limits, caplog):
    damage(runs, branch=branch, seq=seq)
    before = dump(runs, "second")
    with History(runs) as history:
        rehearsed, done = history.prune(**limits, dry_run=True), history.prune(**limits)
        assert rehearsed == done
        assert done.unreadable == ("second",)
        gone = {"first", "third"} - {one.run_id for one in history.branches()}
        assert set(done.runs) == gone == ({"first", "third"} if "older_than" in limits else set())
        assert {one.run_id for one in history.checkpoints(limit=100)} >= {"second"}
    assert dump(runs, "second") == before
    assert all(text.startswith("run second cannot be read") and "doctor" in text for text in told(caplog))
    assert len(told(caplog)) == 2


@pytest.mark.parametrize("limits", [{"older_than": AT_ONCE}, {"keep_last": 1}])
def test_a_prune_names_a_run_of_which_no_branch_can_be_listed(runs, limits):
    damage(runs, "first", seq=1)
    before = dump(runs, "first")
    with History(runs) as history:
        assert history.prune(**limits, dry_run=True).unreadable == ("first",)
        assert history.prune(**limits).unreadable == ("first",)
    assert dump(runs, "first") == before


@pytest.mark.parametrize("failing", ["first", "second"])
def test_a_prune_goes_on_with_the_others_where_storage_fails_for_one_run(runs, failing):
    deletions = count()

    def fail(operation):
        if deletes_a_run(operation) and next(deletions) == ["first", "second"].index(failing):
            raise OSError(errno.EIO, os.strerror(errno.EIO), operation.path)

    with History(runs) as history:
        with disk.watched(fail), pytest.raises(StoreError, match=f"not all of it was pruned .*'{failing}'.*try again"):
            history.prune(older_than=AT_ONCE)
        assert {one.run_id for one in history.runs()} == {failing}
        assert history.prune(older_than=AT_ONCE).runs == (failing,)
        assert history.runs() == []


def test_the_command_prunes_the_others_says_what_is_left_and_fails(runs):
    damage(runs)
    asked = ["checkpoint", "prune", "--older-than", "0s", "--location", runs]
    done = CliRunner().invoke(main, [*asked, "--dry-run"])
    assert (done.exit_code, done.stderr.count("run second cannot be read")) == (1, 1)
    assert "2 runs would be deleted" in done.stdout
    assert "left alone, because they cannot be read: second\n" in done.stdout
    done = CliRunner().invoke(main, [*asked, "--json"])
    said = json.loads(done.stdout)
    assert (done.exit_code, set(said["runs"]), said["unreadable"]) == (1, {"first", "third"}, ["second"])


def test_a_sum_over_all_runs_counts_those_that_can_be_read(runs, caplog):
    damage(runs, branch="fork")
    with History(runs) as history:
        assert [run.ref for run in history.readable()] == ["third/main", "second/main", "first/main"]
        assert len(told(caplog)) == 1
        listing = [one for one in history.branches() if one.run_id == "second"]
        assert [run.branch for run in history.readable(listing)] == ["main"]
        assert len(history.runs()) == 4
        with pytest.raises(JournalCorrupt):
            [run.usage for run in history.runs()]


def test_a_run_that_was_deleted_since_it_was_listed_is_left_out_without_a_word(runs, caplog):
    with History(runs) as history:
        listing = history.branches()
        history.delete("second")
        assert [run.run_id for run in history.readable(listing)] == ["third", "first"]
    assert not told(caplog)


@pytest.mark.parametrize("seq", [1, 2])
def test_a_turn_that_cannot_be_read_keeps_the_turns_after_it(location, seq):
    @persist(CheckpointConfig(location=location))
    class Chat(Flow):
        @start()
        def hear(self):
            self.state["said"] = self.state.get("said", "") + self.state["message"]
            return self.state["said"]

    for message in "abcd":
        Chat().kickoff({"id": "mine", "message": message})
    Chat().kickoff({"id": "yours", "message": "a"})
    damage(location, "mine.2", seq=seq)
    with History(location) as history:
        done = history.prune(older_than=AT_ONCE)
    assert (set(done.runs), done.unreadable, done.holding) == ({"mine", "yours"}, ("mine.2",), ("mine.2/main",))
    assert Chat().kickoff({"id": "mine", "message": "e"}) == "abcde"


def test_a_file_that_the_system_does_not_read_now_is_skipped(forbidden, caplog):
    with forbidden() as directory:
        location = str(directory / "runs")
        for run_id in ("one", "two"):
            job(location).kickoff("done", run_id=run_id)
        with History(location) as history:
            listing = history.branches()
            Path(location, "journal", "two", "main.jsonl").chmod(0)
            assert [run.run_id for run in history.readable(listing)] == ["one"]
            assert "give this user the right to read it" in told(caplog)[0]
            assert history.prune(older_than=AT_ONCE).runs == ("one",)
            assert Path(location, "journal", "two").exists()


def test_the_unfinished_runs_are_found_without_reading_those_that_have_ended(runs, caplog):
    damage(runs, "third")
    with History(runs) as history:
        assert history.unfinished() == []
        assert not told(caplog)
        place = next(one for one in history.run("second").checkpoints() if not one.label)
        history.rewind(place)
        assert [run.run_id for run in history.unfinished()] == ["second"]
