"""The clock of all waits. It keeps going when a test stops the clocks of the module `time`.

freezegun, for instance, puts functions that return one fixed time into all loaded modules, `asyncio` among them. A wait
that looks at such a clock never ends. It leaves alone what other objects refer to, such as the partial below.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from crewlite.lazy import asyncio

_GLANCE = 0.002  # seconds between two looks at a condition
steady = partial(time.monotonic)
"""Returns the seconds since some moment; they never decrease."""


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop that goes by this clock."""
    made = asyncio.new_event_loop()
    made.time = steady  # type: ignore[method-assign]  # of this loop alone, whichever class it has
    return made


def is_true_within(condition: Callable[[], bool], timeout: float) -> bool:
    """Wait at most `timeout` seconds until a condition is true. Returns whether it is.

    It looks again and again: inside the wait of a threading.Event, an exception of a signal handler may become a
    RuntimeError, and whoever sets the event from a finalizer on the same thread waits for ever.
    """
    until = steady() + timeout
    while not condition():
        if steady() >= until:
            return False
        time.sleep(_GLANCE)
    return True
