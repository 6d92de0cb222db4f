"""Show what a kickoff would do: drive the definition over its record without running any step.

A step that would run returns the outcome it had before the fork, so that the code after it can be driven as well.
If it never had an outcome, the steps after it are unknown.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from crewlite import background, codec, durable
from crewlite.durable import Step
from crewlite.errors import (
    AnswerRefused,
    ConfigError,
    CrewliteError,
    InDoubt,
    NotCodable,
    RefError,
    RepeatedCall,
    text_of,
)
from crewlite.forked import cached_property
from crewlite.resuming import nth_attempt
from crewlite.runtime.kickoffs.answers import answers_given
from crewlite.runtime.kickoffs.plan import continued, plan
from crewlite.runtime.kickoffs.repeats import made_beside, repeated
from crewlite.runtime.kickoffs.request import Request
from crewlite.runtime.kickoffs.resumption import (
    branch_for,
    check_newest,
    definition_now,
    from_earlier_kickoffs,
    inputs_of,
    kept_result,
    secrets_of,
)
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.kickoffs.secret_inputs import refuse_masked
from crewlite.runtime.kickoffs.traces import Traces
from crewlite.runtime.steps.attempts import failed_before, next_attempt
from crewlite.runtime.steps.doubts import NOTHING_EARLIER, calls_before
from crewlite.runtime.steps.replay import Reraise, Reuse, recorded_answer
from crewlite.runtime.steps.run import Origin, Run
from crewlite.runtime.steps.step_scope import Asked, StepScope
from crewlite.state.format.addresses import around, is_right_below, outers
from crewlite.state.format.commit import GivenAnswer, MadeCall
from crewlite.state.format.effects import arguments_of
from crewlite.state.format.entry import Entry
from crewlite.state.format.outcome import Outcome
from crewlite.state.format.record import Record
from crewlite.state.journal.journal import Journal
from crewlite.state.journal.lineage import journals_of_branch, with_inherited
from crewlite.state.reading.locate import Located
from crewlite.state.reading.steps import unsettled
from crewlite.state.subscriber import CheckpointSubscriber
from crewlite.state.verbs.answer import decode_answer
from crewlite.step_parts import Recorded

T = TypeVar("T")
Verdict = Literal["reused", "runs", "may run", "dropped"]


@dataclass(frozen=True, slots=True)
class PreviewStep:
    """What a kickoff would do with one step."""

    address: str
    kind: str
    verdict: Verdict
    """reused: the step answers from the record. runs: the step runs. may run: its question contains the outcome of a
    step that runs, so it answers from the record only if that outcome stays the same. dropped: the step is recorded,
    but is not requested any more."""
    why: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What a kickoff would do, as far as that is known.

    The steps are in the order in which they are requested. For a run that returns its stored result they are in the
    order of the record.
    """

    steps: tuple[PreviewStep, ...]
    ends: str = ""
    """Why the preview ends before the run would; "" if it does not."""
    effects: tuple[RepeatedCall, ...] = ()
    """The calls with effect="once" that were made already and that the kickoff may make again."""

    def __iter__(self) -> Iterator[PreviewStep]:
        return iter(self.steps)

    def __str__(self) -> str:
        width = max((len(step.address) for step in self.steps), default=0)
        lines = [f"{step.verdict:<7}  {step.address:<{width}}  {step.why}" for step in self.steps]
        lines += [f"again    {call}" for call in self.effects]
        return "\n".join([*lines, *([self.ends] if self.ends else [])])


async def preview(root: Root[Any], request: Request) -> Preview:
    """Return what this kickoff would do. Reads the store; runs no step and writes nothing.

    Raises ConfigError if there is no recorded run to preview, and what the kickoff would raise before it pays.
    """
    if request.answers or request.rerun or request.resume:
        raise ConfigError(
            "preview takes no answers, rerun or resume: leave them out. It shows what a kickoff without them would do"
        )
    request = await continued(root, root.with_own_inputs(request))
    config = plan(root, request).config
    if config is None or (config.restore_from is None and request.run_id is None):
        raise ConfigError(
            f"preview has no recorded run to start from: call {root.kind}.fork(ref).preview(), "
            f"preview(from_checkpoint=ref) or preview(run_id=...)"
        )
    found, entries, beside = await background.in_thread(lambda: _read(branch_for(root, request, config)))
    if not entries:
        raise RefError(
            found.run_id,
            f"names no run in {found.location}, so there is nothing to preview: a kickoff would run every step",
        )
    record = Record.of(entries)
    journal = Journal(found.run_id, found.branch, record, secrets_of(root, config))
    inputs, others = inputs_of(root, request, journal)
    if record.fresh:
        root.check_beginning(inputs, record)
    if not others and await kept_result(root, journal, inputs, config, found) is not None:
        return Preview(tuple(_reused(record.outcomes[at]) for at in _inside(record.outcomes, "")))
    refuse_masked(record.run["inputs"], request.inputs, journal.run_id, journal.branch)
    check_newest(root, record, found)
    run = Drive(
        journal,
        CheckpointSubscriber(frozenset()),
        superseded=record.finished,
        before=Record.of([entry for entry in entries if entry.seq <= record.base]),
        arguments=arguments_of(entries),
        **from_earlier_kickoffs(root, record, config.on_drift),
    )
    first = others | answers_given(root, journal, request, changed=bool(others), on_drift=config.on_drift)
    journal.commit(first | definition_now(root, journal), lambda error: None)  # in memory, as there is no store
    ends = await _driven(root, inputs, run)
    running = {step.address for step in run.steps if step.verdict in ("runs", "may run")}
    return Preview(tuple(run.steps), ends, repeated(entries, beside, record, run.before, running))


