"""Admit model calls: check the budgets of all enclosing steps, and space the calls in time.

What a step has used is read from the record, so it is the same number after a resume.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from crewlite import events, kinds
from crewlite.budget import Budget
from crewlite.concurrency.background import guarded, while_left
from crewlite.concurrency.pacing import Pace
from crewlite.durable import Step
from crewlite.errors import BudgetExceeded, TimeBudgetExceeded
from crewlite.ids import now_text
from crewlite.runtime.steps.run import Run
from crewlite.state.format.commit import TimeAtWork
from crewlite.state.format.times import Times
from crewlite.system.steady_clock import steady

T = TypeVar("T")
Announce = Callable[[object, type[Any], Mapping[str, Any]], Awaitable[str]]
"""Emits an event of the step that makes the model call, given its source, its class and its fields."""

_GLANCE = 0.1  # seconds after which a time limit is checked again while its clock is stopped


class HeldBudget:
    """The budget of one step while the step runs: compares the step's usage with the limits."""

    def __init__(self, budget: Budget, run: Run, address: str) -> None:
        self.budget, self._run, self._address = budget, run, address
        self._clock = _ActiveClock(Times(run.record, of_base=True).of(address)) if budget.max_execution_time else None
        self._has_warned = False

    @property
    def timed(self) -> bool:
        """Whether the budget limits the time that the step works."""
        return self._clock is not None

    def check(self) -> None:
        """Raise BudgetExceeded if a limit is reached."""
        if not self.budget.limits_work:
            return
        usage = self._run.used(self._address)
        if self.budget.max_cost_usd is not None and usage.requests and usage.cost is None and not self._has_warned:
            self._has_warned = True
            self._run.journal.warn(
                f"max_cost_usd of {self.budget.owner} limits nothing so far: the cost of its model calls is "
                f"unknown. max_tokens limits them"
            )
        if found := self.budget.reached(usage):
            raise self._exceeded(BudgetExceeded, *found)
        self.check_time()

    def check_time(self) -> None:
        """Raise TimeBudgetExceeded if the step has no time left."""
        if self.left() <= 0:
            raise self.too_long()

    def left(self) -> float:
        """Return how many seconds the step may still work: 0 or less if none are left, infinite without a limit."""
        limit, clock = self.budget.max_execution_time, self._clock
        if limit is None or clock is None:
            return math.inf
        left = limit - clock.seconds()
        return max(left, _GLANCE) if clock.stands and left > 0 else left

    def too_long(self) -> BudgetExceeded:
        """Build the error for a step that has no time left."""
        limit, clock = self.budget.max_execution_time or 0.0, self._clock
        used = round(max(limit, clock.seconds() if clock else 0.0), 3)
        return self._exceeded(TimeBudgetExceeded, "max_execution_time", limit, used)

    def pause(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager that stops the clock of the budget: its block does not count as work."""
        return self._clock.standing() if self._clock else contextlib.nullcontext()

    async def noting(self, work: Awaitable[T]) -> T:
        """Await the work of the step. If it raises or is cancelled, record in the run how long the step has worked."""
        try:
            return await work
        except BaseException:
            if self._clock:
                self._run.worked[self._address] = self._clock.seconds()
            raise

    def _exceeded(self, cls: type[BudgetExceeded], setting: str, limit: float, used: float) -> BudgetExceeded:
        journal = self._run.journal
        return cls(
            self.budget.owner,
            setting,
            limit=limit,
            used=used,
            run_id=journal.run_id,
            location=journal.location,
            branch=journal.branch,
            kind=journal.record.kind,
        )


def held(
    budgets: Iterable[Budget], run: Run, address: str, around: Sequence[HeldBudget] = ()
) -> tuple[HeldBudget, ...]:
    """Begin to apply the budgets of a step. Raises TimeBudgetExceeded if an earlier kickoff used up the time.

    `around`: the budgets of the enclosing steps. If one of them paces calls, an agent's budget is applied even without
    limits, because the pace of an enclosing agent does not apply to the agents inside it.
    """
    made, paced = list[HeldBudget](), any(one.budget.max_rpm for one in around)
    for budget in budgets:
        if budget.limits_anything or (paced and budget.kind == kinds.AGENT.name):
            made.append(HeldBudget(budget, run, address))
            made[-1].check_time()
    return tuple(made)


def limited(work: Coroutine[Any, Any, T], budgets: Iterable[HeldBudget]) -> Coroutine[Any, Any, T]:
    """Return a coroutine that does the work, and raises TimeBudgetExceeded once a budget has no time left."""
    for one in budgets:
        if one.timed:
            work = guarded(one.noting(while_left(work, one.left, one.too_long)))
    return work


async def admit(step: Step[Any], budgets: Sequence[HeldBudget], announce: Announce) -> None:
    """Wait until a model call may begin.

    `budgets`: those of the enclosing steps, outermost first. Raises BudgetExceeded if one of them is used up.
    """
    for one in budgets:
        one.check()
    limits = _limits(budgets) if any(one.budget.max_rpm for one in budgets) else {}
    if not limits:
        return
    with contextlib.ExitStack() as undo:
        with paused(budgets):
            for pace, budget in sorted(limits.items(), key=lambda item: item[0].number):
                if seconds := pace.due(budget.max_rpm or 0):
                    about = {"owner": budget.owner, "max_rpm": budget.max_rpm or 0, "seconds": seconds}
                    await announce(step.events.source, events.LLMCallPacedEvent, about)
                await pace.reserve(budget.max_rpm or 0)
                undo.callback(pace.give_back)
        for one in budgets:  # again, as parallel calls may have ended meanwhile
            one.check()
        undo.pop_all()
    for pace in limits:
        pace.begin()


def worked(run: Run) -> list[TimeAtWork]:
    """Return how long each step that is being cancelled has worked, which no outcome will record."""
    at = now_text()
    return [
        {"address": address, "seconds": seconds, "at": at}
        for address, seconds in run.worked.items()
        if not run.record.settled(address)
    ]


@contextlib.contextmanager
def paused(budgets: Iterable[HeldBudget]) -> Iterator[None]:
    """Stop the clocks of these budgets during the block."""
    with contextlib.ExitStack() as stack:
        for one in budgets:
            stack.enter_context(one.pause())
        yield


def _limits(budgets: Sequence[HeldBudget]) -> dict[Pace, Budget]:
    """Return the limits of requests per minute that apply, each pace with its strictest budget.

    Of several enclosing agents, only the innermost is limited: it makes the call.
    """
    agents = [one.budget for one in budgets if one.budget.kind == kinds.AGENT.name]
    paced = [one.budget for one in budgets if one.budget.kind != kinds.AGENT.name] + agents[-1:]
    strictest_last = sorted((one for one in paced if one.max_rpm), key=lambda one: -(one.max_rpm or 0))
    return {budget.pace: budget for budget in strictest_last}


class _ActiveClock:
    """Counts the seconds that a step has worked; its clock can be stopped."""

    def __init__(self, earlier: float) -> None:
        self._counted, self._since, self._standing = earlier, steady(), 0

    @property
    def stands(self) -> bool:
        return self._standing > 0

    def seconds(self) -> float:
        return self._counted if self.stands else self._counted + steady() - self._since

    @contextlib.contextmanager
    def standing(self) -> Iterator[None]:
        self._counted, self._since, self._standing = self.seconds(), steady(), self._standing + 1
        try:
            yield
        finally:
            self._since, self._standing = steady(), self._standing - 1
