"""Decide what happens to a step that code requests: answer it from the record, run it, or refuse it.

A step is known by its address and by its question, whose digest is recorded with its outcome. The decision is made from
data alone, for a run and for a preview of it. Under strict replay the steps inside a step follow from its question, so
its code must request the recorded steps again. The exceptions: steps that came after a failure which is now retried,
forks with edits or other inputs, and steps that may differ, with what came after them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from crewlite import codec, kinds
from crewlite.codec import Json
from crewlite.homes import renamed
from crewlite.runtime.steps.numbering import is_counted
from crewlite.state.format.addresses import is_right_below, prefix_beside
from crewlite.state.format.commit import AskedQuestion, GivenAnswer
from crewlite.state.format.earlier import has_other_inputs
from crewlite.state.format.outcome import Attempt, Outcome
from crewlite.state.format.record import Record
from crewlite.step_parts import Drift


class Basis(NamedTuple):
    """What an outcome depends on besides its own question: the enclosing questions, and what their models heard."""

    digest: str = ""
    """A digest of the basis; "" if only the root step encloses the step."""
    after: int = 0
    """The number of the commit that an enclosing step reacts to: earlier outcomes are outdated."""

    def holds(self, seq: int, recorded: str | None) -> bool:
        """Return whether an outcome in commit `seq`, with the basis digest `recorded`, is valid on this basis too."""
        return seq >= self.after and (recorded is None or recorded == self.digest)


_LATER_PARTS = ("attributes", "fold", "zone", "extra")
"""Parts of encoded values that earlier releases did not write."""
RESTS_ON = "rests_on"
"""The key in the provenance of an outcome under which the digest of its basis is recorded."""
MAY_DIFFER = "may_differ"
"""The drift of a step that may differ, and a key in the provenance of its outcome."""
DIFFERS = "differs"
"""The key in the provenance of an outcome from code that asked other questions than were recorded: `Mode.differs`."""


class Question(NamedTuple):
    """A request for a step: the address of the step, its question as JSON, and how a changed question is handled."""

    address: str
    kind: str
    asked: Json
    digest: str
    drift: Drift = "diverge"
    once: bool = False
    """Whether a repeated call would do harm."""
    comes_late: bool = False
    """The earlier run may have requested this step without starting it (it had to wait, for example for a slot), so
    the step may be new although later steps are recorded."""
    after: int | None = None
    """The number of the commit that the step reacts to: an earlier outcome of the step is outdated."""
    basis: Basis = Basis()
    """What the outcome depends on besides the question.

    An outcome that the fork itself has edited holds on any basis.
    """


@dataclass(frozen=True, slots=True)
class Mode:
    """How the record answers requests for the steps inside one step. Child steps inherit it."""

    on_drift: Literal["keep", "rerun", "error"] = "keep"
    strict_replay: bool = False
    """Whether the code must request the recorded steps, so that any other request is an error."""
    diverged: bool = False
    """Whether an earlier step differs from the record, so that no later recorded outcome applies."""
    rolled_back: bool = False
    """Whether the code continues after a rollback, so that it may ask recorded steps other questions."""
    differs: bool = False
    """Whether a step was changed, added or left out that may be. What follows it may differ too, but calls with
    effect="once" still answer from the record."""
    superseded: bool = False
    """Whether the recorded result of the run answers another question than this kickoff asks."""
    rerun: frozenset[str] = frozenset()
    """Addresses of failed steps to retry, and of calls in doubt to make again."""
    begun: frozenset[str] = frozenset()
    """Addresses of steps that an earlier process started."""

    @property
    def goes_otherwise(self) -> bool:
        """Whether the code may ask recorded steps other questions than before, although it has not changed."""
        return self.rolled_back or self.differs

    def reruns(self, *, once: bool = False) -> bool:
        """Return whether a step whose question has changed runs again. `once`: whether its repetition would do harm."""
        return self.rolled_back or self.on_drift == "rerun" or (self.differs and not once)

    def after(self, decision: Decision) -> Mode:
        """Return the mode for what the code requests after a step about which this was decided."""
        mode = self
        if not mode.differs and isinstance(decision, Reuse | Run) and decision.differs:
            mode = replace(mode, differs=True)
        if isinstance(decision, Run) and decision.diverges:
            mode = replace(mode, diverged=True)
        return mode


@dataclass(frozen=True, slots=True)
class Reuse:
    """Return the recorded outcome."""

    outcome: Outcome
    drifted: tuple[str, ...] = ()
    """Addresses of steps whose recorded answers are kept although their questions have changed."""

    @property
    def differs(self) -> bool:
        """Whether the outcome is from code that asked other questions than were recorded: see `Mode.differs`."""
        return DIFFERS in self.outcome.provenance


@dataclass(frozen=True, slots=True)
class Reraise:
    """Raise the recorded failure again. The code that requested the step handled this failure before."""

    failure: Attempt


@dataclass(frozen=True, slots=True)
class Run:
    """Run the step."""

    diverges: bool = False
    """Whether no recorded outcome applies after this step."""
    differs: bool = False
    """Whether a step was changed, added or left out that may be: see `Mode.differs`."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Raise an error instead of running the step: the request contradicts the record."""

    why: Literal["drifted", "other question", "passed over"]
    """drifted: the question of the step has changed, with on_drift="error". other question: the same under
    strict replay. passed over: recorded steps should have been requested before this new step."""
    addresses: tuple[str, ...]
    """The recorded steps concerned."""


