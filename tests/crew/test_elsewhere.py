"""A run goes on, or is forked, in another location than it is kept in."""

from __future__ import annotations

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.errors import RunExists
from crewlite.testing import ScriptedLLM
from tests.parts import Stop


def crew_of(says, config):
    agent = Agent(role="Clerk", goal="g", llm=ScriptedLLM(says))
    tasks = [Task(name=name, description=f"Do {name}", expected_output="x", agent=agent) for name in ("one", "two")]
    return Crew(tasks=tasks, checkpoint=config)


@pytest.fixture
def cut(on_disk):
    """A run that was cut after its first task, and the ref of its checkpoint, which says where it is kept."""
    with pytest.raises(Stop):
        crew_of(["1", Stop()], on_disk()).kickoff(run_id="r")
    with History(on_disk().location) as history:
        return history.run("r").checkpoints()[-1].ref


@pytest.mark.parametrize("where", ["elsewhere", "elsewhere.db"])
def test_the_location_of_restore_from_is_where_the_run_goes_on(cut, on_disk, where):
    there = CheckpointConfig(restore_from=cut, location=where)
    assert crew_of(["2"], on_disk()).kickoff(from_checkpoint=there).raw == "2"
    with History(where) as history:
        assert history.run("r").status == "finished"
        assert history.doctor() == []
    with History(on_disk().location) as history:
        assert history.run("r").status == "failed", "what it was copied from stays as it is"
    assert crew_of([], on_disk()).kickoff(from_checkpoint=there).raw == "2", "again: it goes on with the copy"


@pytest.mark.parametrize("where", ["elsewhere", "elsewhere.db"])
def test_a_copy_that_was_compacted_is_recognised_as_long_as_the_original_stays_as_it_is(cut, on_disk, where):
    there = CheckpointConfig(restore_from=on_disk().location, location=where)
    with pytest.raises(Stop):
        crew_of([Stop()], on_disk()).kickoff(from_checkpoint=there)
    for _ in range(2):
        with History(where) as history:
            history.prune(keep_last=1)
        assert crew_of(["2"], on_disk()).kickoff(from_checkpoint=there).raw == "2"
    assert crew_of(["other"], on_disk()).kickoff(run_id="r").raw == "other"
    with pytest.raises(RunExists):
        crew_of([], on_disk()).kickoff(from_checkpoint=there)


@pytest.mark.parametrize("where", ["elsewhere", "elsewhere.db"])
def test_the_location_of_restore_from_is_where_a_fork_is_made(cut, on_disk, where):
    there = CheckpointConfig(restore_from=cut, location=where)
    forked = crew_of(["by fork"], on_disk()).fork(there, branch="f")
    assert forked.kickoff().raw == "by fork"
    with History(where) as history:
        assert sorted(run.branch for run in history.runs()) == ["f", "main"]
    with History(on_disk().location) as history:
        assert [run.branch for run in history.runs()] == ["main"]


def test_a_crew_rebuilt_from_a_file_goes_on_in_the_location_that_is_set(cut, on_disk):
    there = CheckpointConfig(restore_from=cut, location="elsewhere")
    assert Crew.from_checkpoint(there, bind={"llm": ScriptedLLM(["2"])}).kickoff().raw == "2"
    with History("elsewhere") as history:
        assert history.run("r").status == "finished"
    forked = Crew.fork(
        CheckpointConfig(restore_from=cut, location="third"), branch="f", bind={"llm": ScriptedLLM(["3"])}
    )
    assert forked.kickoff().raw == "3"
    with History("third") as history:
        assert history.run("r/f").status == "finished"


def test_a_preview_copies_nothing(cut, on_disk, tmp_path):
    crew_of([], on_disk()).preview(from_checkpoint=CheckpointConfig(restore_from=cut, location="elsewhere"))
    assert not (tmp_path / "elsewhere").exists()


def test_another_run_of_that_name_in_the_location_is_not_taken_for_it(cut, on_disk):
    crew_of(["a", "b"], CheckpointConfig(location="elsewhere")).kickoff(run_id="r")
    with pytest.raises(RunExists):
        crew_of(["2"], on_disk()).kickoff(from_checkpoint=CheckpointConfig(restore_from=cut, location="elsewhere"))
