"""A verb decides from what it read once; whatever others do meanwhile, it does its job or says why not."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import pytest

from crewlite import CheckpointConfig, Crew
from crewlite.errors import BranchConflictError, CrewliteError, RefError, RunEnded
from crewlite.state import InMemoryProvider, RuntimeState
from crewlite.state.journal.lineage import journals_of_run, recorded
from crewlite.state.verbs.transfer import commits
from crewlite.testing import ScriptedLLM
from tests import soak

from .moments import INPUTS, RAW, Stop, crew, cut, every_moment, history, is_sound, raws, resumed
from .wrapped import ReadOnce


def through(config, found):
    """`config`, for kickoffs through the provider of a history."""
    return lambda **fields: config(**fields).model_copy(update={"provider": found._provider})


def replace_elsewhere(config, commits):
    """Delete a run that nobody claims and bring another, as one who knows nothing of this process but its claims."""
    with contextlib.closing(config().provider.open(config().location)) as store:
        journals = journals_of_run(store, "r")
        if not any(recorded(store, "r", branch).claim for branch in journals):
            store.remove("r", {name: (own[-1].seq, own[-1].sum) for name, own in journals.items()})
            store.append(commits)


def test_pruning_beside_a_run_that_finishes_loses_nothing(config):
    finished = []

    def finish():
        assert crew(config).kickoff(INPUTS, run_id="r").durability == "sync"
        finished.append(True)

    for pruned in every_moment(config, lambda: cut(config), lambda found: found.prune(keep_last=1), finish):
        assert not isinstance(pruned, CrewliteError)
        is_sound(config)
        with history(config) as found:
            tasks = ("task:t0", "task:t1", "task:t2")
            assert found.run("r").tasks == (tasks if finished else tasks[:2])
        finished.clear()
        resumed(config)


def test_pruning_beside_a_fork_that_goes_on_loses_nothing(config):
    def grove():
        cut(config)
        with history(config) as found:
            found.fork("r@task:t0", branch="side")

    finished = []

    def go_on():
        assert raws(crew(config).kickoff(from_checkpoint="r/side")) == RAW
        finished.append(True)

    for pruned in every_moment(config, grove, lambda found: found.prune(keep_last=1), go_on):
        assert not isinstance(pruned, CrewliteError)
        is_sound(config)
        with history(config) as found:
            assert found.run("r/side").status == ("finished" if finished else "unfinished")
        finished.clear()
        assert raws(crew(config).kickoff(from_checkpoint="r/side")) == RAW


def test_a_run_that_is_deleted_beside_a_pruning_is_skipped(config):
    def two():
        cut(config)
        crew(config).kickoff(INPUTS, run_id="other")

    def delete():
        with history(config) as found:
            found.delete("r")

    for pruned in every_moment(config, two, lambda found: found.prune(keep_last=1), delete):
        assert not isinstance(pruned, CrewliteError)
        assert len(pruned.checkpoints) in (2, 3), "two of the other run, and one of this if it was there"
        is_sound(config)


@pytest.mark.parametrize(
    "verb", ["digest", "export", "cancel", "fork", "inputs", "edits", "rewind", "label", "delete", "answer"]
)
@pytest.mark.parametrize("anew", [False, True], ids=["deleted", "begun anew"])
@soak.every(6)
def test_a_run_that_is_gone_is_a_ref_that_names_nothing(config, verb, anew, every, tmp_path):
    verbs = {
        "digest": lambda found: found.run("r").digest,
        "export": lambda found: found.export("r", tmp_path / "r.json"),
        "cancel": lambda found: found.cancel("r"),
        "fork": lambda found: found.fork("r", branch="f"),
        "inputs": lambda found: found.fork("r", branch="f", inputs={"who": "me"}),
        "edits": lambda found: found.fork("r@task:t1", branch="f", edits={"task:t0": "other"}),
        "rewind": lambda found: found.rewind("r@task:t0"),
        "label": lambda found: found.label("r@task:t0", "good"),
        "delete": lambda found: found.delete("r"),
        "answer": lambda found: found.answer("r", "human:more", "1"),
    }

    def delete():
        with history(config) as found:
            found.delete("r")
        if anew:
            cut(config)

    for told in every_moment(config, lambda: cut(config), verbs[verb], delete, every=every):
        assert not isinstance(told, CrewliteError) or isinstance(told, RefError | BranchConflictError | RunEnded)
        is_sound(config)
        with history(config) as found:
            found.prune(keep_last=1)
            assert len({info.uid for info in found._store.branches("r")}) <= 1, "all branches are of one life"
        resumed(config)


@pytest.mark.parametrize("ref", ["r", "r/side"])
def test_a_kickoff_from_a_checkpoint_that_is_gone_begins_no_run(config, ref):
    def grove():
        cut(config)
        with history(config) as found:
            found.fork("r@task:t0", branch="side")

    def kick_off(found):
        return raws(crew(through(config, found)).kickoff(from_checkpoint=ref))

    for told in every_moment(config, grove, kick_off, lambda: replace_elsewhere(config, ())):
        with history(config) as found:
            gone = not found.runs()
        assert isinstance(told, RefError | BranchConflictError) if gone else told == RAW, told


def test_a_kickoff_beside_a_deletion_says_nothing_of_damage(config):
    def kick_off(found):
        return raws(crew(through(config, found)).kickoff(INPUTS, run_id="r"))

    memory = InMemoryProvider()
    cut(lambda **fields: CheckpointConfig(location="memory", provider=memory, **fields), stop_at=1)
    anew = commits(memory.open("memory"), "r", "main")
    for told in every_moment(config, lambda: cut(config), kick_off, lambda: replace_elsewhere(config, anew)):
        assert told == RAW or isinstance(told, BranchConflictError)
        resumed(config)


def test_rebuilding_from_a_run_that_is_gone_is_a_ref_that_names_nothing(config):
    def rebuild(found):
        source = CheckpointConfig(location=config().location, provider=found._provider, restore_from="r")
        return Crew.from_checkpoint(source, bind={"llm": ScriptedLLM([])})

    def delete():
        with history(config) as found:
            found.delete("r")

    for told in every_moment(config, lambda: cut(config), rebuild, delete):
        assert isinstance(told, Crew | RefError)


def test_an_import_beside_a_deletion_brings_the_whole_run_or_none(config, tmp_path):
    file = tmp_path / "run.json"

    def grove():
        if file.exists():
            with history(config) as found:
                found.import_run(file)
            return
        cut(config)
        with history(config) as found:
            found.fork("r@task:t0", branch="side")
            found.fork("r", branch="fresh")
            found.export("r", file)

    def delete():
        with history(config) as found:
            found.delete("r")

    for told in every_moment(config, grove, lambda found: found.import_run(file).digest, delete):
        assert isinstance(told, str | RefError)
        is_sound(config)
        with history(config) as found:
            branches = {run.branch for run in found.runs()}
            assert branches in (set(), {"main", "side", "fresh"})
            if branches:
                assert found.run("r").digest == found.import_run(file).digest


@pytest.mark.parametrize("dropped", ["prune", "max_checkpoints"])
def test_the_ref_of_a_checkpoint_that_a_fork_stands_on_is_good_whoever_drops_it(config, dropped):
    def fork(found):
        return found.fork("r@task:t0", branch="side")

    def forked():
        with history(config) as other:
            fork(other)

    if dropped == "prune":
        moments = every_moment(config, lambda: cut(config), lambda found: found.prune(keep_last=1), forked)
    else:
        drop = crew(config, max_checkpoints=1).kickoff
        moments = every_moment(config, lambda: cut(config), fork, lambda: drop(INPUTS, run_id="r"))
    seen = set()
    for told in moments:
        with history(config) as found:
            if "side" not in {run.branch for run in found.runs()}:
                assert isinstance(told, RefError) or dropped == "prune", "it was gone before it was found"
                continue
            side = found.run("r/side")
            stands = next(checkpoint for checkpoint in side.checkpoints() if checkpoint.id == side.base.checkpoint_id)
            seen.add(stands.id in {checkpoint.id for checkpoint in found.checkpoints()})
            again = found.fork(stands.ref)
            assert again.base.checkpoint_id == stands.id
            assert found.fork(stands.id[-8:], branch="short").base.checkpoint_id == stands.id
        is_sound(config)
        assert raws(crew(config).kickoff(from_checkpoint="r/side")) == RAW
    assert seen == {False, True}, "it was dropped, and it was kept"


# What is at work in this process is asked for in one place.


def test_every_verb_knows_a_run_that_is_at_work_in_this_process(config):
    with RuntimeState.open("s", config().location, provider=config().provider), history(config) as found:
        assert found.run("s").at_work == "this process"
        with pytest.raises(BranchConflictError, match="this process"):
            found.delete("s")
        assert found.prune(keep_last=1).busy == ("s/main",)


# What is looked at once cannot have changed when it is looked at again.


def test_no_verb_reads_a_branch_twice(config, tmp_path):
    provider = ReadOnce(config().provider)
    once = lambda **fields: config(**fields).model_copy(update={"provider": provider})  # noqa: E731
    # The doctor judges each branch alone, and a provider of one's own; so it is not among these.
    with pytest.raises(Stop), provider.one_verb():
        crew(once, stop_at=2).kickoff(INPUTS, run_id="r")
    with history(config, provider) as found:
        verbs = {
            "fork": lambda: found.fork("r@task:t0", branch="side"),
            "fork of a fork": lambda: found.fork("r/side", branch="deeper"),
            "edits": lambda: found.fork("r@task:t1", branch="edited", edits={"task:t0": "other"}),
            "inputs": lambda: found.fork("r/side", branch="asked", inputs={"who": "me"}),
            "rewind": lambda: found.rewind("r@task:t0"),
            "fork of a tail": lambda: found.fork("r@abandoned:1", branch="left"),
            "undo": lambda: found.rewind("r@abandoned:1"),
            "look": lambda: (run := found.run("r/deeper"), run.status, run.steps, run.checkpoints(), run.at_work),
            "list": lambda: (found.runs(), found.checkpoints(), found.checkpoint("r")),
            "digest": lambda: found.run("r").digest,
            "export": lambda: found.export("r", tmp_path / "r.json"),
            "import": lambda: found.import_run(tmp_path / "r.json"),
            "cancel": lambda: found.cancel("r/asked"),
            "preview": lambda: crew(once).fork("r/side").preview(),
            "rehearse": lambda: found.prune(keep_last=1, dry_run=True),
            "prune": lambda: found.prune(keep_last=1),
            "prune again": lambda: found.prune(keep_last=1),
            "resume": lambda: crew(once).kickoff(INPUTS, run_id="r"),
            "go on": lambda: crew(once).kickoff(from_checkpoint="r/deeper"),
            "rebuild": lambda: Crew.from_checkpoint(once(restore_from="r"), bind={"llm": ScriptedLLM([])}),
            "old": lambda: found.prune(older_than=timedelta(days=1)),
            "delete": lambda: found.delete("r"),
            "bring back": lambda: found.import_run(tmp_path / "r.json"),
        }
        for name, verb in verbs.items():
            with provider.one_verb(name):
                verb()
