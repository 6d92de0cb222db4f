"""Which recorded steps the code inside a step must request again under strict replay.

Code that has not changed requests what it requested before, in the same order. Some recorded steps it may leave out all
the same: those recorded after a failure that is now tried again, those of a fork with edits or other inputs, and those
recorded after a step that may differ.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from crewlite import kinds
from crewlite.runtime.steps.attempts import is_call_made_once
from crewlite.runtime.steps.mode import DIFFERS, MAY_DIFFER, Mode, StepQuestion
from crewlite.state.format.addresses import is_right_below, prefix_beside
from crewlite.state.format.earlier import has_other_inputs
from crewlite.state.format.numbering import is_counted
from crewlite.state.format.outcome import Attempt, Outcome
from crewlite.state.format.record import Record

Ends = Mapping[str, Outcome | Attempt]
"""A part of `Record.ends`."""


def missed(record: Record, mode: Mode, prefix: str, unrequested: Collection[str]) -> tuple[str, ...]:
    """Return the steps of `unrequested` that the code should have requested, as nothing they depend on has changed."""
    return needed(record, mode, _must_be_requested(record, mode, prefix, unrequested), unrequested)


def passed_over(record: Record, question: StepQuestion, mode: Mode, unrequested: Collection[str]) -> Ends:
    """Return the unrequested recorded steps that the code requested before this one last time; {} if it may be new."""
    address = question.address
    if not unrequested or question.comes_late or not is_counted(address):
        return {}
    if record.earlier_inputs:  # a fork with other inputs may request other steps
        return {}
    void = record.void.get(address, 0)  # it and steps ended before this commit: any order
    unrequested = [at for at in unrequested if not ((ended := record.end(at)) and ended.seq < void)]
    if question.drift != MAY_DIFFER:  # a step that may differ has no step beside it
        beside = record.events.beside(address)
        unrequested = [at for at in unrequested if not ((ended := record.end(at)) and beside(ended.seq))]
    left = _must_be_requested(record, mode, prefix_beside(address), unrequested)
    return {at: one for at, one in left.items() if is_counted(at)}


def comes_earlier(
    record: Record, ended: Outcome | Attempt, question: StepQuestion, mode: Mode, unrequested: Collection[str]
) -> bool:
    """Return whether a step is requested before steps that ended before it, so that it is not the recorded one.

    Calls with effect="once" are not counted: they keep their addresses when the steps around them become void.
    """
    passed = passed_over(record, question, mode, unrequested)
    return any(one.order < ended.order and not is_call_made_once(record, one) for one in passed.values())


def needed(record: Record, mode: Mode, left_out: Ends, open_ones: Collection[str]) -> tuple[str, ...]:
    """Return the recorded steps without which unchanged code cannot have come so far.

    Of the ended steps `left_out`, these are those before the first one that the code may leave out. Of the steps
    `open_ones` they are those that are, or enclose, a call in doubt, unless the code may leave out one of `open_ones`.
    """
    if not mode.binds or mode.differs:
        return ()
    free = free_from(record, left_out)
    before = [at for at, ended in left_out.items() if ended.seq < free]
    cut = () if free_from(record, open_ones) < math.inf else mode.left_in_doubt.intersection(open_ones)
    return (*before, *sorted(at for at in cut if not record.end(at)))


def free_from(record: Record, addresses: Iterable[str]) -> float:
    """Return the commit number of the first of these steps that may differ, or whose code differed; inf if none does.

    Steps committed from there on need not be requested again: the code may have left out the first one.
    """
    known = (ended for at in addresses if (ended := record.end(at)))
    free = (one.seq for one in known if MAY_DIFFER in one.provenance or DIFFERS in one.provenance)
    return min(free, default=math.inf)


def _must_be_requested(record: Record, mode: Mode, prefix: str, unrequested: Collection[str]) -> Ends:
    """Return the ends of the `unrequested` steps that unchanged code must request; {} if it may request other steps."""
    if not mode.binds or record.edited or not unrequested:
        return {}
    tried_again = _tried_again(record, prefix)

    def may_be_left_out(at: str, seq: int) -> bool:
        retried = any(first <= seq < end for first, end in tried_again)
        return retried or kinds.at(at).is_about_failure or has_other_inputs(record, at)

    ended = {at: record.ends[at] for at in sorted(unrequested) if at in record.ends}
    return {at: one for at, one in ended.items() if not may_be_left_out(at, one.seq)}


def _tried_again(record: Record, prefix: str) -> list[tuple[int, float]]:
    """Return (first, end) of the ranges of commits after failures below `prefix` whose steps were then tried again.

    Steps committed in such a range need not be requested again. A range ends at the step's later outcome.
    """
    ranges = list[tuple[int, float]]()
    for at, tries in record.attempts.items():
        if is_right_below(at, prefix):
            end = record.ends[at].seq if at in record.ends else math.inf
            ranges += [
                (attempt.seq, end) for attempt in tries if attempt.final and not attempt.void and attempt.seq < end
            ]
    return ranges
