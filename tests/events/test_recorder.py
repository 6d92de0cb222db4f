"""EventRecorder, with which tests hear events."""

from __future__ import annotations

import pytest

from crewlite.events import BaseEvent, StepCompletedEvent
from crewlite.events.event_bus import event_bus
from crewlite.testing import EventRecorder
from tests.events.spoken import completed, divide, started, step


def test_the_recorder_keeps_events_in_order():
    with EventRecorder() as events:
        event_bus.emit(None, first := started())
        event_bus.emit(None, step())
        event_bus.emit(None, completed())
    event_bus.emit(None, completed())
    assert events.types == ["step_started", "step_completed", "task_completed"]
    assert len(events) == 3
    assert list(events)[0] is events[0] is first
    assert [event.name for event in events.of(StepCompletedEvent)] == ["s"]
    assert events.of(BaseEvent) == list(events)
    assert "step_started" in repr(events)


def test_the_recorder_can_listen_to_one_run():
    with EventRecorder(run_id="mine") as mine, EventRecorder() as everything:
        for run_id in ("mine", "theirs", None, "mine"):
            event_bus.emit(None, StepCompletedEvent(kind="step", name="s", run_id=run_id))
    assert [event.run_id for event in mine] == ["mine", "mine"]
    assert len(everything) == 4


def test_recorders_do_not_disturb_each_other_and_can_go_on():
    with EventRecorder() as outer:
        with EventRecorder() as inner:
            event_bus.emit(None, step())
        event_bus.emit(None, completed())
        with inner:
            event_bus.emit(None, started())
    assert outer.types == ["step_completed", "task_completed", "step_started"]
    assert inner.types == ["step_completed", "step_started"]


def test_the_recorder_stops_listening_when_its_block_raises():
    with pytest.raises(ZeroDivisionError), EventRecorder() as events:
        divide()
    event_bus.emit(None, step())
    assert len(events) == 0


def test_the_recorder_listens_to_any_bus(bus):
    with EventRecorder(bus=bus) as events:
        bus.emit(None, step())
        event_bus.emit(None, completed())
    assert events.types == ["step_completed"]
