"""Attempts at a step: the number of the next one, and the remedies its budget has spent. Decided from data alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crewlite.errors import DeadlineExceeded, StepTimeout
from crewlite.recovery import Remedy, Retry
from crewlite.state.format.outcome import Attempt


def next_attempt(past: Sequence[Attempt], base: int, *, once: bool) -> tuple[int, list[Remedy]]:
    """The number of the attempt to make, and the remedies already charged to its budget.

    A fork, whose `base` is the number of the commit it stands on, has a budget of its own, and a resume after giving up
    starts a new one. It goes on with the old attempt where a child step failed, which can run again, and where the
    error was for the author of the program, as nothing that is paid is to blame. What failed on finished children needs
    a new attempt, with new children. What is done `once` has but one: its children are the same in every life.
    """
    if not past or once:
        return 1, []
    last = past[-1]
    late = last.error_type in (StepTimeout.__qualname__, DeadlineExceeded.__qualname__)
    goes_on = last.cause is not None or last.for_author or late
    number = last.number if last.final and goes_on else last.number + 1
    given_up = max((i + 1 for i, attempt in enumerate(past) if attempt.final), default=0)
    charged = [attempt for attempt in past[given_up:] if attempt.seq > base]
    return number, [attempt.remedy or Retry(kind=attempt.failure) for attempt in charged]


def was_decided(attempts: Mapping[str, Sequence[Attempt]], address: str) -> bool:
    """Whether a policy decided on the last failure of a step, or of the step inside it that this came from."""
    last = next(iter(attempts.get(address, ())[-1:]), None)
    return last is not None and (
        last.remedy is not None or (last.cause is not None and was_decided(attempts, last.cause))
    )
