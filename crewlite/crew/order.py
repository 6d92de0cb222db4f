"""Decide which context each task of a crew gets, and which tasks it waits for.

Both follow from the definition alone, so that a resume decides the same. A task begins when the last task before it
that is not async has ended, and so have the tasks in its context. Without a `context` of its own a task builds on all
tasks before it; an async task only on those that are certain to have ended when it begins.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from crewlite.task.conditional import ConditionalTask
from crewlite.task.task import Task


@dataclass(frozen=True, slots=True)
class Needs:
    """The tasks that one task needs, by their numbers."""

    context: tuple[int, ...]
    """Those whose outputs its agent is given."""
    previous: int | None
    """The one before it, if its condition is asked about that."""
    waits_for: frozenset[int]
    """Those that have to end before it begins."""

    @property
    def sources(self) -> tuple[int, ...]:
        """The numbers of the tasks that its outcome depends on."""
        return self.context if self.previous is None else tuple(dict.fromkeys((*self.context, self.previous)))


def needs_of(tasks: Sequence[Task]) -> list[Needs]:
    """Return what each task needs, in the order of the tasks."""
    numbers = {task: number for number, task in enumerate(tasks)}
    found, line = list[Needs](), set[int]()
    for number, task in enumerate(tasks):
        previous = number - 1 if isinstance(task, ConditionalTask) else None
        waits_for = line if previous is None else line | {previous}
        if task.context is not None:
            context = tuple(numbers[other] for other in task.context)
        elif task.async_execution:
            context = tuple(sorted(waits_for.union(*(found[n].waits_for for n in waits_for))))
        else:
            context = tuple(range(number))
        found.append(Needs(context, previous, frozenset(waits_for.union(context))))
        if not task.async_execution:
            line.add(number)
    return found


def ready(needs: Sequence[Needs], begun: Collection[int], ended: Collection[int]) -> list[int]:
    """Return the numbers of the tasks that can begin now, in order."""
    return [n for n, task in enumerate(needs) if n not in begun and task.waits_for.issubset(ended)]
