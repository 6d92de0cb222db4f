"""The clock of all waits. It keeps going when a test stops the clocks of the module `time`.

freezegun, for instance, puts functions that return one fixed time into all loaded modules, `asyncio` among them. A wait
that looks at such a clock never ends. It leaves alone what other objects refer to, such as the partial below.
"""

from __future__ import annotations

import threading
import time
from functools import partial

from crewlite.lazy import asyncio

_GLANCE = 0.002  # seconds between two looks at an event
steady = partial(time.monotonic)
"""Returns the seconds since some moment; they never decrease."""


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop that goes by this clock."""
    made = asyncio.new_event_loop()
    made.time = steady  # type: ignore[method-assign]  # of this loop alone, whichever class it has
    return made


def is_set_within(event: threading.Event, timeout: float) -> bool:
    """Wait at most `timeout` seconds for an event. Returns whether it is set.

    It looks at the event instead of waiting in it, where an exception of a signal handler may become a RuntimeError.
    """
    until = steady() + timeout
    while not event.is_set():
        if steady() >= until:
            return False
        time.sleep(_GLANCE)
    return True
