"""Ask people questions from inside a run. An answer is recorded as a step's outcome, so no resume asks again.

At a terminal the question is asked at once. Elsewhere the run suspends: the question is recorded, the process may end,
and the run can be resumed, anywhere and at any time, once a person has answered.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from crewlite import durable, events, kinds
from crewlite.concurrency import background
from crewlite.definitions.keywords import known_keywords
from crewlite.durable import Said, Step
from crewlite.encoding import codec
from crewlite.errors import AnswerRefused, ConfigError, StepTimeout, Suspended
from crewlite.ids import after, now
from crewlite.runtime.people.answer_forms import listed
from crewlite.runtime.people.question import Late, Question, QuestionEvents, recorded_answer, recorded_question
from crewlite.runtime.people.terminal import terminal
from crewlite.runtime.steps.budgets import paused
from crewlite.runtime.steps.future import requested
from crewlite.runtime.steps.mode import Basis
from crewlite.runtime.steps.step_scope import StepScope
from crewlite.state.format.addresses import NAME_RULE, can_be_name
from crewlite.state.format.commit import AskedQuestion, CommitParts, GivenAnswer
from crewlite.state.verbs.answer import decode_answer, refusal

_NOTHING: Any = object()
_ELSEWHERE = "(answered elsewhere)"
_TOO_LATE = "(nobody answered in time)"


@known_keywords("ask")
def ask(question: str, schema: Any = None, *, name: str | None = None, timeout: float | None = None) -> Any:
    """Ask a person a question and return the answer. On an event loop, await the call.

    Args:
        question: The text to show.
        schema: The form of the answer: a type (`bool`, `int`, a pydantic class, `Literal["yes", "no"]`) or a list of
            choices. None accepts any text.
        name: Names the question in the run: its address is `human:NAME`. Without one, it is `human#1`, `human#2`, ...
        timeout: Seconds to wait for the answer, counted from when the question is first asked. The time between
            a suspended run and its resume counts as well.

    Returns:
        The answer, validated and converted by `schema`.

    Raises:
        Suspended: there is no terminal, so the run stops here and waits. Answer with `kickoff(answers=...)`,
            `History.answer` or `crewlite checkpoint answer`. Do not catch it: the run suspends all the same.
        AnswerTimeout: nobody answered in time.
        AnswerRefused: an answer that was given before the question was asked does not fit `schema`.
        ConfigError: nobody could ever answer: there is no terminal, and no run with a store that could wait. Also
            raised for an unusable name, schema or timeout.
    """
    return asked_here(Question(question, schema, timeout), name)


def asked_here(asked: Question, name: str | None) -> Any:
    """Ask a person this question, as `ask` does: on the run's loop return an awaitable, elsewhere wait and return."""
    if name is not None and not can_be_name(name):
        raise ConfigError(f"ask(name={name!r}): {NAME_RULE}; for example name='approval'")
    scope = durable.scope()
    if not isinstance(scope, StepScope):
        try:
            return asked.at_terminal()
        except EOFError:
            raise ConfigError(f"ask({asked.text!r}): nobody answered at the terminal: its input has ended") from None
    return requested(scope, question_step(asked, name), "ask(...)", asked.in_time)


def put(asked: Question, name: str, leads_to: str) -> Awaitable[Any]:
    """Ask a person this question, inside a run or outside of one, and return an awaitable of the answer.

    The step is requested now; the person is asked when the result is awaited. `leads_to`: the address of the step that
    follows from the answer. Until that step has an outcome, an edited answer is checked again.
    """
    scope = durable.scope()
    if not isinstance(scope, StepScope):
        return background.in_thread(asked.at_terminal)
    step = scope.addressed(question_step(asked, name))
    return _put_inside(scope, asked, step, leads_to)


async def _put_inside(scope: StepScope, asked: Question, step: Step[Any], leads_to: str) -> Any:
    at, known = step.address or "", scope.run.record.outcomes
    then = known.get(leads_to)
    if (found := known.get(at)) and found.edited and (then is None or then.seq < found.seq):
        try:
            asked.read(asked.chosen(codec.decode(scope.run.record.value(at)["answer"]), scope.mask), at)
        except AnswerRefused as refused:
            raise AnswerRefused(at, scope.mask(refused.problem), edit=True, by_run=True) from None
    return await scope.step(step)