def _read(found: Located) -> tuple[Located, list[Entry], list[MadeCall]]:
    """Return (the branch, its entries, the calls with effect="once" that its base branch made after the fork)."""
    with found.opened() as store:
        journals = journals_of_branch(store, found.run_id, found.branch)
    if not journals:
        return found, [], []
    entries = with_inherited(journals, found.branch)
    return found, entries, made_beside(journals, found.branch)


async def _driven(root: Root[Any], inputs: dict[str, Any], run: Drive) -> str:
    """Execute the definition in `run`, which calls nothing. Return why that ended before a real run would; else ""."""
    step = dataclasses.replace(root.step(inputs, run), address="")
    try:
        await DryScope(run, Origin("", root.name)).enter(step)
    except _Unknown:
        behind = ", ".join(run.unknown)
        return f"The steps after {behind} are not known, because no outcome of it was ever recorded."
    except CrewliteError:
        raise
    except Exception as error:  # the border: code of the user between the steps
        said = run.journal.secrets.mask(text_of(error))
        return f"After these steps {root.kind} {root.name!r} raises {type(error).__name__}: {said}"
    return ""


@dataclass(eq=False)
class Drive(Run):
    """The state that the scopes of one preview share."""

    before: Record = field(default_factory=Record)
    """The record at the commit that the branch was forked from."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """The arguments of the calls with effect="once", by address."""
    steps: list[PreviewStep] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Addresses of steps that would run and never had an outcome."""
    traces: Traces = field(default_factory=Traces)
    anew: set[str] = field(default_factory=set)
    """Addresses of steps that would run: their new outcomes would come after everything recorded."""

    @cached_property
    def changed_inside(self) -> set[str]:
        """Addresses of steps that contain an edited step or a step that is to run again."""
        return around(self.record.edited)

    @cached_property
    def stops(self) -> Collection[str]:
        """The calls that kickoff would stop at with InDoubt."""
        return unsettled(self.record)

    def note(self, address: str, kind: str, verdict: Verdict, why: str) -> None:
        """Add a step to the preview."""
        self.steps.append(PreviewStep(address, kind, verdict, why))


