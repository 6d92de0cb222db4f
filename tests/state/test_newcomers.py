"""What people met who tried it for the first time."""

from __future__ import annotations

from pathlib import Path

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, event_bus
from crewlite.errors import (
    BranchExists,
    ConfigError,
    JournalCorrupt,
    RefError,
    SchemaTooNew,
    StoreError,
)
from crewlite.events import TaskCompletedEvent
from crewlite.runtime.kickoffs.request import Progress, Request
from crewlite.state import JsonProvider
from crewlite.state.format.entry import SCHEMA, seal
from crewlite.state.providers.json_journals import lines
from crewlite.testing import CrashInjector, ScriptedLLM


def crew_at(location, count=3):
    agent = Agent(role="W", goal="w", llm=ScriptedLLM(lambda messages: "done"))
    tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=agent) for n in range(count)]
    return Crew(tasks=tasks, checkpoint=CheckpointConfig(location=location))


@pytest.mark.parametrize("metadata", ["text", ["a"], 5])
def test_metadata_that_is_no_dict_is_refused_and_not_recorded(location, metadata):
    refused = []

    def name(source, event, state):
        with pytest.raises(ConfigError, match="wanted a dict") as caught:
            state.checkpoint(metadata=metadata)
        refused.append(caught.value)

    with event_bus.on(TaskCompletedEvent, name):
        crew_at(location).kickoff(run_id="r")
    assert len(refused) == 3
    with History(location) as history:
        assert history.run("r").status == "finished"
        assert history.doctor() == []


@pytest.mark.parametrize("operation_id", [5, b"x", ""])
def test_an_operation_id_is_a_text(location, operation_id):
    crew = crew_at(location)
    crew.kickoff(run_id="r")
    with pytest.raises(ConfigError, match="operation_id"):
        crew.fork("r", operation_id=operation_id)
    with History(location) as history:
        assert len(history.runs()) == 1


def test_one_operation_does_not_fork_two_places(location):
    crew_at(location).kickoff(run_id="r")
    with History(location) as history:
        first, second, _ = history.run("r").checkpoints()
        branch = history.fork(first, operation_id="op").branch
        assert history.fork(first, operation_id="op").branch == branch
        with pytest.raises(BranchExists):
            history.fork(second, operation_id="op")


def test_what_an_operation_is_called_is_not_recorded(location, tmp_path):
    crew = crew_at(location)
    crew.kickoff(run_id="r")
    crew.fork("r", operation_id="sk-a-secret-operation")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"sk-a-secret-operation" in path.read_bytes()]


def test_nothing_is_taken_away_that_a_branch_may_stand_on_which_cannot_be_read_now(tmp_path):
    location = str(tmp_path / "store")
    crew_at(location).kickoff(run_id="r")
    with History(location) as history:
        history.fork(history.run("r").checkpoints()[0], branch="newer")
        journal = Path(location) / "journal" / "r" / "newer.jsonl"
        whole = journal.read_text()
        journal.write_text(whole.replace('"schema":1', '"schema":99', 1))
        before = (Path(location) / "journal" / "r" / "main.jsonl").read_bytes()
        assert history.prune(keep_last=1).unreadable == ("r",)
        for act in (
            lambda: history.delete("r"),
            lambda: history.export("r", tmp_path / "r.json"),
        ):
            with pytest.raises((SchemaTooNew, JournalCorrupt)):
                act()
        assert (Path(location) / "journal" / "r" / "main.jsonl").read_bytes().startswith(before)
        assert crew_at(location).kickoff(run_id="r").raw == "done"
        assert history.fork("r", branch="other").branch == "other"
        journal.write_text(whole)
        assert history.run("r/newer").status == "unfinished"


def test_a_bare_word_is_a_run_before_it_is_a_directory():
    crew_at("A").kickoff(run_id="B")
    crew_at("B").kickoff(run_id="other")
    assert crew_at("A").kickoff(from_checkpoint="B").run_id == "B"
    with History("A") as history:
        assert history.fork("B").run_id == "B"
    assert crew_at("C").kickoff(from_checkpoint="B").run_id == "other"


def test_from_checkpoint_must_name_one(location):
    with pytest.raises(ConfigError, match="names no checkpoint"):
        crew_at(location).kickoff(from_checkpoint=CheckpointConfig(location=location))


def test_a_directory_in_the_place_of_a_checkpoint_file_does_not_end_the_doctor(tmp_path):
    location = tmp_path / "store"
    crew_at(str(location)).kickoff(run_id="r")
    (location / f"20260101T000000000000_{'0' * 32}.json").mkdir()
    with History(location) as history:
        assert history.doctor(repair=True) == []
        assert len(history.checkpoints()) == 3


@pytest.mark.parametrize("ref", [5, None, b"r"])
def test_what_is_no_ref_is_told_so(location, ref):
    crew_at(location).kickoff(run_id="r")
    with History(location) as history:
        with pytest.raises(RefError, match="is not a ref"):
            history.run(ref)
        assert history.fork(history.run("r"), branch="x").branch == "x"


@pytest.mark.parametrize("wrong", [{"rerun": 5}, {"answers": ["task:t/tool:pay"]}])
def test_what_settles_a_doubt_has_a_shape(location, wrong):
    with pytest.raises(ConfigError, match="wanted"):
        crew_at(location).kickoff(run_id="r", **wrong)


def test_a_full_disk_is_told_with_what_to_do(location, tmp_path):
    crew_at(location).kickoff(run_id="r")
    with History(location) as history:
        for act in (lambda: history.prune(keep_last=1), lambda: history.export("r", tmp_path / "r.json")):
            with CrashInjector(at=1, error=OSError(28, "disk full")), pytest.raises(StoreError, match="try again"):
                act()
        assert history.prune(keep_last=1).checkpoints


def test_who_is_cut_in_a_fork_is_told_how_to_go_on_with_the_fork():
    request = Request(progress=Progress("r", "./store", "exp"))
    assert request.how_to_go_on("crew") == "To go on: crew.kickoff(from_checkpoint='r/exp')"


def test_a_branch_of_a_newer_crewlite_does_not_prevent_forks_and_labels_of_the_others(tmp_path):
    location = str(tmp_path / "store")
    crew_at(location).kickoff(run_id="r")
    with History(location) as history:
        base = history.branches("r")[0]
        history.fork("r", branch="newer")
        journal = Path(location) / "journal" / "r" / "newer.jsonl"
        (first,) = JsonProvider().open(location).read("r", "newer")
        newer = seal({**first.commit, "schema": SCHEMA + 1}, after=first.commit["run"]["base"]["sum"])
        journal.write_bytes(lines([newer]))
        with pytest.raises(SchemaTooNew):
            JsonProvider().open(location).branches("r")
        assert history.branches("r") == [base]
        assert history.fork("r", branch="other").branch == "other"
        assert history.fork("r/other", branch="another").branch == "another"  # at the checkpoint that it has inherited
        assert history.label("r@task:t0", "good").label == "good"
        assert "done" in history.as_html("r")
        with pytest.raises(SchemaTooNew):
            history.fork("r", branch="newer")
