"""Drive a definition over its record without running any step: for each step, foresee what a kickoff would do.

A step that would run returns the outcome it had before the fork, so that the code after it can be driven as well.
If it never had an outcome, the steps after it are unknown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, Literal, TypeVar

from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.errors import AnswerRefused, CrewliteError, InDoubt, NotCodable
from crewlite.runtime.kickoffs.outcomes_to_come import OutcomesToCome
from crewlite.runtime.people.question import recorded_answer
from crewlite.runtime.steps.attempts import done_anew, failed_before, next_attempt
from crewlite.runtime.steps.once_results import NOTHING_EARLIER, calls_before
from crewlite.runtime.steps.replay import Reraise, Reuse
from crewlite.runtime.steps.replayed import recorded_error, recorded_value
from crewlite.runtime.steps.run import Run
from crewlite.runtime.steps.step_scope import StepRequest, StepScope
from crewlite.state.format.addresses import around, is_right_below, outers
from crewlite.state.format.commit import GivenAnswer, invalidated
from crewlite.state.format.outcome import Outcome
from crewlite.state.format.record import Record
from crewlite.state.reading.steps import unsettled
from crewlite.state.verbs.answer import decode_answer
from crewlite.step_parts import Recorded
from crewlite.system.forked import cached_property
from crewlite.texts.resuming import nth_attempt

T = TypeVar("T")
Verdict = Literal["reused", "runs", "may run", "dropped"]


@dataclass(frozen=True, slots=True)
class PreviewStep:
    """What a kickoff would do with one step."""

    address: str
    kind: str
    verdict: Verdict
    """reused: the step answers from the record. runs: the step runs. may run: that depends on what another step that
    runs will return: an input of this step, or the label of a router that decides whether this step is requested.
    dropped: the step is recorded, but is not requested any more."""
    why: str


@dataclass(eq=False)
class PreviewRun(Run):
    """The state that the scopes of one preview share."""

    before: Record = field(default_factory=Record)
    """The record at the commit that the branch was forked from."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """The arguments of the calls with effect="once", by address."""
    steps: list[PreviewStep] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Addresses of steps that would run and never had an outcome."""
    outcomes_to_come: OutcomesToCome = field(default_factory=OutcomesToCome)
    anew: set[str] = field(default_factory=set)
    """Addresses of steps that would run, whose new outcomes would be committed after everything recorded."""

    @cached_property
    def changed_inside(self) -> set[str]:
        """Addresses of steps that contain an edited step or a step that is to run again."""
        return around(self.record.edited)

    @cached_property
    def stops(self) -> Collection[str]:
        """The calls at which a kickoff would stop with InDoubt."""
        return unsettled(self.record)

    def note(self, address: str, kind: str, verdict: Verdict, why: str) -> None:
        """Add a step to the preview."""
        self.steps.append(PreviewStep(address, kind, verdict, why))


class Unknown(BaseException):
    """Ends a preview: the code that follows depends on an unknown outcome.

    It is a BaseException, so that the user's code in between does not handle it as an error.
    """