Decision = Reuse | Reraise | Run | Refuse
RUN = Run()
"""Run the step, and let later outcomes in the record apply. One case is a step of which nothing is recorded."""


def decide(record: Record, question: Question, mode: Mode, unrequested: Collection[str] = ()) -> Decision:
    """Decide whether the requested step returns its recorded outcome, raises its recorded failure, runs or is refused.

    `unrequested`: addresses of the recorded steps with the same parent that code has not requested yet.
    """
    recorded = record.outcomes.get(question.address)
    if recorded is not None and question.after is not None and recorded.seq < question.after:
        return RUN
    edited_here = recorded is not None and recorded.edited and recorded.seq > record.base
    if recorded and not edited_here and not question.basis.holds(recorded.seq, recorded.provenance.get(RESTS_ON)):
        return RUN
    if recorded is not None and (not mode.diverged or (mode.goes_otherwise and question.once)):
        verdict = _answered(record, recorded, question, mode, unrequested)
        if verdict != RUN:
            return verdict
    if mode.strict_replay and not mode.diverged:
        failure = record.failures.get(question.address)
        if failure and question.address not in mode.rerun and failure.fingerprint == question.digest:
            return Reraise(failure)
        passed = _passed_over(record, question, mode, unrequested)
        if question.drift == MAY_DIFFER and (passed or (failure and failure.fingerprint != question.digest)):
            return Run(diverges=True, differs=True)
        if passed:
            return Refuse("passed over", passed)
        # in code beside the step's own, a changed question is a new step, as the address there follows from it
        new = question.drift == MAY_DIFFER and not is_counted(question.address)
        return Run(differs=new or _free_from(record, unrequested) > 0)
    return RUN


def asked_alike(record: Record, digest: str, siblings: Collection[str]) -> list[str]:
    """Return which of `siblings` have answered this question, as code that is refused may have meant one of them."""
    return sorted(at for at in siblings if at in record.outcomes and record.outcomes[at].fingerprint == digest)


def recorded_question(record: Record, address: str, digest: str, basis: Basis) -> AskedQuestion | None:
    """Return the question to a person recorded at an address, if it has this digest and this basis; else None."""
    asked = record.asked.get(address)
    if asked is None or asked.get("digest") != digest:
        return None
    return asked if basis.holds(record.asked_in[address], asked.get("rests_on")) else None


def recorded_answer(record: Record, address: str, digest: str, basis: Basis) -> GivenAnswer | None:
    """Return the answer that a person has given to this question; None if nobody has.

    An answer that was given before the question was asked counts on any basis, a later one on its question's basis.
    """
    told = record.answers.get(address)
    if told and told.get("ahead"):
        return told
    asked = recorded_question(record, address, digest, basis)
    return record.answer_to(asked) if asked else None


