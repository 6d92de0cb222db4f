"""Handlers that act on the run they hear of: whatever they do, and whenever, the run stays whole and readable."""

from __future__ import annotations

import contextlib

import pytest

from crewlite import Agent, Crew, History, Task, ToolCall, event_bus
from crewlite.errors import CrewliteError
from crewlite.events import BaseEvent, CheckpointCompletedEvent, CheckpointStartedEvent, CrewKickoffStartedEvent
from crewlite.state.format.entry import InvalidEntry, seal
from crewlite.state.journal.lineage import find_lineage
from crewlite.testing import ScriptedLLM
from tests.parts import look


def _restored(state, n):
    state["x"] = n
    made = state.snapshot()
    state["x"] = -1
    state.restore(made)


def _rolled(state, n):
    with contextlib.suppress(ZeroDivisionError), state.rollback_on_error():
        state["rolled"] = n
        state.snapshot()
        raise ZeroDivisionError


async def _arestored(state, n):
    state["x"] = n
    made = await state.asnapshot()
    state["x"] = -1
    state.restore(made)


VERBS = {
    "checkpoint": (lambda state, n: state.checkpoint(), lambda state, n: state.acheckpoint()),
    "label": (lambda state, n: state.checkpoint(label=f"l{n}"), lambda state, n: state.acheckpoint(label=f"l{n}")),
    "snapshot": (lambda state, n: state.snapshot(), lambda state, n: state.asnapshot()),
    "restore": (_restored, _arestored),
    "rollback": (_rolled, None),
    "flush": (lambda state, n: state.flush(), lambda state, n: state.aflush()),
    "checkpoints": (lambda state, n: state.checkpoints(), None),
}
ACTS = [
    (verb, mode) for verb, modes in VERBS.items() for mode, act in zip(("sync", "async"), modes, strict=True) if act
]


def acting(verb, mode, at):
    """A handler that does it once for each type of event, with the state of the run; and what it was refused."""
    act, refused, seen, states = VERBS[verb][mode == "async"], [], set(), []

    def due(event, state):
        states.extend([state] if state is not None else ())
        if not states or event.type in seen or not isinstance(event, at):
            return None
        seen.add(event.type)
        return states[-1]

    def handler(source, event, state):
        if (found := due(event, state)) is not None:
            try:
                act(found, len(seen))
            except CrewliteError as error:
                refused.append(error)

    async def async_handler(source, event, state):
        if (found := due(event, state)) is not None:
            try:
                await act(found, len(seen))
            except CrewliteError as error:
                refused.append(error)

    return (async_handler if mode == "async" else handler), refused, seen


def build(config, paid, **fields):
    def reply(messages):
        paid.append(1)
        number = int(messages[1]["content"].split()[1])
        heard = [m["content"] for m in messages if m["role"] == "tool"]
        return ToolCall("look", {"where": f"w{number}"}) if number == 0 and not heard else f"answer {number}"

    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(reply), tools=[look])
    tasks = [
        Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=agent, context=[]) for n in range(3)
    ]
    return Crew(tasks=tasks, checkpoint=config)


@pytest.mark.parametrize(("at", "most"), [(BaseEvent, None), (CheckpointStartedEvent, None), (BaseEvent, 2)])
@pytest.mark.parametrize(("verb", "mode"), ACTS)
def test_a_handler_may_act_at_any_event_and_the_run_stays_whole(config, verb, mode, at, most):
    kept, paid = config(on_events=["task_completed", "llm_call_completed"], max_checkpoints=most), []
    handler, refused, seen = acting(verb, mode, at)
    with event_bus.on(BaseEvent, handler):
        result = build(kept, paid).kickoff(run_id="r")
    assert result.raw == "answer 2"
    assert result.durability == "sync"
    assert "checkpoint_started" in seen
    assert at is CheckpointStartedEvent or {"checkpoint_completed", "task_started", "tool_usage_started"} <= seen
    assert not refused or mode == "async", refused  # an async one may come too late
    store = kept.provider.open(kept.location)
    try:
        assert find_lineage(store, "r", "main").record().finished
    finally:
        store.close()
    before = len(paid)
    assert build(kept, paid).kickoff(run_id="r").raw == "answer 2"
    assert len(paid) == before
    if kept.provider.name != "memory":
        with History(kept.location) as history:
            assert history.doctor() == []


@pytest.mark.parametrize("kind", ["kept", "kept.db"])
@pytest.mark.parametrize("at", [BaseEvent, CheckpointStartedEvent])
@pytest.mark.parametrize(("verb", "mode"), [act for act in ACTS if act[0] in ("checkpoint", "snapshot", "restore")])
def test_a_run_in_memory_that_is_kept_by_a_handler_stays_whole(tmp_path, kind, verb, mode, at):
    location, paid = str(tmp_path / kind), []
    handler, refused, _ = acting(verb, mode, at)

    def keep(source, event, state):
        state.checkpoint(location)

    with event_bus.on(CrewKickoffStartedEvent, keep), event_bus.on(BaseEvent, handler):
        result = build(None, paid).kickoff()
    assert result.raw == "answer 2"
    assert not refused or mode == "async", refused
    with History(location) as history:
        assert history.run().status == "finished"
        assert history.doctor() == []


def test_a_checkpoint_is_announced_once_it_is_sealed_and_before_it_is_done(config):
    order = []
    with event_bus.scoped():
        event_bus.on(CheckpointStartedEvent, lambda source, event: order.append(("started", event.seq)))
        event_bus.on(CheckpointCompletedEvent, lambda source, event: order.append(("completed", event.seq)))
        build(config(on_events=["task_completed"]), []).kickoff()
    assert [kind for kind, _ in order] == ["started", "completed"] * 3
    assert all(first == second for (_, first), (_, second) in zip(order[::2], order[1::2], strict=True))


def test_nothing_is_sealed_that_names_a_checkpoint_of_another_commit():
    checkpoint = {"id": "0" * 32, "seq": 4, "version": 1, "parent": None, "trigger": "x", "address": "", "about": {}}
    commit = {"schema": 1, "seq": 5, "at": "2026-01-01T00:00:00+00:00", "place": checkpoint}
    with pytest.raises(InvalidEntry, match="commit 5 and holds a checkpoint of commit 4"):
        seal(commit, after="")
    assert seal({**commit, "seq": 4}, after="").seq == 4
    assert seal({**commit, "place": {**checkpoint, "sum": "1" * 32}}, after="").seq == 5
