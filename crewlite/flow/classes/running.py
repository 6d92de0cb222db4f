"""Which method of which flow the running code belongs to, and which flows are at work at all."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from typing import NamedTuple, TypeVar, cast

from crewlite.flow.classes.feedback import HumanFeedbackResult
from crewlite.state.journal.view import View
from crewlite.system.forked import in_child, lock


class Running(NamedTuple):
    """The running method of a flow, and the state that the method's step sees."""

    flow: object
    own: object
    """The method's `self`: `flow`, or this kickoff's copy (see `at_work`)."""
    view: View
    outer: Running | None
    """The enclosing method, if this flow was kicked off inside a method."""
    feedback: list[HumanFeedbackResult]
    """What people said before the method started, and in the method itself."""
    method: str
    """The name of the method."""
    retyped: Collection[str]
    """The fields of the state whose types have changed since the run began."""

    def is_of(self, flow: object) -> bool:
        """Return whether the method is one of this flow."""
        return flow is self.flow or flow is self.own


T = TypeVar("T")
running: ContextVar[Running | None] = ContextVar("crewlite_flow_method", default=None)
_owned: dict[int, tuple[object, object, dict[str, object]]] = {}
"""(object on which a kickoff calls methods, its flow, the object's attributes when the kickoff began) for each kickoff
at work in this process, by the object's id."""
_owning = lock()
in_child(_owned.clear)  # these kickoffs are at work in the parent


def method_of(flow: object) -> Running | None:
    """Return the running method of this flow that encloses the caller; None outside of one."""
    method = running.get()
    while method is not None and not method.is_of(flow):
        method = method.outer
    return method


def original(flow: T) -> T:
    """Return the flow itself, also for the copy of it on which a kickoff calls methods (see `at_work`)."""
    method = method_of(flow)
    return cast(T, method.flow) if method else flow


@contextlib.contextmanager
def at_work(flow: T) -> Iterator[T]:
    """Note in the block that a kickoff of the flow is at work, and yield the object on which its methods are called.

    Of several kickoffs at the same time, one gets the flow itself, and each other one a copy with the attributes that
    the flow had before: no method sees an attribute that a method of another kickoff has set.
    """
    with _owning:
        own, there = flow, _owned.get(id(flow))
        before = there[2] if there else dict(vars(flow))
        if there:
            own = copy.copy(flow)
            vars(own).clear()
            vars(own).update(before)
        _owned[id(own)] = own, flow, before
    try:
        yield own
    finally:
        with _owning:
            del _owned[id(own)]


def is_at_work(flow: object) -> bool:
    """Return whether a kickoff of the flow is at work in this process, whoever began it."""
    with _owning:
        return any(flow is own or flow is of for own, of, _ in [*_owned.values()])
