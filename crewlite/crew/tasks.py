"""Run the tasks of a crew: each begins when the tasks that it waits for have ended, and gets their outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from crewlite import durable
from crewlite.concurrency.unawaited import mark_seen
from crewlite.crew.binding import drifted_task
from crewlite.crew.order import Needs, Unbegun
from crewlite.durable import Scope, Step
from crewlite.lazy import lazy
from crewlite.runtime.steps.questions import Drifted
from crewlite.runtime.steps.step_scope import StepScope
from crewlite.state.format.earlier import has_other_inputs
from crewlite.step_parts import Drift
from crewlite.task.assignment import ContextItem, FilledTask
from crewlite.task.output import TaskOutput
from crewlite.task.step import Given, task_step
from crewlite.usage import NO_USAGE

if TYPE_CHECKING:
    from crewlite.crew import planning
else:  # only for crews that plan
    planning = lazy("crewlite.crew.planning")

_SHOWN = {"description": "description", "expected_output": "expected_output", "agent": "role"}
"""Fields of a task's output that are texts of its question."""


@dataclass(slots=True)
class TasksAtWork:
    """The tasks of one kickoff. Each that ends is recorded, even if another one fails."""

    filled: Sequence[FilledTask]
    addresses: Sequence[str]
    needs: Sequence[Needs]
    width: int | None
    """The number of tasks that may run at once."""
    changed: set[int]
    """The tasks that a fork's inputs or edits have changed; tasks that build on them are added."""
    inner: bool
    """The crew is a step of another definition's run, so it is not known which tasks have changed."""
    plan: Sequence[str] = ()
    """The plan for each task; empty without a plan."""
    outputs: dict[int, TaskOutput] = field(default_factory=dict)
    items: dict[int, ContextItem] = field(default_factory=dict)
    """The outputs, as context of other tasks."""

    async def work(self) -> list[TaskOutput]:
        """Run all tasks; return the outputs in the order of the tasks. If one fails, those that run still end."""
        scope, unbegun = durable.scope(), Unbegun(self.needs)
        width = 1 if scope.dry else self.width or len(self.filled)
        while len(self.outputs) < len(self.filled):
            ready = unbegun.take(width)
            if len(ready) > 1:
                await self._side_by_side(ready, unbegun, width)
            else:
                self._ended(ready[0], await scope.step(self._step(ready[0])), unbegun)
        return [self.outputs[number] for number in range(len(self.filled))]

    async def _side_by_side(self, ready: Sequence[int], unbegun: Unbegun, width: int) -> None:
        """Run these tasks, and those that may begin before the last one has ended. Raises the first failure."""
        scope, at_work, begun, failed = durable.scope(), set[int](), list[tuple[int, asyncio.Task[None]]](), list[int]()
        if isinstance(scope, StepScope):
            scope.children.task = asyncio.current_task()  # the tasks below await steps beside it

        async def run_one(number: int, step: Awaitable[TaskOutput]) -> None:
            try:
                output = await step  # a resume gets the recorded ones in the order of their commits
            except BaseException:
                failed.append(number)
                raise
            self._ended(number, output, unbegun)
            at_work.discard(number)
            if at_work and not failed:
                begin(unbegun.take(width - len(at_work)))  # before others hand over what they have changed

        def begin(numbers: Sequence[int]) -> None:
            at_work.update(numbers)
            for number in numbers:
                task = asyncio.ensure_future(run_one(number, scope.step(self._step(number))))
                task.add_done_callback(mark_seen)  # raised below
                begun.append((number, task))

        begin(ready)
        for _, task in begun:  # grows meanwhile
            if not task.done():
                await asyncio.wait({task})
        for _, task in sorted(begun, key=itemgetter(0)):
            task.result()

    def _step(self, number: int) -> Step[TaskOutput]:
        """Build the step of a task. The tasks that it needs must have ended."""
        needs, scope, address = self.needs[number], durable.scope(), self.addresses[number]
        if self.changed and not self.changed.isdisjoint(needs.sources):
            self.changed.add(number)
        context = list(map(self.items.__getitem__, needs.context))
        given = Given(
            context,
            context if needs.previous is None and not self.plan else self._sources(number),
            None if needs.previous is None else self.outputs[needs.previous],
            self.plan[number] if self.plan else "",
        )
        drift = drift_of(scope, address, changed=self.inner or number in self.changed)
        used = partial(scope.run.record.paid.inside, address) if isinstance(scope, StepScope) else lambda: NO_USAGE
        return task_step(self.filled[number], given, used, address=address, drift=drift)

    def _ended(self, number: int, output: TaskOutput, unbegun: Unbegun) -> None:
        """Store the output of a task, with the texts that it answers if the task is asked something else now."""
        scope, address, filled = durable.scope(), self.addresses[number], self.filled[number]
        if isinstance(scope, StepScope) and address in scope.children.drifted:
            was = drifted_task(scope.run.record, address, filled, self._sources(number))
            output = answered(output, was)
        self.outputs[number] = output
        self.items[number] = ContextItem(address, filled.title, output.raw, output.skipped)
        unbegun.note_end(number)

    def _sources(self, number: int) -> list[ContextItem]:
        """Return all outputs that a task's outcome depends on."""
        sources = [*map(self.items.__getitem__, self.needs[number].sources)]
        return [*sources, *planning.planned(self.plan, number)] if self.plan else sources


def answered(output: TaskOutput, drifted: Drifted | None) -> TaskOutput:
    """Return an output with the texts that it answers, if the task is asked something else now."""
    if drifted is None:
        return output
    texts = drifted.answered
    return output.model_copy(update={name: texts[text] for name, text in _SHOWN.items() if text in texts})


def unlike(output: TaskOutput, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of an output that differ from those of its task."""
    shown = {name: getattr(output, name) for name in _SHOWN}
    return {name: text for name, text in shown.items() if text != texts[_SHOWN[name]]}


def drift_of(scope: Scope, address: str, *, changed: bool) -> Drift:
    """Return what becomes of a finished step that is asked something else now: it runs again if a fork is the reason.

    A crew inside another run cannot tell the reason, so there any change of the fork counts as the reason.
    """
    if not isinstance(scope, StepScope) or not changed:
        return "configured"
    record = scope.run.record
    if (recorded := record.outcomes.get(address)) and recorded.edited:
        return "keep"
    other_inputs = has_other_inputs(record, address)
    return "rerun" if other_inputs or record.edited else "configured"
