"""Many processes in one store, and many threads: one gets a branch, the others are told so, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections import Counter

import pytest
from test_crashes import pytestmark as pytestmark, run

from crewlite import CheckpointConfig, History
from crewlite.errors import BranchConflictError, BranchExists, StoreBusy
from crewlite.state import SqliteProvider
from crewlite.system import disk
from tests.parts import Held, at_once, both_resumed


@pytest.mark.parametrize("provider", ["json", "sqlite"])
def test_a_crowd_of_processes_in_one_store_loses_nothing_and_pays_nothing_twice(provider, tmp_path):
    code, found = run("swarm.py", "--provider", provider, "--directory", tmp_path, "--runs", 3, "--rounds", 1)
    print(found)
    assert found["violations"] == []
    assert code == 0
    assert (found["runs"], found["wins"]) == (8 * 3, 2 * 1)


@pytest.mark.soak
@pytest.mark.parametrize("provider", ["json", "sqlite"])
def test_eight_processes_of_sixty_runs(provider, tmp_path):
    code, found = run(
        "swarm.py", "--provider", provider, "--directory", tmp_path, "--runs", 60, "--rounds", 25, "--tasks", 80
    )
    print(found)
    assert found["violations"] == []
    assert code == 0
    assert (found["runs"], found["wins"]) == (8 * 60, 2 * 25)


@pytest.mark.soak
@pytest.mark.parametrize("provider", ["json", "sqlite"])
def test_many_crowds_in_a_row(provider, tmp_path):
    crowds, violations, took = int(os.environ.get("CROWDS", "5")), [], time.monotonic()
    for n in range(crowds):
        options = ("--directory", tmp_path / f"{n}", "--runs", 8, "--rounds", 2, "--seed", n)
        (tmp_path / f"{n}").mkdir()
        code, found = run("swarm.py", "--provider", provider, *options)
        violations += [f"crowd {n}: {text}" for text in found["violations"]]
        violations += [f"crowd {n} ended with {code}"] if code and not found["violations"] else []
    seconds = round(time.monotonic() - took)
    print(f"\n{provider}: {crowds} crowds in {seconds} s, {len(violations)} violations {violations}")
    assert violations == []


class Stop(Exception):
    """The laptop lid."""


def cut(make_crew, config):
    """A crew whose run `r` was cut in its second task."""
    llm = Held(["a", Stop(), *["b", "c"] * 20])
    crew = make_crew(llm, checkpoint=config())
    llm.go.set()
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    return crew


def test_of_two_threads_that_resume_one_run_one_wins(make_crew, config):
    crew = cut(make_crew, config)
    won, told = sorted(both_resumed(crew), key=lambda found: isinstance(found, BranchConflictError))
    assert [output.raw for output in won.tasks_output] == ["a", "b", "c"]
    assert (told.run_id, told.branch, told.holder) == ("r", "main", "this process")


def test_two_names_of_one_database_are_one_place(make_crew, tmp_path):
    names = (tmp_path / "runs.db", f"{tmp_path}/../{tmp_path.name}/runs.db")
    one, two = (CheckpointConfig(location=name, provider=SqliteProvider()) for name in names)
    crew = cut(make_crew, lambda: one)
    other = crew.model_copy(update={"checkpoint": two})
    found = Counter(type(answer).__name__ for answer in both_resumed(crew, other))
    assert found == {"CrewOutput": 1, "BranchConflictError": 1}


def test_of_many_forks_under_one_name_one_is_made(make_crew, config):
    crew = cut(make_crew, config)
    found = at_once(8, lambda n: crew.fork("r", branch="again"))
    assert Counter(type(answer).__name__ for answer in found) == {"Crew": 1, "BranchExists": 7}
    told = next(answer for answer in found if isinstance(answer, BranchExists))
    assert (told.run_id, told.branch) == ("r", "again")


def test_one_operation_makes_one_fork_however_often_it_is_asked(make_crew, config):
    crew = cut(make_crew, config)
    found = at_once(8, lambda n: crew.fork("r", operation_id="order 66").checkpoint.restore_from)
    assert len(set(found)) == 1
    with History(config().location, config().provider) as history:
        assert len(history.runs()) == 2


def test_forks_under_names_of_their_own_are_all_made_and_go_on(make_crew, config):
    crew = cut(make_crew, config)

    async def go_on(number):
        forked = await asyncio.to_thread(crew.fork, "r", branch=f"try/{number}")
        return (await forked.akickoff()).raw

    async def main():
        return await asyncio.gather(*map(go_on, range(8)))

    assert set(asyncio.run(main())) <= {"b", "c"}
    with History(config().location, config().provider) as history:
        branches = {run.branch: run.status for run in history.runs()}
    assert branches == {"main": "failed", **{f"try/{n}": "finished" for n in range(8)}}


def test_a_database_that_others_never_let_go_of_is_read_as_ever_and_says_so_to_writers(
    make_crew, tmp_path, monkeypatch
):
    monkeypatch.setattr(disk, "PATIENCE", 0.2)
    path = tmp_path / "runs.db"
    crew = cut(make_crew, lambda: CheckpointConfig(location=path))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM entry")
        with pytest.raises(
            StoreBusy, match="other programs have been writing to it for 0.2 s, and nothing was changed"
        ):
            crew.kickoff(run_id="r")
        with pytest.raises(StoreBusy):
            crew.fork("r")
        with History(path) as history:
            assert [(run.branch, len(run.checkpoints())) for run in history.runs()] == [("main", 1)]
        other.execute("ROLLBACK")
    assert crew.kickoff(run_id="r").raw == "c"
