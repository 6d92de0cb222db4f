"""The steps of a run and their attempts as History shows them, derived from the record alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from crewlite import kinds
from crewlite.encoding.codec import decode
from crewlite.errors import InDoubt
from crewlite.ids import now
from crewlite.state.format.addresses import leaf, outer, outers, try_of
from crewlite.state.format.outcome import Attempt, Outcome
from crewlite.state.format.record import Record
from crewlite.state.format.times import Times, calls_in_doubt, tries_of_base
from crewlite.state.format.undecided import keeps_failure, undecided
from crewlite.state.reading.conversation import superseded
from crewlite.usage import NO_USAGE, Usage

StepStatus = Literal["finished", "failed", "in_doubt"]


@dataclass(frozen=True, slots=True)
class StepView:
    """A step of a run: finished, failed, or in doubt, which is a call that began and has no recorded outcome."""

    address: str
    kind: str
    status: StepStatus
    value: Any = None
    """The recorded outcome, decoded; None if there is none."""
    usage: Usage = NO_USAGE
    milliseconds: float = 0.0
    """How long the run worked on the step, in all attempts and kickoffs. Parallel steps count once, waits do not."""
    attempts: tuple[Attempt, ...] = ()
    """The attempts that failed. In a fork, those of its base count only for a step that finished there."""
    type: str | None = None
    """The kind of work as the author of the step names it: `@step(type="llm_call")`."""
    reused_from: str | None = None
    """The step that the outcome was copied from, as `run/branch@address`; None if this run produced it."""
    started_at: datetime | None = None
    """The time in UTC at which the successful attempt began; None without an outcome."""
    ended_at: datetime | None = None
    """The time in UTC at which the outcome was recorded; None without one."""
    edited: bool = False
    """Whether the outcome is an edit that a fork was given, rather than the result of an execution."""
    repeatable: bool = False
    """For a step in doubt: whether a resume repeats the call without asking, because its effect allows that."""
    asks: bool = False
    """For a step in doubt: whether it stopped at a question inside it, which waits for a person."""
    seq: int | None = None
    """The number of the commit that recorded the outcome, also once a compaction has merged it; None without one."""
    model: str | None = None
    """Of a finished model call: the model that answered, which may be a fallback; None for any other step."""
    unused: bool = False
    """Whether the code does not ask for the step any more. It is listed because a call with effect="once" was made."""

    @property
    def begun_at(self) -> datetime | None:
        """The time in UTC at which the first recorded attempt began; None if there is none."""
        return min((at for at in (self.started_at, *(one.started_at for one in self.attempts)) if at), default=None)

    @property
    def status_text(self) -> str:
        """The status for people to read.

        That is `waiting` for a call that asks a person, and for a timer until it is over; `unused` for a step that the
        code does not ask for any more; `edited` or `reused` for an outcome from elsewhere.
        """
        if self.asks or ((until := self._end_of_timer) and until > now()):
            return "waiting"
        if self.unused and self.status == "finished":
            return "unused"
        return "edited" if self.edited else "reused" if self.reused_from else self.status

    @property
    def seconds(self) -> float:
        """How long the run worked on the step, in seconds; of a timer, how long it waits."""
        if (until := self._end_of_timer) and self.ended_at:
            return max(0.0, (until - self.ended_at).total_seconds())
        return self.milliseconds / 1_000

    @property
    def _end_of_timer(self) -> datetime | None:
        """When the wait of a timer ends, which is recorded as its outcome when it begins; None for another step."""
        return self.value if kinds.of(self.kind) is kinds.TIMER and isinstance(self.value, datetime) else None


def steps_of(record: Record) -> list[StepView]:
    """Return the finished steps in the order of their commits, then the failed ones, then the ones in doubt.

    A step that failed several times has the place of its last failure, a call that began several times that of its last
    beginning. Steps that nothing uses any more are left out, but for calls with effect="once" (see `listed`).
    """
    views = _all_steps(record)
    uses = listed(record, [step.address for step in views])
    return [step if uses[step.address] else replace(step, unused=True) for step in views if step.address in uses]


def status_without_step(address: str, steps: Mapping[str, StepView]) -> str:
    """Return the status of a step that is known only by steps inside it.

    Such a step is unfinished, unless one around it has finished: then a prune has dropped its outcome.
    """
    ended = any(at in steps and steps[at].status == "finished" for at in outers(address))
    return "pruned" if ended else "unfinished"


def listed(record: Record, addresses: Sequence[str]) -> dict[str, bool]:
    """Return those of the recorded steps that a reader should see, and whether the run still uses each.

    A step is not used if the conversation of an agent does not request it any more, or if the enclosing step ran again
    without it: in a fork, or because its question changed. The steps inside it are unused, too. Such steps are left
    out, but for the calls with effect="once" that this branch has made, because they took effect, and the steps around
    these. A step that only stores a failure until its remedy is chosen is left out: that is listed as an attempt. So is
    one that failed inside a finished step of which a compaction has left out the rest, but no call with effect="once".
    """
    outcomes = record.outcomes
    failures = {at for at, one in outcomes.items() if keeps_failure(one)}
    gone = superseded(record).union(failures, _failed_inside(record), *(one.unused for one in outcomes.values()))
    if not gone:
        return dict.fromkeys(addresses, True)
    uses = {at: gone.isdisjoint((at, *outers(at))) for at in addresses}
    made = {at for at, used in uses.items() if not used and at not in failures and _took_effect(record, at)}
    made.update(around for at in [*made] for around in outers(at))
    return {at: used for at, used in uses.items() if used or at in made}


def _failed_inside(record: Record) -> Iterator[str]:
    """Yield the failed steps inside steps of which a compaction has left out the finished ones.

    It keeps a failure from before a commit that it does not merge, and nothing tells any more whether it counts.
    """
    outcomes = record.outcomes
    failed = (at for at in record.attempts if at not in outcomes and not record.is_once(at))
    for at in failed:
        if any(outcomes[around].worked is not None for around in outers(at) if around in outcomes):
            yield at


def _took_effect(record: Record, address: str) -> bool:
    """Return whether this is a call with effect="once" that this branch has made, not the one it was forked from."""
    outcome = record.outcomes.get(address)
    return outcome is not None and outcome.seq > record.base and record.is_once(address)


def inherited(record: Record) -> set[str]:
    """Return the addresses of the steps that a fork inherited from its base, whether they finished or failed there."""
    finished = {at for at, outcome in record.outcomes.items() if outcome.seq <= record.base}
    return finished | {at for at, tries in record.attempts.items() if tries[-1].seq <= record.base}


def _all_steps(record: Record) -> list[StepView]:
    tries, times = _tries(record), Times(record)
    views = []
    for outcome in sorted(record.outcomes.values(), key=lambda outcome: outcome.seq):
        ended = datetime.fromisoformat(outcome.at)
        views.append(
            StepView(
                outcome.address,
                outcome.kind,
                "finished",
                value=decode(record.value(outcome.address)),
                usage=Usage.of(outcome.usage or {}),
                milliseconds=times.milliseconds(outcome.address),
                attempts=tries.get(outcome.address, ()),
                type=outcome.label,
                reused_from=outcome.reused,
                started_at=ended - timedelta(milliseconds=outcome.milliseconds),
                ended_at=ended,
                edited=outcome.edited,
                seq=outcome.seq,
                model=model_of(outcome),
            )
        )
    for address, attempts in sorted(tries.items(), key=lambda one: one[1][-1].order):  # earlier ones may be left out
        if address not in record.outcomes:
            took = times.milliseconds(address)
            views.append(StepView(address, attempts[-1].kind, "failed", milliseconds=took, attempts=attempts))
    asking = {at for asked in record.waiting for at in outers(asked["address"])}
    views += [
        StepView(
            address,
            leaf(address).partition(":")[0],
            "in_doubt",
            repeatable=effect != "once",
            asks=address in asking,
        )
        for address, effect in calls_in_doubt(record).items()
        if address not in tries  # as is a failure whose remedy is not chosen yet
    ]
    return views


def calls_without_outcome(record: Record) -> frozenset[str]:
    """Return the addresses of the calls that were begun, or were about to be, and that have no recorded outcome."""
    return frozenset(record.intents.keys() - record.outcomes.keys())


def unsettled(record: Record) -> dict[str, int]:
    """Return the outermost calls that the next kickoff stops at with InDoubt, and how often each was begun."""
    once = [at for at in record.once if not record.settled(at)]
    if record.finished or not once:
        return {}
    handled = record.failures.keys() | undecided(record).keys()
    found = {at for at in once if at not in handled and not waits_for_inner_call(record, at)}
    return {at: record.begun_once.get(at, 1) for at in sorted(found) if found.isdisjoint(outers(at))}


def waits_for_inner_call(record: Record, address: str) -> bool:
    """Return whether a call failed only because a call inside it was in doubt, and nobody has decided about that yet.

    Once the inner step has ended, the outer call goes on and may take effect.
    """
    last = record.last_attempt(address)
    if last is None or last.cause is None or last.error_type != InDoubt.__qualname__:
        return False
    return record.end(last.cause) is None


def model_of(outcome: Outcome | None) -> str | None:
    """Return the model that answered; None if this is not the outcome of a model call."""
    if outcome is None or not kinds.of(outcome.kind).asks_model:
        return None
    replied = outcome.value.get("model") if isinstance(outcome.value, dict) else None  # a fallback
    return replied or outcome.provenance.get("model")


def valid_outcome(record: Record, address: str) -> Outcome | None:
    """Return the outcome of a step; None if there is none, or a later attempt at the step has failed."""
    outcome, failed = record.outcomes.get(address), record.last_attempt(address)
    return None if outcome and failed and failed.order > outcome.order else outcome


def attempts_of(record: Record) -> list[Attempt]:
    """Return every failed attempt, in the order in which they were recorded."""
    return sorted((attempt for tries in _tries(record).values() for attempt in tries), key=lambda attempt: attempt.seq)


def _tries(record: Record) -> dict[str, tuple[Attempt, ...]]:
    """Return the failed attempts by address, each with the usage of its reply and of the steps inside it."""
    spent, tries = _spent_inside(record), dict(record.attempts)
    for address, last in undecided(record).items():
        tries[address] = [*tries.get(address, ()), last]
    found = {
        address: tuple(_numbered_on(_with_usage(attempts, spent)))[tries_of_base(record, address) :]
        for address, attempts in tries.items()
    }
    return {address: counting for address, counting in found.items() if counting}


def _numbered_on(attempts: list[Attempt]) -> Iterator[Attempt]:
    """Yield the attempts with increasing numbers, although a resume may number them from 1 again in the record."""
    number = 0
    for attempt in attempts:
        number = max(number + 1, attempt.number)
        yield replace(attempt, number=number)


def _with_usage(attempts: list[Attempt], spent: dict[tuple[str, int], list[tuple[int, Usage]]]) -> list[Attempt]:
    """Return the attempts with their usage.

    Of two attempts with the same number, the later one reuses finished steps of the earlier one: the usage of those
    steps counts for the earlier attempt.
    """
    found, before = [], 0
    for attempt in attempts:
        number = attempt.number if attempt.address else 1  # all attempts at the run itself share their steps
        inside = (usage for seq, usage in spent.get((attempt.address, number), ()) if before < seq <= attempt.seq)
        found.append(replace(attempt, usage=sum(inside, attempt.usage)))
        before = attempt.seq
    return found


def _spent_inside(record: Record) -> dict[tuple[str, int], list[tuple[int, Usage]]]:
    """Return (seq, usage) of the model calls inside each attempt, by (address of the enclosing step, its number)."""
    spent: dict[tuple[str, int], list[tuple[int, Usage]]] = {}
    paid = [(one.address, one.seq, Usage.of(one.usage)) for one in record.outcomes.values() if one.usage]
    paid += [(at, one.seq, one.usage) for at, tries in record.attempts.items() for one in tries if one.usage.requests]
    for address, seq, usage in paid:
        inside = address
        while inside:
            within = outer(inside), try_of(inside)
            spent.setdefault(within, []).append((seq, usage))
            inside = within[0]
    return spent