def _answered(
    record: Record, recorded: Outcome, question: Question, mode: Mode, unrequested: Collection[str]
) -> Reuse | Run | Refuse:
    """Decide whether a step returns its recorded outcome, runs again or is refused."""
    if not recorded.address:  # the root step: the kickoff has decided about its outcome already
        return RUN if mode.superseded else Reuse(recorded, recorded.drifted)
    same = recorded.fingerprint == question.digest
    if not same and (mode.strict_replay or (mode.differs and question.once)):
        return _answered_strictly(record, recorded, question, mode, unrequested)
    if recorded.drifted and mode.on_drift != "keep" and not question.once:
        return Refuse("drifted", recorded.drifted[:1]) if mode.on_drift == "error" else RUN
    drift = question.drift if question.drift != "configured" else "rerun" if mode.reruns() else mode.on_drift
    if same or drift == "keep":
        keeps_own = same or recorded.edited
        return Reuse(recorded, recorded.drifted if keeps_own else (recorded.address,))
    if drift == "error":
        return Refuse("drifted", (recorded.address,))
    return Run(diverges=drift in ("diverge", MAY_DIFFER), differs=drift == MAY_DIFFER)


def _answered_strictly(
    record: Record, recorded: Outcome, question: Question, mode: Mode, unrequested: Collection[str]
) -> Reuse | Run | Refuse:
    """Decide as `_answered` does, and refuse a step whose question is not the recorded one, as strict replay does.

    It makes exceptions for a question recorded in another form, an edited branch, other inputs, `mode.reruns`, a step
    that may differ, and steps after such a step that was left out.
    """
    if any(codec.digest([question.kind, other]) == recorded.fingerprint for other in _other_forms(question.asked)):
        return Reuse(recorded, recorded.drifted)
    address = recorded.address
    if record.edited or has_other_inputs(record, address):  # a changed fork may ask other questions
        return Reuse(recorded, recorded.drifted) if recorded.edited else RUN
    free = _free_from(record, (*unrequested, address))
    may_differ = question.drift == MAY_DIFFER or (not question.once and 0 < free <= recorded.seq)
    if may_differ or mode.reruns(once=question.once):
        return Run(diverges=True, differs=True)
    return Refuse("other question", (address,))


def _other_forms(asked: Json) -> Iterator[Json]:
    """Yield other recorded forms of a question: of the program run in another way, or of an earlier release."""
    yield from renamed(asked)
    if (before := _as_before(asked)) != asked:
        yield before
        yield from renamed(before)


def _as_before(data: Json) -> Json:
    """Return encoded data in the form in which releases without `_LATER_PARTS` wrote it."""
    if isinstance(data, list):
        return [_as_before(item) for item in data]
    if not isinstance(data, dict):
        return data
    if "$" in data:
        whole = {"v": codec.laid_over(data["v"], data["extra"])} if "extra" in data else {}
        data = {part: item for part, item in data.items() if part not in _LATER_PARTS} | whole
    return {key: _as_before(item) for key, item in data.items()}


def _passed_over(record: Record, question: Question, mode: Mode, unrequested: Collection[str]) -> tuple[str, ...]:
    """Return the recorded steps that should have been requested before this new one; () if it may be new."""
    address = question.address
    if not unrequested or address in mode.begun or question.comes_late or not is_counted(address):
        return ()
    if record.edited or record.earlier_inputs:  # a changed fork may request other steps
        return ()
    prefix = prefix_beside(address)
    return tuple(at for at in missed(record, mode, prefix, unrequested) if is_counted(at))


def missed(record: Record, mode: Mode, prefix: str, unrequested: Collection[str]) -> list[str]:
    """Return the steps of `unrequested` that the code should have requested: nothing they depend on has changed."""
    if not unrequested or not mode.strict_replay or mode.diverged or mode.reruns() or record.edited:
        return []
    needed = (at for at in unrequested if not kinds.at(at).is_about_failure)
    left = [at for at in needed if not has_other_inputs(record, at)]
    since = [one for one in (_tried_again(record, prefix), _free_from(record, left)) if one] if left else []
    return sorted(at for at in left if not since or record.outcomes[at].seq < min(since))


def _free_from(record: Record, addresses: Iterable[str]) -> int:
    """Return the seq of the first of these steps that may differ, or that code recorded which differed; 0 for none.

    Steps committed from there on need not be requested again: the code may have left out the first one.
    """
    known = (record.outcomes[at] for at in addresses if at in record.outcomes)
    return min((one.seq for one in known if one.provenance.keys() & {MAY_DIFFER, DIFFERS}), default=0)


def _tried_again(record: Record, prefix: str) -> int:
    """Return the seq of the first final failure below `prefix` that is now retried; 0 if there is none.

    Steps committed after that failure need not be requested again.
    """
    failed = (
        attempt.seq
        for at, tries in record.attempts.items()
        if is_right_below(at, prefix) and at not in record.failures
        for attempt in tries
        if attempt.final
    )
    return min(failed, default=0)