class DryScope(StepScope):
    """The scope of a crew or flow in a preview: it lists the steps that are requested, and runs none."""

    __slots__ = ("blind", "routers")

    run: PreviewRun
    dry = True
    fails = (Exception, Unknown)

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.blind = False
        """Whether the requests made here depend on an outcome that is not known."""
        self.routers: dict[str, Callable[[str], bool]] = {}
        """The routers that would run, by address: their labels are not known. See `Step.decides`."""

    def recorded(self, address: str) -> Recorded | None:
        """Return where the outcome of a step is, or would be, recorded; None if it never had one."""
        if address in self.run.anew:
            behind = self.run.record.seq + 1
            return Recorded(behind, (behind,))
        return super().recorded(address)

    async def _drive(self, step: Step[T], asked: StepRequest) -> T:
        try:
            return await self._foresee_step(step, asked)
        finally:
            if not asked.in_own_task:
                self._deliver(asked.address)

    async def _foresee_step(self, step: Step[T], asked: StepRequest) -> T:
        run, address, fingerprint = self.run, asked.address, asked.fingerprint
        recorded = run.record.outcomes.get(address)
        # a step that reacts to other steps runs again whenever they do, whatever is in its question
        source = run.outcomes_to_come.source(step.question) if step.after is None else None
        decision = self._decide(step, asked)
        if isinstance(decision, Reuse):
            self._note_reuse(step, decision.outcome, source)
            return recorded_value(self, step, decision)
        if isinstance(decision, Reraise):
            why = f"failed ({decision.failure.error_type}), and the run did not end by that"
            run.note(address, step.kind.name, "reused", why)
            raise recorded_error(self, step, decision.failure)
        if step.kind.enters:
            return await self.enter(step, address, fingerprint)
        if recorded is None and not source and step.kind.asks_person and (answer := self._answer_to(step, address)):
            with contextlib.suppress(AnswerRefused):  # the run will refuse the answer, too, and ask again
                value = step.decode({"answer": codec.encode(decode_answer(answer, step.question[1]))})
                run.note(address, step.kind.name, "reused", "was answered")
                return value
        return self._foresee_run(step, address, fingerprint, recorded)

    def _note_reuse(self, step: Step[Any], outcome: Outcome, source: str | None) -> None:
        """Add a step that has a recorded outcome. `source`: the step that would run and whose outcome is its input."""
        run, address = self.run, outcome.address
        if source and not outcome.edited:  # an edited outcome answers any question
            run.note(address, step.kind.name, "may run", f"is given what {source} returns")
            run.outcomes_to_come.add(address, step.kind, run.record.value(address))
        elif router := self._router_before(step, address):
            run.note(address, step.kind.name, "reused", f"was edited; is requested {_if_same(router)}")
        else:
            run.steps.append(reused(outcome))

    def _foresee_run(self, step: Step[T], address: str, fingerprint: str, recorded: Outcome | None) -> T:
        """Add a step that would run, or get the result of an earlier call. Return its old outcome or placeholder."""
        run = self.run
        try:
            earlier = calls_before(self, step, address, fingerprint) if step.effect == "once" else NOTHING_EARLIER
        except InDoubt as stop:
            earlier, stops = NOTHING_EARLIER, [stop.address]
        else:
            stops = [at for at in run.stops if at == address or address in outers(at)]
        if earlier.made:
            run.note(address, step.kind.name, "reused", f"was made before, as {earlier.made.address}")
            return step.decode(run.record.value(earlier.made.address))
        if router := self._router_before(step, address):
            run.note(address, step.kind.name, "may run", _if_same(router))
        else:
            run.note(address, step.kind.name, "runs", self._why(address, step, recorded, stops))
        run.anew.add(address)
        if step.decides:
            self.routers[address] = step.decides
        return self._provisional(step, address, run.before if recorded is None else run.record)

    def _answer_to(self, step: Step[Any], address: str) -> GivenAnswer | None:
        return recorded_answer(self.run.record, address, codec.digest(step.question), self.basis(address))

    async def enter(self, step: Step[T], address: str = "", fingerprint: str = "") -> T:
        """Execute the code inside a step. Raises Unknown if the step's outcome depends on an unknown one."""
        record, states = self.run.record, self.run.journal.states
        failed, view = record.attempts.get(address, ()), states.begin(address, self.start_inside())
        number, _ = next_attempt(record, address)
        inner = self.child(step, self.origin_of(step, address), fingerprint, number, failed, view=view)
        if failed and (anew := done_anew(record, failed[-1], inner.children.prefix)):
            self.run.journal.commit({"steps": [*starmap(invalidated, anew)]}, lambda error: None)  # in memory
        lines = len(self.run.steps)
        try:
            value: T = await inner.work()
        except inner.fails:
            if not inner.blind:
                raise
            self.blind = True
            raise Unknown from None
        if around := self.children.view:
            around.commit(address, [(self.run.journal.next_order, view.changes())])
        states.end(view)
        with contextlib.suppress(NotCodable):
            data = step.encode(value)
            if any(line.verdict in ("runs", "may run") for line in self.run.steps[lines:]):
                self.run.outcomes_to_come.add(address, step.kind, data)
            self.children.record_child(address, codec.digest(data), data)
            value = step.decode(data) if step.round_trip else value
        return value

    def _router_before(self, step: Step[Any], address: str) -> str:
        """Return the last router that would run and whose label may lead to this step's request; "" if none would."""
        follows = step.after is not None and step.after > self.run.record.seq
        return self._router_of(address) if follows else ""

    def _router_of(self, address: str) -> str:
        return next((at for at, decides in reversed(self.routers.items()) if decides(address)), "")

    def complete(self) -> None:
        """Note the recorded steps that were not requested. Raises Unknown, and NonDeterminism as the run would."""
        if self.blind and self.address:
            raise Unknown
        known = {**self.run.before.outcomes, **self.run.record.outcomes}
        for address in recorded_inside(known, self.children.prefix):
            if address not in self.children.asked:
                router, recorded = self._router_of(address), self.run.record.outcomes.get(address)
                verdict: Verdict = "may run" if router and not (recorded and recorded.edited) else "dropped"
                self.run.note(address, known[address].kind, verdict, self._why_not(address, recorded, router))
        self.check_none_missed()

    def _why_not(self, address: str, recorded: Outcome | None, router: str) -> str:
        """Return why a recorded step is not requested. `router`: the one whose next label may lead to its request."""
        inside = any(address in outers(at) for at in self.run.unrequested_changes)
        unused = inside or address in self.run.unrequested_changes
        changed = "was edited" if recorded and recorded.edited else "is to run again" if unused else ""
        changed = "was changed inside" if inside else changed
        if not router:
            why = "is not requested any more"
            return f"{changed}, but {why}: kickoff will raise ChangeUnused" if unused else why
        why = f"if {router} returns another label than before"
        why = f"{changed}; is requested {why}" if changed else why
        return f"{why}, else kickoff will raise ChangeUnused" if unused else why

    def _why(self, address: str, step: Step[Any], recorded: Outcome | None, stops: Sequence[str]) -> str:
        """Return why a step would run. `stops`: the calls at which the kickoff would stop."""
        record, waits = self.run.record, " and waits for an answer" if step.kind.asks_person else ""
        if stops:
            how = "has failed" if all(failed_before(record, at) for at in stops) else "was interrupted"
            given = f" with {arguments}" if (arguments := self.run.arguments.get(stops[0])) else ""
            times = record.begun_once.get(stops[0], 1)
            decide = f"answers={{{stops[0]!r}: ...}} or rerun=[{nth_attempt(stops[0], times)!r}]"
            where = f"in {stops[0]}, a call with effect='once'{given}"
            return f"{how} {where}: kickoff will raise InDoubt, unless given {decide}"
        if recorded is not None and self.inherited.mode.diverged:
            return "comes after a step that changed" + waits
        if recorded is not None and step.after is not None and recorded.seq < step.after:
            return "is started by a step that changed" + waits
        if recorded is not None:
            return "asks another question than the recorded one" + waits
        if address in record.edited:
            return f"is to run again{waits}"
        if address in self.run.changed_inside:
            return "a step inside it was changed"
        if address in record.attempts:
            return "has failed, and is tried again"
        if address in self.run.earlier.begun:
            return "was begun, and has not finished"
        return "waits for an answer" if waits else "was never recorded"

    def _provisional(self, step: Step[T], address: str, record: Record) -> T:
        """Return the outcome that a step had in `record`, or its placeholder. Raises Unknown if it has neither."""
        if address in record.outcomes:
            value = record.value(address)
            outcome = record.outcomes[address]
            if self.children.view:
                self.children.view.commit(address, [(outcome.order, outcome.changes)])
            with contextlib.suppress(CrewliteError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
                made = step.decode(value)  # fails if the outcome's type has changed
                self.run.outcomes_to_come.add(address, step.kind, value, step.encode(made))
                self.children.record_child(address, codec.digest(value), value)
                return made
        if step.kind.needs_no_work and step.placeholder:
            return step.placeholder()
        self.blind = True
        self.run.unknown.append(address)
        if step.placeholder is None:
            raise Unknown
        return step.placeholder()


def _if_same(router: str) -> str:
    return f"if {router} returns the same label as before"


def recorded_inside(outcomes: dict[str, Outcome], prefix: str) -> list[str]:
    """Return the addresses of the recorded steps directly below `prefix`, in the order of their commits."""
    return sorted((at for at in outcomes if is_right_below(at, prefix)), key=lambda at: (outcomes[at].seq, at))


def reused(outcome: Outcome) -> PreviewStep:
    """Return what a preview says about a step that answers from the record."""
    return PreviewStep(outcome.address, outcome.kind, "reused", "was edited" if outcome.edited else "is recorded")