class DryScope(StepScope):
    """The scope of a crew or flow in a preview: it lists the steps that are asked for, and runs none."""

    __slots__ = ("blind",)

    run: Drive
    dry = True

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.blind = False
        """Whether the requests made here depend on an outcome that is not known."""

    def recorded(self, address: str) -> Recorded | None:
        """Return where the outcome of a step is, or would be, recorded; None if it never had one."""
        if address in self.run.anew:
            behind = self.run.record.seq + 1
            return Recorded(behind, (behind,))
        return super().recorded(address)

    async def _drive(self, step: Step[T], asked: Asked, *, own_task: bool = False) -> T:
        address = asked.address
        try:
            return await self._foresee_step(step, address, asked.fingerprint)
        finally:
            if not own_task:
                self._deliver(address)

    async def _foresee_step(self, step: Step[T], address: str, fingerprint: str) -> T:
        run, recorded = self.run, self.run.record.outcomes.get(address)
        source = run.traces.source(step.question)
        decision = self._decide(step, address, fingerprint)
        if isinstance(decision, Reuse):
            if source and not decision.outcome.edited:  # an edited outcome holds for any question
                run.note(address, step.kind.name, "may run", f"is given what {source} returns")
                run.traces.add(address, step.kind, run.record.value(address))
            else:
                run.steps.append(_reused(decision.outcome))
            return self._reused(step, decision)
        if isinstance(decision, Reraise):
            why = f"failed ({decision.failure.error_type}), and the code handled that"
            run.note(address, step.kind.name, "reused", why)
            raise self._raised(step, decision.failure)
        if step.kind.enters:
            return await self.enter(step, address, fingerprint)
        if recorded is None and not source and step.kind.asks_person and (answer := self._answer_to(step, address)):
            with contextlib.suppress(AnswerRefused):  # the run will refuse the answer too, and ask again
                value = step.decode({"answer": codec.encode(decode_answer(answer, step.question[1]))})
                run.note(address, step.kind.name, "reused", "was answered")
                return value
        try:
            earlier = calls_before(run, step, address, fingerprint) if step.effect == "once" else NOTHING_EARLIER
        except InDoubt as stop:
            earlier, stops = NOTHING_EARLIER, [stop.address]
        else:
            stops = [at for at in run.stops if at == address or address in outers(at)]
        if earlier.made:
            run.note(address, step.kind.name, "reused", "was made in an earlier attempt")
            return step.decode(run.record.value(earlier.made.address))
        run.note(address, step.kind.name, "runs", self._why(address, step, recorded, stops))
        run.anew.add(address)
        return self._provisional(step, address, run.before if recorded is None else run.record)

    def _answer_to(self, step: Step[Any], address: str) -> GivenAnswer | None:
        return recorded_answer(self.run.record, address, codec.digest(step.question), self.basis(address))

    async def enter(self, step: Step[T], address: str = "", fingerprint: str = "") -> T:
        """Drive the code inside a step. Raises _Unknown if the step's outcome depends on an unknown one."""
        record, states = self.run.record, self.run.journal.states
        failed, view = record.attempts.get(address, ()), states.begin(address, self.start_inside())
        number, _ = next_attempt(record, address)
        inner = self.child(step, self.origin_of(step, address), fingerprint, number, failed, view=view)
        lines = len(self.run.steps)
        try:
            value = await _worked(step, inner)
        except (Exception, _Unknown):
            if not inner.blind:
                raise
            self.blind = True
            raise _Unknown from None
        if inner.blind and address:
            self.blind = True
            raise _Unknown
        inner.complete()
        view.deliver_rest()
        if around := self.children.view:
            around.commit(address, [(self.run.journal.next_order, view.changes())])
        states.end(view)
        with contextlib.suppress(NotCodable):
            data = step.encode(value)
            if any(line.verdict in ("runs", "may run") for line in self.run.steps[lines:]):
                self.run.traces.add(address, step.kind, data)
            self.children.record_child(address, codec.digest(data), data)
            value = step.decode(data) if step.round_trip else value
        return value

    def complete(self) -> None:
        """Note the recorded steps that were not requested. Raises NonDeterminism, as the run would."""
        known = {**self.run.before.outcomes, **self.run.record.outcomes}
        for address in _inside(known, self.children.prefix):
            if address not in self.children.asked:
                self.run.note(address, known[address].kind, "dropped", self._why_not(address))
        self.check_none_missed()

    def _why_not(self, address: str) -> str:
        """Return why a recorded step is dropped."""
        if address not in self.run.unused:
            return "is not requested any more"
        what = "was edited" if address in self.run.record.outcomes else "is to run again"
        return f"{what}, but is not requested any more: kickoff will raise ChangeUnused"

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
        if address in self.run.begun:
            return "was begun, and has not finished"
        return "waits for an answer" if waits else "was never recorded"

    def _provisional(self, step: Step[T], address: str, record: Record) -> T:
        """Return the outcome that a step had in `record`, or a placeholder. Raises _Unknown if it has neither."""
        if address in record.outcomes:
            value = record.value(address)
            outcome = record.outcomes[address]
            if self.children.view:
                self.children.view.commit(address, [(outcome.order, outcome.changes)])
            with contextlib.suppress(CrewliteError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
                made = step.decode(value)  # fails if the outcome's type has changed
                self.run.traces.add(address, step.kind, value, step.encode(made))
                self.children.record_child(address, codec.digest(value), value)
                return made
        if step.kind.needs_no_work and step.placeholder:
            return step.placeholder()
        self.blind = True
        self.run.unknown.append(address)
        if step.placeholder is None:
            raise _Unknown
        return step.placeholder()


async def _worked(step: Step[T], inner: DryScope) -> T:
    """Do the work of a step and await the steps that it began, as `Frame.work` does in a run."""
    try:
        with durable.entered(inner):
            value = await step.work()
            if inner.children.spawned:
                await inner.children.spawned.end()
    except (Exception, _Unknown):
        with contextlib.suppress(Exception, _Unknown):  # the first one is raised
            if inner.children.spawned:
                await inner.children.spawned.end()
        raise
    except BaseException as error:  # what would end more than this step
        background.confine(error)
    return value


class _Unknown(BaseException):
    """Ends the drive of a preview: the following code depends on an unknown outcome.

    It is a BaseException, so that the user's code in between does not handle it as an error.
    """


def _inside(outcomes: dict[str, Outcome], prefix: str) -> list[str]:
    """Return the addresses of the recorded steps directly below `prefix`, in the order of their commits."""
    return sorted((at for at in outcomes if is_right_below(at, prefix)), key=lambda at: (outcomes[at].seq, at))


def _reused(outcome: Outcome) -> PreviewStep:
    return PreviewStep(outcome.address, outcome.kind, "reused", "was edited" if outcome.edited else "is recorded")
