"""Where a checkpoint came from can be told for as long as there is one, whatever is dropped around it."""

from __future__ import annotations

import pytest

from crewlite import event_bus
from crewlite.errors import RefError
from crewlite.events import TaskCompletedEvent
from crewlite.testing import ScriptedLLM
from tests.parts import Stop, checkpoints, history, outputs


def at(stored, ref):
    """What `from_checkpoint` and `fork` take, in the same store."""
    return stored(restore_from=ref)


def connected(setting, run_id="r"):
    """Whether every checkpoint that any branch shows has its parent there, or none."""
    with history(setting) as found:
        for run in found.runs():
            if run.run_id == run_id:
                shown = run.checkpoints()
                ids = [checkpoint.id for checkpoint in shown]
                for number, checkpoint in enumerate(shown):
                    assert checkpoint.parent_id in ([None] if number == 0 else ids[:number]), (run.branch, checkpoint)
                    assert found.run(checkpoint.id).run_id == run_id


def test_lineage_never_dangles_whatever_max_checkpoints_and_prune_drop(make_crew, stored):
    few = stored(max_checkpoints=2)
    with pytest.raises(Stop):
        make_crew([*"abcde", Stop()], 8, checkpoint=few).kickoff(run_id="r")
    connected(stored())
    base = checkpoints(stored(), "r")[0]
    fork = make_crew([*"ABCDEFGH"], 8, checkpoint=few).fork(at(stored, base.ref), branch="f")
    fork.kickoff()
    connected(stored())
    make_crew([*"fgh"], 8, checkpoint=few).kickoff(run_id="r")
    connected(stored())
    assert base.id in [checkpoint.id for checkpoint in checkpoints(stored(), "r")], "what a fork stands on stays"
    with history(stored()) as found:
        found.prune(keep_last=1)
    connected(stored())
    assert [checkpoint.branch for checkpoint in checkpoints(stored(), "r/f")] == ["main", "f"]


def test_a_fork_made_while_its_base_is_being_dropped_is_whole_all_the_same(make_crew, stored):
    """Forks are looked for when places are dropped; one may be made just before."""
    made = []

    @event_bus.on(TaskCompletedEvent)
    def fork(source, event):
        if event.branch == "main" and event.task_name in ("t2", "t40"):
            oldest = checkpoints(stored(), "r/main")[0]
            crew = make_crew(lambda messages: "forked", 80, checkpoint=stored())
            made.append((crew.fork(at(stored, oldest.ref), branch=event.task_name), oldest))

    make_crew(lambda messages: "main", 80, checkpoint=stored(max_checkpoints=1)).kickoff(run_id="r")
    with history(stored()) as found:
        found.prune(keep_last=1)
    for crew, oldest in made:
        [first, *_] = checkpoints(stored(), f"r/{oldest.address.removeprefix('task:')}")
        assert (first.id, first.branch) == (oldest.id, "main")
        again = make_crew(lambda messages: "again", 80, checkpoint=stored()).fork(
            at(stored, f"{oldest.address.removeprefix('task:')}@{oldest.id}")
        )
        assert outputs(again.kickoff()).count("main") == len(oldest.tasks)
        assert outputs(crew.kickoff()).count("main") == len(oldest.tasks)


def test_latest_and_a_bare_location_still_mean_the_main_branch(make_crew, stored):
    with pytest.raises(Stop):
        make_crew(["a", Stop()], checkpoint=stored()).kickoff(run_id="r")
    make_crew(["B", "C"], checkpoint=stored()).fork(at(stored, "r"), branch="a-fork").kickoff()
    with history(stored()) as found:
        assert [found.run(ref).branch for ref in ("latest", "r", "main", "a-fork", "r/a-fork")] == [
            *["main"] * 3,
            *["a-fork"] * 2,
        ]
    assert outputs(make_crew(["b", "c"], checkpoint=stored()).kickoff(from_checkpoint=at(stored, "latest"))) == [*"abc"]


def test_refs_lead_into_forks_and_go_on_there(make_crew, stored):
    with pytest.raises(Stop):
        make_crew(["a", "b", Stop()], 4, checkpoint=stored()).kickoff(run_id="r")
    fork = make_crew(["B", Stop()], 4, checkpoint=stored()).fork(at(stored, "main@task:t0"), branch="x/y")
    with pytest.raises(Stop):
        fork.kickoff()
    newest = checkpoints(stored(), "r/x/y")[-1]
    for ref in ("x/y", "r/x/y", "x/y@task:t1", newest.id[-8:], newest.ref):
        llm = ScriptedLLM([Stop()])
        with pytest.raises(Stop):
            make_crew(llm, 4, checkpoint=stored()).kickoff(from_checkpoint=at(stored, ref))
        assert len(llm.calls) == 1
    assert outputs(make_crew(["C", "D"], 4, checkpoint=stored()).kickoff(from_checkpoint=at(stored, newest.ref))) == [
        *"aBCD"
    ]


def test_a_fork_at_the_second_of_two_labels_has_the_place_they_name_as_the_one_before(make_crew, stored):
    """The first label was given after the commit that the fork starts from, so the fork lacks it."""
    with pytest.raises(Stop):
        make_crew(["a", "b", Stop()], checkpoint=stored()).kickoff(run_id="r")
    with history(stored()) as found:
        first, place = found.run("r").checkpoints()
        found.label(place, "one")
        label = found.label(place, "two")
        shown = found.fork(label.ref, branch="f").checkpoints()
        assert [checkpoint.id for checkpoint in shown] == [first.id, place.id, label.id]
        assert [checkpoint.parent_id for checkpoint in shown] == [None, first.id, place.id]
        assert found.checkpoint("r/f~1").id == first.id, "both are at one place"
        found.prune(keep_last=1)
        assert [checkpoint.parent_id for checkpoint in found.run("r/f").checkpoints()] == [None, place.id]


def test_a_ref_into_a_fork_names_no_checkpoint_that_its_base_has_dropped(make_crew, stored):
    with pytest.raises(Stop):
        make_crew(["a", "b", "c", Stop()], 6, checkpoint=stored()).kickoff(run_id="r")
    with history(stored()) as found:
        first, second, _ = found.run("r").checkpoints()
        found.label(first, "begin")
        base = found.fork("r", branch="f").checkpoints()[-1]
    with pytest.raises(Stop):
        make_crew(["d", "e", Stop()], 6, checkpoint=stored(max_checkpoints=1)).kickoff(run_id="r")
    with history(stored()) as found:
        label, last = found.run("r/f").checkpoints()
        assert (label.label, last.id, last.parent_id) == ("begin", base.id, label.id)
        for ref in ("r/f@task:t1", f"r/f@{second.id}"):
            for act in (found.checkpoint, found.fork):
                with pytest.raises(RefError, match="names no checkpoint of this branch any more"):
                    act(ref)
        with pytest.raises(RefError, match="further than the first one"):
            found.checkpoint("r/f~2")


def test_a_ref_into_what_a_rewind_abandoned_names_no_checkpoint_that_was_dropped(make_crew, stored):
    with pytest.raises(Stop):
        make_crew(["a", "b", "c", Stop()], 6, checkpoint=stored()).kickoff(run_id="r")
    with history(stored()) as found:
        first, _, last = found.run("r").checkpoints()
        found.label(last, "end")
        found.rewind(first)
        found.prune(keep_last=1)
        [tail] = found.run("r").abandoned
        assert [checkpoint.label for checkpoint in tail.checkpoints()] == [None, "end"]
        assert found.checkpoint("r@abandoned:1~1").id == first.id
