"""What History tells of a run and of a ref: where a fork stands, which tasks are done, which checkpoint is meant."""

import pytest

from crewlite import CheckpointConfig, History
from crewlite.errors import RefError
from crewlite.ids import now, short
from crewlite.state.providers import SqliteProvider
from tests.state.wrapped import ReadOnce


def test_a_ref_names_a_checkpoint_and_a_run_its_newest(on_disk, make_crew):
    begun = now()
    make_crew(["a", "b", "c"], checkpoint=on_disk()).kickoff(run_id="r")
    with History(on_disk().location) as history:
        checkpoints = history.run("r").checkpoints()
        assert [history.checkpoint(checkpoint.ref).id for checkpoint in checkpoints] == [
            checkpoint.id for checkpoint in checkpoints
        ]
        listed = history.checkpoints()
        assert [history.checkpoint(info.ref).id for info in listed] == [info.id for info in listed]
        assert [info.ref for info in listed[:1]] == [f"r/main@{checkpoints[-1].id}"]
        assert {history.run("r").name} == {info.name for info in history.branches()} == {make_crew([]).run_name}
        assert history.checkpoint(checkpoints[0]).id == history.checkpoint("r~2").id == checkpoints[0].id
        assert history.checkpoint().id == history.checkpoint("r").id == checkpoints[-1].id
        assert begun <= history.run("r").started_at <= now()
        assert repr(history.runs()) == "[RunHistory('r/main')]"
        assert history.run("r").tasks == ("task:t0", "task:t1", "task:t2")
        with pytest.raises(RefError, match="names nothing"):
            history.checkpoint("nobody")


def test_a_run_without_checkpoints_has_none_to_name(on_disk, make_crew):
    make_crew(["a", "b", "c"], checkpoint=on_disk(on_events=["task_failed"])).kickoff(run_id="r")
    with History(on_disk().location) as history, pytest.raises(RefError, match="r/main has no checkpoints"):
        history.checkpoint("r")


def test_a_branch_and_a_checkpoint_of_it_are_found_and_shown_with_one_look_at_the_journal(tmp_path, make_crew):
    provider, location = ReadOnce(SqliteProvider()), str(tmp_path / "runs.db")
    make_crew(["a", "b", "c"], checkpoint=CheckpointConfig(location=location, provider=provider)).kickoff(run_id="r")
    with History(location, provider) as history:
        first = history.run("r").checkpoints()[0]
        with provider.one_verb("a look at a checkpoint"):
            run, identifier = history.locate(short(first.id))
            assert not provider.read, "a part of an id is looked up in the list"
            assert (run.ref, run.checkpoint(identifier)) == ("r/main", first)
            assert run.status == "finished"
            assert run.checkpoints()[0] is run.checkpoint(first.id)
        assert history.locate("r")[1] == history.checkpoint("r").id


def test_the_branches_of_one_run_are_those_of_the_list_of_all(on_disk, make_crew):
    for name in ("r", "s"):
        make_crew(["a", "b", "c"], checkpoint=on_disk()).kickoff(run_id=name)
    with History(on_disk().location) as history:
        history.fork("r", branch="f")
        assert history.branches("r") == [info for info in history.branches() if info.run_id == "r"]
        assert (
            [run.ref for run in history.runs("r")] == [info.ref for info in history.branches("r")] == ["r/main", "r/f"]
        )
        assert history.runs("nobody") == []


def test_a_fork_says_what_it_stands_on(on_disk, make_crew):
    make_crew(["a", "b", "c"], checkpoint=on_disk()).kickoff(run_id="r")
    with History(on_disk().location) as history:
        first = history.run("r").checkpoints()[0]
        assert history.run("r").base is None
        fork = history.fork(first, branch="f")
        assert (fork.base.branch, fork.base.seq, fork.base.checkpoint_id) == ("main", first.seq, first.id)
        assert fork.tasks == ("task:t0",)
        deeper = history.fork(fork, branch="g")
        assert (deeper.base.branch, deeper.base.checkpoint_id) == ("f", first.id)
        assert deeper.started_at >= fork.started_at >= history.run("r").started_at
