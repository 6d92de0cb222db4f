"""Record events for tests, which mostly check the events of a run and their order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar
from uuid import UUID

from crewlite.events.base import BaseEvent
from crewlite.events.event_bus import EventBus, Subscription, event_bus

E = TypeVar("E", bound=BaseEvent)


class EventRecorder:
    """Records every event that is emitted inside its block, in order; with `run_id`, only the events of that run.

    ```python
    from crewlite import Agent, Crew, Task
    from crewlite.events import TaskCompletedEvent
    from crewlite.testing import EventRecorder

    clerk = Agent(role="Clerk", goal="answer")
    tasks = [Task(description=text, expected_output="a line", agent=clerk) for text in ("Ask.", "Answer.")]
    with EventRecorder() as events:
        Crew(tasks=tasks, llm="offline").kickoff()
    assert events.types[-1] == "crew_kickoff_completed"
    assert len(events.of(TaskCompletedEvent)) == 2
    ```

    The recorded events stay readable after the block. The block may be entered again, and then adds further events.
    """

    def __init__(self, run_id: str | UUID | None = None, *, bus: EventBus = event_bus) -> None:
        self.run_id = run_id if run_id is None else str(run_id)
        self._bus = bus
        self._heard: list[BaseEvent] = []
        self._subscription: Subscription | None = None

    @property
    def types(self) -> list[str]:
        """The type of each event, in order."""
        return [event.type for event in self]

    def of(self, event: type[E]) -> list[E]:
        """Return the events of one class and its subclasses, in order."""
        return [found for found in self if isinstance(found, event)]

    def __len__(self) -> int:
        return len(self._heard)

    def __iter__(self) -> Iterator[BaseEvent]:
        return iter(tuple(self._heard))

    def __getitem__(self, index: int) -> BaseEvent:
        return self._heard[index]

    def __enter__(self) -> EventRecorder:
        self._subscription = self._bus.on(BaseEvent, self._hear)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._subscription:
            self._subscription.cancel()

    def __repr__(self) -> str:
        return f"EventRecorder({self.types})"

    def _hear(self, source: object, event: BaseEvent) -> None:
        if self.run_id in (None, event.run_id):
            self._heard.append(event)
