"""The two sides of a comparison, and their steps, matched by address and compared: question, model, outcome.

A step is known by its address without the numbers of attempts, so a step that one run had to do twice is matched with
the one that the other did once. Attempts are matched from the last one back: the last with the last, the one before it
with the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from crewlite import kinds
from crewlite.state.comparing.fields import Difference, FieldDiff, without_own_id
from crewlite.state.format.addresses import as_tree, outers, without_tries
from crewlite.state.format.outcome import Attempt, Outcome
from crewlite.state.format.record import Record
from crewlite.state.format.times import Times, calls_in_doubt, tries_of
from crewlite.state.reading.progress import RunStatus, status_of, status_text_of
from crewlite.state.reading.prompts import Prompts
from crewlite.state.reading.shown import outcome_as_text
from crewlite.state.reading.steps import StepStatus, listed, model_of, valid_outcome
from crewlite.system.forked import cached_property
from crewlite.usage import NO_USAGE, Usage

_Key = tuple[str, int]
"""(the address of a step without the numbers of attempts, how many later attempts at the step there are)"""


@dataclass(frozen=True, slots=True)
class Side:
    """One of two compared runs, as it was at the compared place."""

    run_id: str
    branch: str
    at: str | None
    """The id of the checkpoint, or `abandoned:1` for what a rewind has abandoned; None for the branch as it is."""
    seq: int
    """The number of the last commit of the run at that place."""
    status: RunStatus
    kind: str
    name: str
    """The name of the definition."""
    started_at: datetime
    usage: Usage
    seconds: float
    """How long the run has worked, in all kickoffs; parallel steps count once."""
    kicked_off: bool
    """Whether the branch has run: False for a fork that nobody has kicked off yet."""

    @property
    def status_text(self) -> str:
        """The status for people to read: that of an unfinished new fork is `not run yet`."""
        return status_text_of(self.status, kicked_off=self.kicked_off)

    @property
    def ref(self) -> str:
        """The ref that names this side at its location."""
        return f"{self.run_id}/{self.branch}" + (f"@{self.at}" if self.at else "")

    @classmethod
    def of(cls, record: Record, times: Times, at: str | None) -> Side:
        """Build one side of the comparison from its record. `at`: the part of its ref after the @; None without one."""
        run = record.run
        return cls(
            run_id=run["run_id"],
            branch=run["branch"],
            at=at,
            seq=record.seq,
            status=status_of(record),
            kind=run["definition"]["kind"],
            name=run["definition"]["name"],
            started_at=datetime.fromisoformat(record.started_at),
            usage=record.paid.total,
            seconds=times.of(),
            kicked_off=not record.fresh,
        )


@dataclass(frozen=True, slots=True)
class StepSide:
    """A step as one of two compared runs has it."""

    address: str
    status: StepStatus | Literal["skipped"]
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
    status: Difference
    shared: bool
    """Whether both runs inherited the step from the same commit, and the fork has not run it again."""
    changes: tuple[FieldDiff, ...]
    """What differs: `output`, `status`, `model`, and the texts that it was asked, such as `description`.

    Of a model call also its `prompt`, without what the calls before it were told.
    """
    a: StepSide | None
    b: StepSide | None
    dropped: tuple[Literal["a", "b"], ...] = ()
    """The runs in which the step cannot be compared, because a prune has dropped details of it.

    With the status `unknown` the step itself is dropped; with `changed`, the details of how its question changed.
    """


def step_diffs(a: Record, b: Record, common: int, times: tuple[Times, Times]) -> tuple[StepDiff, ...]:
    """Compare the steps of two runs, which share `common` commits: as a tree, in the order of the first run."""
    ours, theirs = _Run(a, times[0], Prompts(a)), _Run(b, times[1], Prompts(b))
    ranks: dict[str, list[_Key]] = {}
    for key in _merged(ours.steps, theirs.steps):
        ranks.setdefault(key[0], []).append(key)
    return tuple(
        _compared(key, ours, theirs, common) for address in as_tree(ranks) for key in sorted(ranks.get(address, ()))
    )


@dataclass(eq=False)
class _Run:
    """One of the runs. Addresses are those without the numbers of attempts."""

    record: Record
    times: Times
    prompts: Prompts

    @cached_property
    def steps(self) -> dict[_Key, _Step]:
        """All steps that are listed, in the order of their commits."""
        record = self.record
        ended: list[tuple[int, tuple[int, ...], _Step]] = []
        for at in {**record.outcomes, **record.attempts}:
            outcome, tries = valid_outcome(record, at), tries_of(record, at) if at in record.attempts else ()
            if last := outcome or (tries[-1] if tries else None):
                ended.append((last.seq, last.order, _Step(self, at, outcome, model_of(outcome), tries)))
        ended.sort(key=lambda one: (*one[:2], one[2].address))
        found: dict[str, list[_Step]] = {}
        in_doubt = (_Step(self, at, None, None, ()) for at in calls_in_doubt(record))
        steps = [*(step for *_, step in ended), *in_doubt]
        shown = listed(record, [step.address for step in steps])
        for step in steps:
            if step.address in shown:
                found.setdefault(without_tries(step.address), []).append(step)
        return {(key, rank): step for key, steps in found.items() for rank, step in enumerate(reversed(steps))}

    def has_dropped(self, address: str) -> bool:
        """Return whether the run had a step at this address that a prune has left out."""
        around = next((self._pruned[at] for at in outers(address) if at in self._pruned), None)
        if around is None:
            return False
        begun = self._begun.get(address, 0)
        if around.seq <= self.record.base or begun > self.record.base:
            return begun > 0
        unused = {without_tries(at) for at in around.unused}  # what the fork inherited and did not ask for again
        return begun > 0 and unused.isdisjoint((address, *outers(address)))

    @cached_property
    def _pruned(self) -> dict[str, Outcome]:
        """The outcomes of the steps whose child steps a prune has removed, by address without attempts."""
        return {without_tries(at): one for at, one in self.record.outcomes.items() if one.worked is not None}

    @cached_property
    def _begun(self) -> dict[str, int]:
        """The number of the commit with the last event of each step. Prunes keep all events."""
        return {without_tries(event.address): event.seq for event in self.record.events}


class _Step(NamedTuple):
    run: _Run
    address: str
    outcome: Outcome | None
    model: str | None
    tries: Sequence[Attempt]

    @property
    def kind(self) -> str:
        ended = self.outcome or self.run.record.last_attempt(self.address)
        return ended.kind if ended else kinds.at(self.address).name

    @property
    def status(self) -> StepStatus | Literal["skipped"]:
        if self.outcome and kinds.of(self.outcome.kind).is_task and self.outcome.value.get("skipped"):
            return "skipped"
        return "finished" if self.outcome else "failed" if self.tries else "in_doubt"

    def output(self) -> str | None:
        """Return the outcome of the step as text; of a failed step, its error; None if it has neither."""
        record = self.run.record
        if self.status == "skipped":
            return None
        if self.outcome is None:
            last = record.last_attempt(self.address)
            return f"{last.error_type}: {last.message}" if last else None
        kind, value = kinds.of(self.outcome.kind), record.value(self.address)
        if kind is kinds.CREW and (tasks := [at for at in value.get("tasks", ()) if at in record.outcomes]):
            done = [at for at in tasks if not record.value(at).get("skipped")] or tasks
            kind, value = kinds.TASK, record.value(done[-1])  # a crew says what its last task does
        elif kind is kinds.CREW:  # inside another run, it is recorded with what it has used
            value = {name: value[name] for name in ("outputs", "changed") if name in value}
        elif kind is kinds.FLOW:
            value = without_own_id(record, self.address, value)
        return outcome_as_text(kind, value)

    def prompt(self) -> str | None:
        """Return as one text what a model call was told since the call before it; None for any other step."""
        return str(self.run.prompts.added(self.address)) if self.model else None

    def side(self) -> StepSide:
        outcome = self.outcome
        return StepSide(
            address=self.address,
            status=self.status,
            milliseconds=self.run.times.milliseconds(self.address),
            usage=Usage.of(outcome.usage) if outcome and outcome.usage else NO_USAGE,
            failed_attempts=len(self.tries),
            model=self.model,
            edited=bool(outcome and outcome.edited),
            reused_from=outcome.reused if outcome else None,
        )


def _compared(key: _Key, ours: _Run, theirs: _Run, common: int) -> StepDiff:
    a, b = ours.steps.get(key), theirs.steps.get(key)
    if b is None:
        return _only("a", ours.steps[key], theirs)
    if a is None:
        return _only("b", b, ours)
    one, other = a.outcome, b.outcome
    shared = bool(one and other and one.seq == other.seq <= common and a.address == b.address)
    changes = () if shared else tuple(_changes(a, b))
    dropped = () if changes or shared else tuple(_lacking(a, b))
    status: Difference = "changed" if changes or dropped else "same"
    return StepDiff(b.address, b.kind, status, shared, changes, a.side(), b.side(), dropped)


def _only(name: Literal["a", "b"], step: _Step, other: _Run) -> StepDiff:
    """Describe a step that only the run `name` has. The other run never had it, or a prune has dropped it there."""
    a, b = (step.side(), None) if name == "a" else (None, step.side())
    if other.has_dropped(without_tries(step.address)):
        return StepDiff(step.address, step.kind, "unknown", False, (), a, b, ("b" if name == "a" else "a",))
    own, none = {"output": step.output()}, dict[str, str | None]()
    changes = _texts(own, none) if name == "a" else _texts(none, own)
    return StepDiff(step.address, step.kind, "only_a" if name == "a" else "only_b", False, tuple(changes), a, b)


def _lacking(a: _Step, b: _Step) -> Iterator[Literal["a", "b"]]:
    """Yield the runs that lack the details which would tell how two steps were asked something else."""
    one, other = a.outcome, b.outcome
    if b.address and one and other and one.fingerprint != other.fingerprint:
        if one.worked is not None:
            yield "a"
        if other.worked is not None:
            yield "b"


def _changes(a: _Step, b: _Step) -> Iterator[FieldDiff]:
    """Yield what differs between two steps. Compares the digests first, because most steps are the same."""
    one, other = a.outcome, b.outcome
    asked_alike = bool(one and other and one.fingerprint == other.fingerprint)
    of_crews = kinds.of(a.kind) is kinds.CREW
    answered_alike = bool(one and other and one.digest == other.digest and not of_crews)
    if asked_alike and answered_alike and a.model == b.model:
        return
    if one and other and one.question and other.question:
        yield from _texts(one.question, other.question)
    ours, theirs = ({"status": step.status, "model": step.model} for step in (a, b))
    if not asked_alike:
        ours["prompt"], theirs["prompt"] = a.prompt(), b.prompt()
    if not answered_alike:
        ours["output"], theirs["output"] = a.output(), b.output()
    yield from _texts(ours, theirs)


def _texts(a: Mapping[str, str | None], b: Mapping[str, str | None]) -> Iterator[FieldDiff]:
    for name in {**a, **b}:
        before, after = a.get(name), b.get(name)
        if before != after:
            status: Difference = "only_b" if before is None else "only_a" if after is None else "changed"
            yield FieldDiff(name, status, before, after)


def _merged(ours: Mapping[_Key, _Step], theirs: Iterable[_Key]) -> Iterator[_Key]:
    """Yield all keys in the first run's order. Each further key of the second run comes after its predecessor there."""
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
