"""Decide which context each task of a crew gets, and when it may begin.

Both follow from the definition alone, so that a resume decides the same. A task begins when the last task before it
that is not async has ended, and so have the tasks in its context. Without a `context` of its own a task builds on all
tasks before it; an async task only on those that are certain to have ended when it begins.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from crewlite.task.task import ConditionalTask, Task


class Needs(NamedTuple):
    """The tasks that one task needs, by their numbers."""

    context: Sequence[int]
    """The tasks whose outputs are given to this task's agent."""
    previous: int | None
    """The task before this one, if this is a ConditionalTask: its condition gets the output of that task."""
    waits_for: frozenset[int]
    """The tasks that this task waits for. A task that another one of them already waits for is left out."""

    @property
    def sources(self) -> Sequence[int]:
        """The numbers of the tasks that its outcome depends on."""
        if self.previous is None or isinstance(self.context, range):  # a range holds the previous one
            return self.context
        return tuple(dict.fromkeys((*self.context, self.previous)))


def needs_of(tasks: Sequence[Task]) -> list[Needs]:
    """Return what each task needs, in the order of the tasks."""
    numbers = {task: number for number, task in enumerate(tasks)}
    found = list[Needs]()
    last = frozenset[int]()  # the last task that is not async
    certain, other = set[int](), set[int]()  # the tasks that have ended when `last` has; the tasks that may not have
    for number, task in enumerate(tasks):
        previous = number - 1 if isinstance(task, ConditionalTask) else None
        context: Sequence[int]
        if task.context is not None:
            context = tuple(map(numbers.__getitem__, task.context))
            joined = other.intersection((*context, previous))
        elif task.async_execution:
            before = () if previous is None else (previous, *found[previous].sources)
            context = tuple(sorted(certain.union(before)))
            joined = other.intersection(before)
        else:
            context, joined = range(number), other.copy()
        found.append(Needs(context, previous, last | joined))
        if task.async_execution:
            other.add(number)
        else:
            last = frozenset((number,))
            certain |= joined | last
            other -= joined
    return found


class Unbegun:
    """The tasks of a kickoff that have not begun. Each can begin when the tasks that it waits for have ended."""

    def __init__(self, needs: Sequence[Needs]) -> None:
        self._waiting: dict[int, list[int]] = {}
        """By number of a task that has not ended: the tasks that wait for it."""
        for number, one in enumerate(needs):
            for other in one.waits_for:
                self._waiting.setdefault(other, []).append(number)
        self._left = [len(one.waits_for) for one in needs]
        """For how many tasks each one still waits."""
        self._ready = [number for number, left in enumerate(self._left) if not left]  # a heap

    def take(self, most: int) -> list[int]:
        """Return the numbers of the first tasks that can begin now, in order; they count as begun."""
        return [heapq.heappop(self._ready) for _ in range(min(most, len(self._ready)))]

    def note_end(self, number: int) -> None:
        """Note that a task has ended."""
        for other in self._waiting.pop(number, ()):
            self._left[other] -= 1
            if not self._left[other]:
                heapq.heappush(self._ready, other)
