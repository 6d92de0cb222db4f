"""What any release wrote, this one loads, lists, resumes and forks, to the result it would have had then."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path

import pytest

from crewlite import CheckpointConfig, History
from crewlite.state import SqliteProvider

GOLDEN = Path(__file__).parent.parent / "golden"
_spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
make = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make)

FINISHED = ("finished", "folded", "labelled", "forked")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """What the script makes today."""
    directory = tmp_path_factory.mktemp("golden")
    make.write(directory)
    return directory


@pytest.fixture(params=["fresh", *sorted(path.name for path in GOLDEN.glob("schema-*"))])
def golden(request, tmp_path):
    """A copy of golden files: (directory, what is expected)."""
    kept = request.getfixturevalue("fresh") if request.param == "fresh" else GOLDEN / request.param
    copy = tmp_path / "golden"
    shutil.copytree(kept, copy)
    for journal in copy.rglob("*.jsonl"):
        os.utime(journal, (1, 1))  # a checkout is no sign of life of whoever wrote it
    return copy, json.loads((copy / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture(params=["store", "store.db"])
def location(request, golden):
    return golden[0] / request.param


@pytest.fixture
def expected(golden):
    return golden[1]


def raws(result):
    return [output.raw for output in result.tasks_output]


def crew_at(location, ref=None):
    crew = make.crew(CheckpointConfig(location=str(location)))
    return crew, crew.tasks[0].agent.llm.calls


def test_history_tells_what_it_told_then(location, expected):
    assert make.summary(location) == expected["runs"]


@pytest.mark.parametrize("run_id", FINISHED)
def test_a_finished_run_gives_its_result_and_asks_nobody(run_id, location, expected):
    crew, calls = crew_at(location)
    assert raws(crew.kickoff(run_id=run_id)) == expected["results"][make.INPUTS["topic"]]
    assert raws(crew.kickoff(make.INPUTS, run_id=run_id)) == expected["results"][make.INPUTS["topic"]]
    assert calls == []


def test_a_finished_fork_gives_its_own_result(location, expected):
    crew, calls = crew_at(location)
    assert raws(crew.kickoff(from_checkpoint="forked/other/way")) == expected["results"]["ships"]
    assert calls == []


def test_an_agent_alone_gives_its_result_and_asks_nobody(location, expected):
    agent = make.agent(CheckpointConfig(location=str(location)))
    assert agent.kickoff(run_id="alone").raw == expected["alone"]
    assert agent.kickoff(make.QUESTION, run_id="alone").raw == expected["alone"]
    assert agent.llm.calls == []


@pytest.mark.parametrize("run_id", ["cut", "failed"])
def test_an_unfinished_run_goes_on_to_the_result_it_would_have_had(run_id, location, expected):
    crew, calls = crew_at(location)
    result = crew.kickoff(run_id=run_id)
    assert raws(result) == expected["results"][make.INPUTS["topic"]]
    assert 0 < len(calls) < 4, "what was recorded is not asked again"
    assert result.durability == "sync"


def test_every_checkpoint_leads_back_to_its_run_and_can_be_forked(location, expected):
    with History(location) as history:
        checkpoints = [(run.run_id, checkpoint) for run in history.runs() for checkpoint in run.checkpoints()]
    checkpoints = [(run_id, checkpoint) for run_id, checkpoint in checkpoints if run_id != "alone"]
    assert len(checkpoints) > 8
    for number, (run_id, checkpoint) in enumerate(checkpoints):
        crew, _ = crew_at(location)
        forked = crew.fork(checkpoint.ref, branch=f"again-{number}")
        with History(location) as history:
            assert history.run(f"{run_id}/again-{number}").checkpoints()[-1].id == checkpoint.id
        topic = "ships" if checkpoint.branch == "other/way" else make.INPUTS["topic"]
        if number % 4 == 0:
            assert raws(forked.kickoff()) == expected["results"][topic]


def test_a_label_is_a_ref(location):
    with History(location) as history:
        labelled = {
            checkpoint.label: checkpoint for checkpoint in history.run("labelled").checkpoints() if checkpoint.label
        }
        assert sorted(labelled) == ["after-t0", "after-t1", "after-t2"]
        assert labelled["after-t0"].metadata["by"] == "hand"
    crew, _ = crew_at(location)
    assert raws(crew.fork("labelled@label:after-t0").kickoff())


def test_the_doctor_finds_nothing_wrong(location):
    with History(location) as history:
        assert history.doctor() == []


def test_nothing_of_the_machine_is_in_them(golden):
    private = [os.uname().nodename.encode(), str(Path.cwd()).encode(), str(GOLDEN.parent.parent).encode()]
    for path in golden[0].rglob("*"):
        if path.is_file():
            assert not [text for text in private if len(text) > 3 and text in path.read_bytes()], path


def test_a_database_of_then_is_not_changed_by_looking(golden):
    database = golden[0] / "store.db"
    before = database.read_bytes()
    SqliteProvider().open(str(database)).close()
    make.summary(database)
    assert database.read_bytes() == before


def test_a_kept_answer_tells_what_it_answered_also_where_the_record_holds_no_texts_of_questions(location):
    whole = make.crew(CheckpointConfig(location=str(location), on_drift="keep"))
    tasks: list = []
    for task in whole.tasks:
        other = task.description.replace("Do ", "Act ")
        tasks.append(task.model_copy(update={"description": other, "context": tuple(tasks[-1:])}))
    result = whole.model_copy(update={"tasks": tuple(tasks)}).kickoff(run_id="finished")
    assert result.drifted == ("task:t0", "task:t1", "task:t2")
    assert [output.description.partition(":")[0] for output in result.tasks_output] == ["Do 0", "Do 1", "Do 2"]
