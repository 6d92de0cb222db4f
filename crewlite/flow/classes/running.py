"""Which method of which flow the running code belongs to, and which flows are at work at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import NamedTuple
from weakref import WeakKeyDictionary

from crewlite.flow.classes.feedback import HumanFeedbackResult
from crewlite.forked import in_child, lock
from crewlite.state.journal.view import View


class Running(NamedTuple):
    """The flow whose method is running, and the state that the method's step sees."""

    flow: object
    view: View
    outer: Running | None
    """The enclosing method, if this flow was kicked off inside a method."""
    feedback: list[HumanFeedbackResult]
    """What people said before the method started, and in the method itself."""
    method: str
    """The name of the method."""


running: ContextVar[Running | None] = ContextVar("crewlite_flow_method", default=None)
_kickoffs: WeakKeyDictionary[object, int] = WeakKeyDictionary()
"""How many kickoffs of each flow are at work in this process."""
_counting = lock()
in_child(_kickoffs.clear)  # they stay with the parent


@contextlib.contextmanager
def at_work(flow: object) -> Iterator[None]:
    """Note in the block that a kickoff of the flow is at work."""
    with _counting:
        _kickoffs[flow] = _kickoffs.get(flow, 0) + 1
    try:
        yield
    finally:
        with _counting:
            _kickoffs[flow] -= 1
            if not _kickoffs[flow]:
                del _kickoffs[flow]


def is_at_work(flow: object) -> bool:
    """Return whether a kickoff of the flow is at work in this process, for whichever code."""
    return flow in _kickoffs
