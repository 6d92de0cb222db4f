"""Events that tests emit, and a handler's failure."""

from __future__ import annotations

from crewlite.events import StepCompletedEvent, StepStartedEvent, TaskCompletedEvent


def step(name="s"):
    return StepCompletedEvent(kind="step", name=str(name))


def started(name="s"):
    return StepStartedEvent(kind="step", name=str(name))


def completed():
    return TaskCompletedEvent(output="done")


def divide():
    return 1 / 0
