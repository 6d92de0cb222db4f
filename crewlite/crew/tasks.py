"""Run the tasks of a crew: each begins when the tasks that it waits for have ended, and gets their outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crewlite import durable
from crewlite.crew.binding import drifted_task
from crewlite.crew.order import Needs, Unbegun
from crewlite.crew.planning import planned
from crewlite.durable import Scope, Step
from crewlite.runtime.steps.questions import Drifted
from crewlite.runtime.steps.step_scope import StepScope
from crewlite.state.format.earlier import has_other_inputs
from crewlite.step_parts import Drift
from crewlite.task.assignment import ContextItem, FilledTask
from crewlite.task.output import TaskOutput
from crewlite.task.step import Given, task_step

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
        scope, running = durable.scope(), dict[asyncio.Task[TaskOutput], int]()
        unbegun, ended = Unbegun(self.needs), asyncio.Queue[asyncio.Task[TaskOutput]]()
        width = 1 if scope.dry else self.width or len(self.filled)
        while len(self.outputs) < len(self.filled):
            begin = unbegun.take(width - len(running))
            if not running and len(begin) == 1:
                self._ended(begin[0], await scope.step(self._step(begin[0])))
                unbegun.note_end(begin[0])
                continue
            for number in begin:
                task = scope.spawn(self._step(number))
                running[task] = number
                task.add_done_callback(ended.put_nowait)
            done = [await ended.get()]
            while not ended.empty():
                done.append(ended.get_nowait())
            if any(task.cancelled() or task.exception() for task in done):
                await _raise_first(scope, running)
            for task in sorted(done, key=running.__getitem__):
                scope.hand_over(task)
                number = running.pop(task)
                self._ended(number, task.result())
                unbegun.note_end(number)
        return [self.outputs[number] for number in range(len(self.filled))]

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
        return task_step(self.filled[number], given, address=address, drift=drift)

    def _ended(self, number: int, output: TaskOutput) -> None:
        """Store the output of a task, with the texts that it answers if the task is asked something else now."""
        scope, address, filled = durable.scope(), self.addresses[number], self.filled[number]
        if isinstance(scope, StepScope) and address in scope.children.drifted:
            was = drifted_task(scope.run.record, address, filled, self._sources(number))
            output = answered(output, was)
        self.outputs[number] = output
        self.items[number] = ContextItem(address, filled.title, output.raw, output.skipped)

    def _sources(self, number: int) -> list[ContextItem]:
        """Return all outputs that a task's outcome depends on."""
        return [*map(self.items.__getitem__, self.needs[number].sources), *planned(self.plan, number)]


def answered(output: TaskOutput, drifted: Drifted | None) -> TaskOutput:
    """Return an output with the texts that it answers, if the task is asked something else now."""
    if drifted is None:
        return output
    told = drifted.answered
    return output.model_copy(update={name: told[text] for name, text in _SHOWN.items() if text in told})


def unlike(output: TaskOutput, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of an output that differ from those of its task."""
    told = {name: getattr(output, name) for name in _SHOWN}
    return {name: text for name, text in told.items() if text != texts[_SHOWN[name]]}


async def _raise_first(scope: Scope, running: Mapping[asyncio.Task[TaskOutput], int]) -> None:
    """Wait until all running tasks have ended; then raise the first failure, in the order of the tasks."""
    await asyncio.wait(running)
    for task in sorted(running, key=running.__getitem__):
        if task.cancelled() or task.exception():
            scope.mark_awaited(task)
            task.result()


def drift_of(scope: Scope, address: str, *, changed: bool) -> Drift:
    """Return what becomes of a finished step that is asked something else now: it runs again if a fork is the reason.

    In a crew that is a step of another run the reason is not known, so there a fork may be it for every step.
    """
    if not isinstance(scope, StepScope) or not changed:
        return "configured"
    record = scope.run.record
    if (recorded := record.outcomes.get(address)) and recorded.edited:
        return "keep"
    other_inputs = has_other_inputs(record, address)
    return "rerun" if other_inputs or record.edited else "configured"
