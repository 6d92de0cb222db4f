"""`History.label`: a name for one place of a run, also while it works, after a prune, and where it is abandoned."""

from __future__ import annotations

import threading

import pytest

from crewlite import event_bus
from crewlite.errors import ConfigError, RefError
from crewlite.events import TaskCompletedEvent, TaskStartedEvent
from crewlite.flow import flow, step
from crewlite.state.reading.checkpoints import by_place
from tests import children
from tests.state.folded import history
from tests.state.going_back import EVENTS, Said, answers, crew_of


def test_a_label_names_one_place_of_a_run(config):
    crew_of(Said(), config).kickoff(run_id="r")
    with history(config) as found:
        place = found.checkpoint("r@task:first")
        made = found.label(place, "good")
        assert (made.label, made.seq, made.address, made.parent_id) == ("good", place.seq, place.address, place.id)
        assert found.checkpoint("r@label:good") == made == found.label("r@task:first", "good")
        found.fork("r@label:good", branch="side")
        assert found.label("r/side", "good") == made, "a fork that stands there is at the same place"
        with pytest.raises(RefError, match=r"checkpoint .* \(task:first\) of r/main"):
            found.label("r", "good")
        with pytest.raises(ConfigError, match="label"):
            found.label("r", "not a name")
        found.prune(keep_last=1)
        assert found.checkpoint("r@label:good").id == made.id, "its parent is gone"
        assert found.rewind("r@label:good").checkpoints()[-1].id == made.id
        left = found.label("r@abandoned:1", "old")
        assert left.abandoned and found.checkpoint("r@label:old") == left
        assert found.doctor() == []
    assert answers(crew_of(Said(), config).kickoff(run_id="r")) == ["reply 1", "reply 1"]


def test_a_run_of_this_process_is_labelled_while_it_works(config):
    crew = crew_of(Said(), config)
    given = []

    @event_bus.on(TaskStartedEvent)
    def mark(source, event):
        if event.task_name == "second" and not given:
            with history(config) as found, pytest.raises(RefError, match="another place"):
                given.append(found.label("r@task:first", "good"))
                assert found.label("r@task:first", "good") == given[0]
                found.label("r@task:first/llm#1", "good")

    crew.kickoff(run_id="r")
    with history(config) as found:
        assert found.run("r").status == "finished"
        assert found.checkpoint("r@label:good") == given[0]
        assert found.fork("r@label:good").tasks == ("task:first",)
        assert found.doctor() == []


def test_a_run_is_labelled_by_another_thread_of_its_process(config):
    begun, on, given = threading.Event(), threading.Event(), []

    @step
    def one():
        return 1

    @step
    def two():
        begun.set()
        assert on.wait(children.PATIENCE)
        return 2

    @flow(checkpoint=config(on_events=EVENTS))
    def sums():
        return one() + two()

    running = threading.Thread(target=lambda: given.append(sums.kickoff(run_id="r")))
    running.start()
    assert begun.wait(children.PATIENCE)
    with history(config) as found:
        made = found.label("r@step:one", "good")
        on.set()
        running.join()
        assert found.checkpoint("r@label:good") == made
    assert given == [3]


def test_a_labelled_place_is_one_place(memory):
    crew_of(Said(), memory).kickoff(run_id="r")
    with history(memory) as found:
        first = found.checkpoint("r@task:first")
        before = found.checkpoint("r@task:first~1")
        for name in ("good", "better"):
            found.label("r@task:first", name)
            assert found.checkpoint("r@task:first~1") == before == found.checkpoint(f"r@label:{name}~1")
        assert found.checkpoint("r@task:second/llm#1~1").seq == first.seq
        for listed in (found.run("r").checkpoints(), found.checkpoints()):
            places = by_place(listed)
            assert [place.labels for place in places if place.checkpoint.seq == first.seq] == [("good", "better")]
            assert {place.checkpoint.id for place in places if place.labels} == {first.id}
            assert len(places) == len(listed) - 2
        page = found.as_html("r")
        assert (page.count(">good<"), page.count(first.id[-8:])) == (1, 1)


def test_a_label_stands_for_the_checkpoint_of_its_place_that_was_dropped(memory):
    crew_of(Said(), memory).kickoff(run_id="r")
    with history(memory) as found:
        labelled = found.label("r@task:first", "good")
        found.prune(keep_last=1)
        *_, before, last = found.run("r").checkpoints()
        assert (before.id, last.parent_id) == (labelled.id, labelled.id)
        assert found.checkpoint("r~1").id == labelled.id


def test_an_inherited_place_is_labelled_on_the_branch_that_it_is_of(memory):
    crew = crew_of(Said(), memory)
    crew.kickoff(run_id="r")
    crew.fork("r@task:first", branch="side")
    with history(memory) as found:
        labelled = found.label("r/side@task:first", "good")
        assert (labelled.branch, found.checkpoint("r/main@label:good")) == ("main", labelled)
        with pytest.raises(RefError):
            found.checkpoint("r/side@label:good")


def test_a_label_that_was_abandoned_can_be_given_again(memory):
    @event_bus.on(TaskCompletedEvent)
    def mark(source, event, state):
        state.snapshot(label=event.address.replace(":", "-"))

    crew = crew_of(Said(), memory)
    crew.kickoff(run_id="r")
    with history(memory) as found:
        found.rewind("r@label:task-first")
    crew.kickoff(run_id="r")
    with history(memory) as found:
        assert not found.checkpoint("r@label:task-second").abandoned
