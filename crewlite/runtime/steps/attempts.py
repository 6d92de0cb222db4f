"""Number the attempts at a step, and count the remedies charged to its retry budget, from recorded data alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from crewlite import kinds
from crewlite.errors import DeadlineExceeded, StateConflict, StepTimeout
from crewlite.recovery import Compensate, Remedy, Replan, Resume, Retry, Rollback
from crewlite.state.format.addresses import outers, prefix_inside
from crewlite.state.format.outcome import Attempt, Outcome
from crewlite.state.format.record import Record
from crewlite.state.journal.view import Change


def next_attempt(record: Record, address: str) -> tuple[int, list[Remedy]]:
    """Return the number of the next attempt at a step, and the remedies already charged to its retry budget.

    A resume after a final failure starts a new budget. So does a fork, whose budget only later failures are charged to.
    The number is what `following` returns. For a root that keeps its steps, a new budget begins with attempt 1.
    """
    if not (past := record.attempts.get(address)):
        return 1, []
    remedies = [attempt.remedy or Retry(kind=attempt.failure) for attempt in since_given_up(past, record.base)]
    return following(past[-1]) if remedies or not keeps_steps(past[-1]) else 1, remedies


def tries(record: Record, address: str) -> int:
    """Return the number of attempts at a step so far, in all kickoffs of the run, including the current one."""
    return len(record.attempts.get(address, ())) + 1


def keeps_steps(attempt: Attempt) -> bool:
    """Return whether this is an attempt at a root whose finished steps answer in every attempt."""
    return not attempt.address and kinds.of(attempt.kind).worker != "model"


def since_given_up(past: Sequence[Attempt], base: int) -> list[Attempt]:
    """Return the attempts since a step's last final failure, without those up to commit `base`, a fork's base."""
    given_up = max((i + 1 for i, attempt in enumerate(past) if attempt.final), default=0)
    return [attempt for attempt in past[given_up:] if attempt.seq > base]


def is_for_work(remedy: Remedy | None) -> bool:
    """Return whether a remedy applies to a unit of work, and not to a single call."""
    if isinstance(remedy, Retry):
        return bool(remedy.hint) or remedy.tools is not None
    return isinstance(remedy, Replan | Rollback | Resume | Compensate)


def goes_back(failed: Attempt) -> bool:
    """Return whether the attempt after a failed one goes back within the step and keeps what was finished before.

    After a Rollback to a named step, it does. After a Resume, or a Rollback without a name, it does in a step of code
    only: an agent begins from the start.
    """
    remedy = failed.remedy
    if failed.final or not isinstance(remedy, Rollback | Resume):
        return False
    return kinds.of(failed.kind).worker == "code" or (isinstance(remedy, Rollback) and remedy.to is not None)


class Continuation(Enum):
    """How the attempt after a failed one at the same step relates to it."""

    GOES_ON = auto()
    """It has the same number as the failed one, so that all finished steps inside answer."""
    REPEATS_FORK = auto()
    """It has the same number too, because a fork has changed steps inside; the steps that ended on the fork run
    again."""
    BEGINS_ANEW = auto()
    """It has the next number, so that all steps inside run again, at new addresses."""


def continuation(failed: Attempt) -> Continuation:
    """Decide how the attempt after a failed one relates to it."""
    remedy, is_flow = failed.remedy, kinds.of(failed.kind).is_flow
    late = failed.error_type in (StepTimeout.__qualname__, DeadlineExceeded.__qualname__)
    inside_is_good = failed.cause is not None or failed.for_author or late
    if goes_back(failed) or (failed.final and (inside_is_good or is_flow)):
        return Continuation.GOES_ON
    if inside_is_good and isinstance(remedy, Retry) and not remedy.anew:
        return Continuation.GOES_ON
    if failed.holds and not is_for_work(remedy):  # the remedies for work say what to do differently
        return Continuation.REPEATS_FORK
    return Continuation.BEGINS_ANEW


def following(failed: Attempt) -> int:
    """Return the number of the attempt after a failed one."""
    return failed.number + (continuation(failed) is Continuation.BEGINS_ANEW)


def done_anew(record: Record, failed: Attempt, prefix: str) -> list[tuple[str, str]]:
    """Return (address, kind) of the steps below `prefix` that the attempt after a failed one repeats in their places.

    These are none unless that attempt is REPEATS_FORK: then they are the steps that ended on the fork in the failed
    attempt, except edits and calls with effect="once".
    """
    if keeps_steps(failed) or continuation(failed) is not Continuation.REPEATS_FORK:
        return []
    return [
        (at, ended.kind)
        for at, ended in record.ends.items()
        if at.startswith(prefix)
        and failed.holds < ended.seq
        and ended.order <= failed.order
        and not is_call_made_once(record, ended)
        and not kinds.at(at).is_about_failure
    ]


def is_call_made_once(record: Record, ended: Outcome | Attempt) -> bool:
    """Return whether an ended step is a call with effect="once", or has the result of an earlier one."""
    reused = isinstance(ended, Outcome) and ended.reused_at
    return record.is_once(reused or ended.address)


def reusable(record: Record) -> int:
    """Return how many finished steps the next kickoff reuses.

    It runs again the steps inside attempts that it does not continue, and those that `done_anew` returns.
    """
    outcomes, anew, goes_on = record.outcomes, set[str](), dict[str, str | None]()
    for address, tries in record.attempts.items():
        last = tries[-1]
        if address not in outcomes and not keeps_steps(last):
            prefix = prefix_inside(address, last.number)
            anew |= {at for at, _ in done_anew(record, last, prefix)}
            if following(last) != last.number:
                goes_on[address] = None
            elif last.number > 1:
                goes_on[address] = prefix
    if not (anew or goes_on):  # for speed: so most kickoffs end, some with thousands of steps
        return len(outcomes)

    def is_reused(at: str) -> bool:
        prefixes = (goes_on[one] for one in (*outers(at), "") if one in goes_on)
        return all(prefix is not None and at.startswith(prefix) for prefix in prefixes)

    return sum(at not in anew and (is_reused(at) or is_call_made_once(record, one)) for at, one in outcomes.items())


def beside_conflict(record: Record, address: str) -> dict[str, list[Change]]:
    """Return, by step, the changes of the state that concurrent steps had committed when this step met a StateConflict.

    Returns {} unless its last attempt ended with this error, raised for the step itself.
    """
    last = record.last_attempt(address)
    if last is None or last.cause is not None or last.error_type != StateConflict.__qualname__:
        return {}
    prefix = address.rpartition("/")[0]
    return {
        at: [(outcome.order, outcome.changes), *record.late.get(at, ())]
        for at, outcome in record.outcomes.items()
        if outcome.changes and outcome.seq <= last.seq and at != address and at.rpartition("/")[0] == prefix
    }


def failed_before(record: Record, address: str) -> str:
    """Return the error of a step whose last attempt failed finally; "" if none did, or another step stopped the run."""
    last = record.last_attempt(address)
    return f"{last.error_type}: {last.message}" if last and last.final and not last.stops_run else ""


def is_retried(address: str, record: Record, rerun: Mapping[str, int]) -> bool:
    """Return whether a kickoff with this `rerun` retries a failed step.

    For a call with effect="once", `rerun` names one attempt: a program that is started again with the same `rerun`,
    after the call was made again and failed once more, does not retry it.
    """
    return address in rerun and record.begun_once.get(address, rerun[address]) == rerun[address]


def was_decided(record: Record, address: str) -> bool:
    """Return whether a failure policy decided on the last failure of a step, or of the child step that caused it."""
    last = record.last_attempt(address)
    return last is not None and (
        last.remedy is not None or (last.cause is not None and was_decided(record, last.cause))
    )
