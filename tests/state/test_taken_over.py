"""Whoever loses a branch to another process is told so by every verb, with the name of that process."""

from __future__ import annotations

import asyncio

import pytest

from crewlite import event_bus
from crewlite.errors import BranchConflictError, RunCancelled
from crewlite.events import TaskCompletedEvent
from crewlite.flow import Flow, persist, start
from crewlite.state import CheckpointConfig, History, RuntimeState
from crewlite.state.journal.cancel import cancel
from crewlite.state.journal.claim import claim
from crewlite.state.journal.lineage import recorded
from crewlite.state.providers import Commit, provider_for

ELSEWHERE = {"host": "another-machine", "boot": "another boot", "pid": 7, "started": 7}
VERBS = {
    "snapshot": lambda state: state.snapshot(),
    "asnapshot": lambda state: asyncio.run(state.asnapshot()),
    "restore": lambda state: state.restore(1),
    "checkpoint": lambda state: state.checkpoint(),
    "acheckpoint": lambda state: asyncio.run(state.acheckpoint()),
}


def taken(location, run_id, **parts):
    """Commit to a run as another process does that could not see that this one lives."""
    store = provider_for(location).open(location)
    head = recorded(store, run_id, "main").head
    store.append([Commit.of(run_id, "main", head, parts or {"claim": {**claim(), **ELSEWHERE}})])
    store.close()


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_of_a_state_names_the_process_that_has_taken_it(location, verb):
    with RuntimeState.open("bag", location) as state:
        state["a"] = 1
        state.snapshot()
        taken(location, "bag")
        state["a"] = 2
        for _ in range(2):
            with pytest.raises(BranchConflictError, match=r"State 'bag' is held by process 7 on another-machine"):
                VERBS[verb](state)


def test_a_state_that_another_process_has_changed_and_released_says_what_was_found(location):
    with RuntimeState.open("bag", location) as state:
        state["a"] = 1
        state.snapshot()
        taken(location, "bag", released=True)
        with pytest.raises(BranchConflictError, match="at commit 3, and commit 2 was expected.*then open it again"):
            state.checkpoint()


@pytest.mark.parametrize("verb", ["snapshot", "restore", "checkpoint"])
def test_every_verb_of_the_state_of_a_cancelled_run_says_that_it_was_cancelled(make_crew, location, verb):
    told = []

    def handler(source, event, state):
        if not told:
            state["a"] = 1
            state.snapshot()
            store = provider_for(location).open(location)
            cancel(store, state.run_id, "main")
            store.close()
            try:
                VERBS[verb](state)
            except Exception as error:
                told.append(error)

    with event_bus.on(TaskCompletedEvent, handler), pytest.raises(RunCancelled):
        make_crew(["x"], 2, checkpoint=CheckpointConfig(location=location)).kickoff(run_id="r")
    assert [type(error) for error in told] == [RunCancelled]


def test_a_turn_that_was_taken_over_is_not_told_to_wait_for_the_next_one(location):
    @persist(CheckpointConfig(location=location))
    class Chat(Flow):
        @start()
        def hear(self):
            with History(location) as history:
                taken(location, history.runs()[0].run_id)

    with pytest.raises(BranchConflictError, match="is being run by process 7 on another-machine") as told:
        Chat().kickoff({"id": "mine"})
    assert (told.value.state_id, told.value.found) == ("", None)
    assert "next one" not in str(told.value)
