"""Several handlers in one object, as programs written for CrewAI have them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from crewlite.events.event_bus import EventBus, event_bus


class BaseEventListener(ABC):
    """Subclass it and subscribe in `setup_listeners`, which is called when an instance is made.

    ```python
    from crewlite.events import BaseEventListener, TaskCompletedEvent

    class Count(BaseEventListener):
        tasks = 0

        def setup_listeners(self, bus):
            @bus.on(TaskCompletedEvent)
            def count(source, event):
                self.tasks += 1
    ```
    """

    def __init__(self) -> None:
        self.setup_listeners(event_bus)

    @abstractmethod
    def setup_listeners(self, bus: EventBus, /) -> None:
        """Subscribe handlers: `@bus.on(TaskCompletedEvent)`."""