def question_step(asked: Question, name: str | None) -> Step[Any]:
    """Build the step of a question. Pass the value of the step to `Question.in_time`."""
    mask = durable.scope().mask
    step_events = _QuestionEvents(mask(asked.text), asked.events or _USUAL)

    async def work() -> Any:
        frame = durable.scope()
        assert isinstance(frame, StepScope)
        step_events.automatic = asked.is_approval and frame.inherited.auto_approve and not _answered(frame, asked)
        return True if step_events.automatic else await _answer(frame, asked, name)

    def encode(answer: Any) -> Any:
        if isinstance(answer, Late):
            return {"late": asked.timeout, "address": answer.address}
        return {"answer": codec.encode_to_keep(answer)} | ({"automatic": True} if step_events.automatic else {})

    def decode(data: Any) -> Any:
        if "late" in data:
            return Late(data.get("address", ""))  # the first records lack it
        return asked.read(asked.chosen(codec.decode(data["answer"]), mask), asked.text, recorded=True)

    return Step(
        kind=kinds.HUMAN,
        name=name,
        work=work,
        question=[asked.text, asked.asked_as],
        events=step_events,
        encode=encode,
        decode=decode,
        rests_on_more=True,
    )


def _answered(frame: StepScope, asked: Question) -> bool:
    return recorded_answer(frame.run.record, frame.address, asked.digest, _basis(frame)) is not None


def _basis(frame: StepScope) -> Basis:
    """Return the basis of the question for which this is the frame."""
    return frame.around.basis(frame.address) if frame.around else Basis()


async def _answer(frame: StepScope, asked: Question, name: str | None) -> Any:
    """Return the recorded answer, or one typed at the terminal now; `Late` if none came before the deadline.

    Raises Suspended if the run has to wait for the answer, AnswerRefused for a recorded answer that does not fit.
    """
    run, address = frame.run, frame.address
    recorded = recorded_question(run.record, address, asked.digest, _basis(frame))
    if recorded is None:  # nothing, or another question, is recorded at this address
        _warn_of_answer_to_another(frame, asked)
        recorded = await _record_question(frame, asked, name)
    if given := run.record.answer_to(recorded):
        return await _given(frame, asked, given)
    left = _left(recorded)
    if left is not None and left <= 0:
        return Late(address)
    why = "there is no terminal"
    if terminal() or (run.journal.location is None and asked.can_be_read()):
        said, why = await _typed_here(frame, asked, recorded, left), "the input has ended"
        if given := run.record.answer_to(recorded):
            if said is not _NOTHING:
                print(_ELSEWHERE, file=sys.stderr)
            return await _given(frame, asked, given)
        if said is not _NOTHING:
            return said
    if run.journal.location is None:
        raise ConfigError(
            f"ask({asked.text!r}): nobody could ever answer, as {why}, and the run has no store in which to wait for "
            f"an answer. Give the flow or crew checkpoint=True"
        )
    raise Suspended(
        run.run_id, run.journal.location, {address: frame.mask(asked.text)}, run.branch, kind=run.record.kind
    )


async def _given(frame: StepScope, asked: Question, answer: GivenAnswer) -> Any:
    """Return a recorded answer as the program gets it. Withdraws one that does not fit, and raises AnswerRefused."""
    try:
        return asked.read(asked.chosen(decode_answer(answer, asked.json_schema), frame.mask), frame.address)
    except AnswerRefused as refused:
        problem = frame.mask(refused.problem)
        await frame.run.journal.save({"answers": [refusal(frame.address, problem)]}, now=True)
        raise AnswerRefused(frame.address, problem, by_run=True) from None


