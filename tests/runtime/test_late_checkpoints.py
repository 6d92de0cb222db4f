"""A checkpoint named by hand of a moment that a compaction has compacted since: refused, and the run stays readable."""

from __future__ import annotations

from crewlite import History, event_bus
from crewlite.errors import StoreError
from crewlite.events import TaskCompletedEvent


def test_a_moment_that_was_folded_meanwhile_can_be_named_no_more_and_nothing_is_damaged(on_disk, make_crew):
    states, came = [], []

    def hear(source, event, state):
        states.append(state)
        if len(states) == 60:
            for held in (states[5], states[-1]):
                try:
                    came.append(held.checkpoint())
                except StoreError as error:
                    came.append(error)

    crew = make_crew(lambda messages: "x", 60, checkpoint=on_disk(max_checkpoints=1))
    with event_bus.on(TaskCompletedEvent, hear):
        assert crew.kickoff(run_id="r").durability == "sync"
    assert isinstance(came[0], StoreError), came
    assert isinstance(came[1], str)
    with History(on_disk().location) as history:
        assert history.run("r").status == "finished"
        assert history.doctor() == []
