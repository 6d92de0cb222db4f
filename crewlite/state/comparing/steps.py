"""The steps of two runs, matched by their addresses and compared: question, model, outcome.

A step is known by its address without the numbers of attempts, so a step that one run had to do twice is matched with
the one that the other did once. Of several attempts the last one is matched first; the earlier ones are beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from crewlite import kinds
from crewlite.state.comparing.fields import FieldDiff, Status
from crewlite.state.format.addresses import in_order, outers, without_tries
from crewlite.state.format.outcome import Outcome
from crewlite.state.format.record import Record
from crewlite.state.format.times import Times, calls_in_doubt, tries_of
from crewlite.state.reading.prompts import Prompts
from crewlite.state.reading.shown import said
from crewlite.state.reading.steps import StepStatus, model_of, stale, standing
from crewlite.usage import NO_USAGE, Usage

_Key = tuple[str, int]
"""(the address of a step without the numbers of attempts, how many later attempts at the step there are)"""


@dataclass(frozen=True, slots=True)
class StepSide:
    """A step as one of two compared runs has it."""

    address: str
    status: StepStatus
    milliseconds: float
    usage: Usage
    failed_attempts: int
    model: str | None
    """The model that was called; None for a step that calls none."""
    edited: bool
    reused_from: str | None


@dataclass(frozen=True, slots=True)
class StepDiff:
    """A step of one or both runs."""

    address: str
    """The address of the step in the second run; in the first run if only that one has the step."""
    kind: str
    status: Status
    shared: bool
    """Whether both runs inherited the step from the same commit, and the fork has not run it again."""
    changes: tuple[FieldDiff, ...]
    """What differs: `output`, `status`, `model`, and the texts that it was asked, such as `description`.

    Of a model call also its `prompt`, without what the calls before it were told.
    """
    a: StepSide | None
    b: StepSide | None


def step_diffs(a: Record, b: Record, common: int) -> tuple[StepDiff, ...]:
    """Compare the steps of two runs, which share `common` commits: as a tree, in the order of the first run."""
    ours, theirs = _keyed(a), _keyed(b)
    ranks: dict[str, list[_Key]] = {}
    for key in _merged(ours, theirs):
        ranks.setdefault(key[0], []).append(key)
    before, after = (a, Prompts(a), Times(a)), (b, Prompts(b), Times(b))
    return tuple(
        _compared(_Found.at(*before, ours.get(key)), _Found.at(*after, theirs.get(key)), common)
        for address in in_order(ranks)
        for key in sorted(ranks.get(address, ()))
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """The step at an address of one record; a step that the record lacks has the address None."""

    record: Record
    prompts: Prompts
    times: Times
    address: str | None
    outcome: Outcome | None
    model: str | None

    @classmethod
    def at(cls, record: Record, prompts: Prompts, times: Times, address: str | None) -> _Found:
        outcome = None if address is None else standing(record, address)
        return cls(record, prompts, times, address, outcome, model_of(outcome))

    @property
    def kind(self) -> str:
        at = self.address or ""
        if self.outcome:
            return self.outcome.kind
        last = self.record.last_attempt(at)
        return last.kind if last else kinds.at(at).name

    def status(self) -> StepStatus:
        if self.outcome:
            return "finished"
        return "failed" if tries_of(self.record, self.address or "") else "in_doubt"

    def output(self) -> str | None:
        """Return the outcome of the step as text; of a failed step, its error; None if it has neither."""
        at = self.address or ""
        if self.outcome is None:
            last = self.record.last_attempt(at)
            return f"{last.error_type}: {last.message}" if last else None
        kind, value = kinds.of(self.outcome.kind), self.record.value(at)
        if kind is kinds.CREW and (tasks := [task for task in value.get("tasks", ()) if task in self.record.outcomes]):
            kind, value = kinds.TASK, self.record.value(tasks[-1])  # a crew says what its last task does
        return said(kind, value)

    def asked(self) -> Mapping[str, str]:
        return self.outcome.question if self.outcome else {}

    def prompt(self) -> str | None:
        """Return as one text what a model call was told since the call before it; None for any other step."""
        return str(self.prompts.added(self.address)) if self.address and self.model else None

    def side(self) -> StepSide | None:
        if self.address is None:
            return None
        outcome, tries = self.outcome, tries_of(self.record, self.address)
        return StepSide(
            self.address,
            self.status(),
            self.times.milliseconds(self.address),
            Usage.of(outcome.usage) if outcome and outcome.usage else NO_USAGE,
            len(tries),
            self.model,
            bool(outcome and outcome.edited),
            outcome.reused if outcome else None,
        )


def _compared(a: _Found, b: _Found, common: int) -> StepDiff:
    one, other = a.outcome, b.outcome
    shared = bool(one and other and one.seq == other.seq <= common and one.address == other.address)
    here = b if b.address is not None else a
    changes = () if shared else tuple(_changes(a, b))
    status: Status = "only_a" if b.address is None else "only_b" if a.address is None else "same"
    if status == "same" and changes:
        status = "changed"
    return StepDiff(here.address or "", here.kind, status, shared, changes, a.side(), b.side())


def _changes(a: _Found, b: _Found) -> Iterator[FieldDiff]:
    """Yield what differs between two steps. Compares the digests first, because most steps are the same."""
    both = a.address is not None and b.address is not None
    asked_alike = bool(a.outcome and b.outcome and a.outcome.fingerprint == b.outcome.fingerprint)
    of_tasks = kinds.of(a.kind) is kinds.CREW
    answered_alike = bool(a.outcome and b.outcome and a.outcome.digest == b.outcome.digest and not of_tasks)
    if asked_alike and answered_alike and a.model == b.model:
        return
    asked_a, asked_b = a.asked(), b.asked()
    if both and asked_a and asked_b:
        yield from _texts(asked_a, asked_b)
    if both:
        yield from _texts({"status": a.status()}, {"status": b.status()})
        yield from _texts({"model": a.model}, {"model": b.model})
        if not asked_alike:
            yield from _texts({"prompt": a.prompt()}, {"prompt": b.prompt()})
    if not answered_alike:
        yield from _texts(*({} if one.address is None else {"output": one.output()} for one in (a, b)))


def _texts(a: Mapping[str, str | None], b: Mapping[str, str | None]) -> Iterator[FieldDiff]:
    for name in {**a, **b}:
        before, after = a.get(name), b.get(name)
        if before != after:
            status: Status = "only_b" if before is None else "only_a" if after is None else "changed"
            yield FieldDiff(name, status, before, after)


def _keyed(record: Record) -> dict[_Key, str]:
    """Return {key: address} of all steps that are still in use, in the order of their commits."""
    stands = {at for at in record.outcomes if standing(record, at)}
    order = [(record.outcomes[at].seq, record.outcomes[at].order, at) for at in stands]
    failed = {at: tries[-1] for at in record.attempts if at not in stands and (tries := tries_of(record, at))}
    order += [(last.seq, last.order, at) for at, last in failed.items()]
    gone = stale(record)
    found: dict[str, list[str]] = {}
    for at in (*(at for _, _, at in sorted(order)), *calls_in_doubt(record)):
        if not gone or gone.isdisjoint((at, *outers(at))):
            found.setdefault(without_tries(at), []).append(at)
    return {(key, rank): at for key, tries in found.items() for rank, at in enumerate(reversed(tries))}


def _merged(ours: Mapping[_Key, str], theirs: Iterable[_Key]) -> Iterator[_Key]:
    """Yield all keys: those of the first run in order, each key of the second alone after the key that precedes it."""
    behind: dict[_Key | None, list[_Key]] = {}
    last: _Key | None = None
    for key in theirs:
        if key in ours:
            last = key
        else:
            behind.setdefault(last, []).append(key)
    yield from behind.get(None, ())
    for key in ours:
        yield key
        yield from behind.get(key, ())
