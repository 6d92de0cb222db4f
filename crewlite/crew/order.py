"""What each task of a crew is given, and what it waits for: decided from the definition alone, so each life does alike.

Tasks that are not async form a line: each begins when the one before it in the line has ended, and so does an async
task. Beside that a task waits for what it builds on. Without a `context` of its own it builds on all tasks before it;
an async one on those of them that have ended for certain when it begins, as chance would choose among the others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from crewlite.task.conditional import ConditionalTask
from crewlite.task.task import Task


@dataclass(frozen=True, slots=True)
class Needs:
    """Of one task, the numbers of others before it."""

    context: tuple[int, ...]
    """Those whose outputs its agent is given."""
    previous: int | None
    """The one before it, if its condition is asked about that."""
    waits_for: frozenset[int]
    """Those that have to end before it begins."""

    @property
    def sources(self) -> tuple[int, ...]:
        """Those that its outcome follows from."""
        return self.context if self.previous is None else tuple(dict.fromkeys((*self.context, self.previous)))


def needs_of(tasks: Sequence[Task]) -> list[Needs]:
    """What each task needs."""
    numbers = {task: number for number, task in enumerate(tasks)}
    found: list[Needs] = []
    for number, task in enumerate(tasks):
        line = {n for n in range(number) if not tasks[n].async_execution}
        previous = number - 1 if isinstance(task, ConditionalTask) else None
        waits_for = line if previous is None else line | {previous}
        if task.context is not None:
            context = tuple(numbers[other] for other in task.context)
        elif task.async_execution:
            context = tuple(sorted(waits_for.union(*(found[n].waits_for for n in waits_for))))
        else:
            context = tuple(range(number))
        found.append(Needs(context, previous, frozenset(waits_for.union(context))))
    return found


def ready(needs: Sequence[Needs], begun: Collection[int], ended: Collection[int]) -> list[int]:
    """The tasks that can begin now, in their order."""
    return [n for n, task in enumerate(needs) if n not in begun and task.waits_for.issubset(ended)]