async def _typed_here(frame: StepScope, asked: Question, recorded: AskedQuestion, left: float | None) -> Any:
    """Return what a person types; `Late` after `left` seconds; `_NOTHING` if the input ends, or others answer."""
    record, ended = frame.run.record, list[str]()

    def over() -> str | None:
        return _ELSEWHERE if record.answer_to(recorded) else ended[0] if ended else None

    typed_in = background.in_thread(asked.at_terminal, over)
    said = _NOTHING
    try:
        with paused(frame.inherited.budgets), contextlib.suppress(EOFError):  # wait as if there had been no terminal
            said = await _within(typed_in, left, frame.address)
    finally:
        ended.append(_TOO_LATE if isinstance(said, Late) else "")
    return said


def _warn_of_answer_to_another(frame: StepScope, asked: Question) -> None:
    """Warn if a person has answered another question at this address, such as a question on the base of a fork."""
    record = frame.run.record
    before = record.asked.get(frame.address)
    if before is None or before.get("digest") == asked.digest:
        return
    if (answer := record.answer_to(before)) and not answer.get("ahead"):  # given ahead, it is for this one too
        then = f"the answer to {frame.address} was given when it asked {before['question']!r}"
        frame.run.journal.warn(f"{then}. It asks something else now, so that answer does not count", frame.address)


async def _record_question(frame: StepScope, asked: Question, name: str | None) -> AskedQuestion:
    """Record a question and emit its event, unless the answer was given ahead. Returns the question as it is recorded.

    The question, its event and the checkpoint that the event creates are one commit. A run killed before that commit
    asks again; one killed after it does not. Raises ConfigError for choices that look alike once masked.
    """
    choices = [frame.mask(one) for one in listed(asked.json_schema) if isinstance(one, str)]
    if len(set(choices)) < len(choices):
        raise ConfigError(
            f"ask({frame.mask(asked.text)!r}): its choices hold secrets, and look alike once these are masked: "
            f"{', '.join(choices)}. Offer names, and have the code look up the secret by its name"
        )
    at, ahead = now(), frame.run.record.answers.get(frame.address)
    recorded: AskedQuestion = {"address": frame.address, "question": frame.mask(asked.text), "at": at.isoformat()}
    recorded["digest"] = asked.digest
    if rests_on := _basis(frame).digest:
        recorded["rests_on"] = rests_on
    schema = frame.run.journal.secrets.mask_data(asked.json_schema)
    recorded |= {"schema": schema} if schema else {}
    recorded |= {"name": name} if name else {}
    recorded |= {"until": after(at, asked.timeout).isoformat()} if asked.timeout else {}
    parts: CommitParts = {"asked": [recorded]}
    if ahead and ahead.get("ahead"):
        await frame.run.journal.save(parts, now=True)
        return recorded
    about_question = asked.events or _USUAL
    about = {**about_question.about, **about_question.shown, "question": recorded["question"], "options": schema}
    await frame.announce(about_question.source, about_question.requested, about, parts=parts)
    return recorded


def _left(recorded: AskedQuestion) -> float | None:
    until, asked = recorded.get("until"), datetime.fromisoformat(recorded["at"])  # a clock may be set back after it
    return (datetime.fromisoformat(until) - max(now(), asked)).total_seconds() if until else None


async def _within(answer: Awaitable[Any], left: float | None, address: str) -> Any:
    try:
        return await background.within(answer, left, "the answer")
    except StepTimeout:
        return Late(address)


@dataclass(slots=True)
class _QuestionEvents:
    """The events of a question to a person. The step's start emits none: `_record_question` emits its event, once."""

    question: str
    events: QuestionEvents
    automatic: bool = False
    """Whether `auto_approve` has answered the question."""

    @property
    def source(self) -> object:
        return self.events.source

    def started(self) -> None:
        return None

    def completed(self, value: Any) -> Said:
        answer = None if isinstance(value, Late) else codec.encode(value)
        fields = {**self.events.about, "question": self.question, "answer": answer, "automatic": self.automatic}
        return self.events.received, fields

    def failed(self, error: str, error_type: str) -> Said:
        fields = {"kind": "human", "name": self.question, "error": error, "error_type": error_type}
        return events.StepFailedEvent, fields


_USUAL = QuestionEvents(ask)
"""The events of a question without `Question.events`."""
