"""Going back, or giving a label, is one commit, which stands before or after what others do at the same time."""

from __future__ import annotations

import contextlib

import pytest

from crewlite.errors import BranchConflictError, CrewliteError, RefError

from .moments import INPUTS, RAW, crew, cut, every_moment, history, is_sound, raws, resumed


def went_back(config):
    assert raws(crew(config).kickoff(INPUTS, run_id="r")) == RAW
    with history(config) as found:
        found.rewind("r@task:t1")


def test_a_fork_of_an_abandoned_tail_beside_a_pruning_has_all_of_the_tail(config):
    def prune():
        with history(config) as other:
            other.prune(keep_last=1)

    fork = lambda found: found.fork("r@abandoned:1", branch="left").branch  # noqa: E731
    for told in every_moment(config, lambda: went_back(config), fork, prune):
        assert told == "left"
        is_sound(config)
        assert raws(crew(config).kickoff(from_checkpoint="r/left")) == RAW
        resumed(config)


def test_a_rewind_beside_a_run_that_finishes_loses_nothing(config):
    finished = []

    def finish():
        with contextlib.suppress(BranchConflictError):
            finished.append(raws(crew(config).kickoff(INPUTS, run_id="r")) == RAW)

    for told in every_moment(config, lambda: cut(config), lambda found: found.rewind("r@task:t0"), finish):
        assert not isinstance(told, CrewliteError) or isinstance(told, BranchConflictError)
        is_sound(config)
        with history(config) as found:
            run = found.run("r")
            ends = [run.tasks, *(tail.tasks for tail in run.abandoned)]
            assert ("task:t0", "task:t1", *["task:t2"] * bool(finished)) in ends
            assert run.abandoned or isinstance(told, CrewliteError)
        finished.clear()
        resumed(config)


@pytest.mark.parametrize("place", ["task:t0", "task:t1"])
def test_two_rewinds_at_once_are_two_in_some_order_or_one_if_they_are_the_same(config, place):
    wanted = {"task:t0": {1}, "task:t1": {1, 2}}[place]  # the last moment is that at which nobody else comes
    found_all = set()

    def other():
        with history(config) as beside:
            beside.rewind(f"r@{place}")

    for told in every_moment(config, lambda: cut(config), lambda found: found.rewind("r@task:t0"), other):
        assert not isinstance(told, CrewliteError)
        is_sound(config)
        with history(config) as found:
            found_all.add(len(found.run("r").rewinds))
        resumed(config)
    assert found_all == wanted


def test_a_label_beside_a_pruning_is_given_and_stays_or_its_place_is_gone(config):
    def prune():
        with history(config) as other:
            other.prune(keep_last=1)

    seen = set()
    for told in every_moment(config, lambda: cut(config), lambda found: found.label("r@task:t0", "good"), prune):
        is_sound(config)
        with history(config) as found:
            if isinstance(told, CrewliteError):
                assert isinstance(told, RefError)
            else:
                labelled = found.checkpoint("r@label:good")
                assert (labelled.id, labelled.seq, labelled.tasks) == (told.id, told.seq, ("task:t0",))
            seen.add(type(told))
        resumed(config)
    assert len(seen) == 2, "its place was gone, and it was given"
