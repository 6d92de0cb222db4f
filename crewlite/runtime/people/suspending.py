"""Have a person choose the remedy for a failure. The run waits for the answer, which is recorded like any answer.

The question is recorded with the failure. A run that is resumed with the answer applies it to that failure. A run that
is resumed without an answer tries the failed step again, which may work by now; another failure is another question.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from crewlite import durable, kinds
from crewlite.durable import Step
from crewlite.events.family import FamilyEvents
from crewlite.recovery import Abort, Escalate, Failure, FailureType, Remedy, Replan, Retry, Rollback, Suspend
from crewlite.recovery.remedy import hinted, typed
from crewlite.runtime.people.human import question_step
from crewlite.runtime.people.question import Question
from crewlite.state.reading.fitting import begins_with
from crewlite.texts.wording import sentence

_CHOICES: dict[str, Callable[[str], Remedy]] = {
    "retry": lambda said: Retry(hint=said),
    "replan": lambda said: Replan(hint=said),
    "rollback": lambda said: Rollback(hint=said),
    "escalate": lambda said: Escalate(message=said),
    "abort": lambda said: Abort(reason=said),
}
_HOW = f"{', '.join(_CHOICES)}; a hint or a reason may follow, as in 'replan: use the archive'"
_TOLD = "abort alone tells the model, abort with a reason ends the run"


async def chosen(suspend: Suspend, failure: Failure, source: object) -> Remedy:
    """Ask a person, in the scope of the failed step, which remedy to apply, and return that.

    Raises Suspended until somebody has answered, AnswerRefused for an answer that names no remedy, and ConfigError if
    nobody can answer.
    """
    how = f"{_HOW}; {_TOLD}" if failure.is_told else _HOW
    question = Question(durable.scope().mask(_text(suspend, failure, how)), _answers(how))

    async def work() -> str:
        answer: str = await durable.scope().step(question_step(question, None))
        return answer

    step = Step(
        kind=kinds.DECISION,
        name=f"{failure.attempts}-{question.digest[:8]}",  # another failure is another question
        work=work,
        question=question.digest,
        events=FamilyEvents.silent(source),
    )
    return hinted(typed(_remedy(await durable.scope().step(step)), failure), failure)


def _answers(how: str) -> Any:
    """Return the type of the answers that name a remedy. Its JSON schema describes them to the person who answers."""
    shown = {"type": "string", "pattern": begins_with(_CHOICES), "description": how}
    return Annotated[str, AfterValidator(_checked), WithJsonSchema(shown)]


def _checked(said: str) -> str:
    _remedy(said)
    return said


def _text(suspend: Suspend, failure: Failure, how: str) -> str:
    kind = "" if failure.type is FailureType.UNKNOWN else f" ({failure.type})"
    what = f"{failure.address or 'The run itself'} failed in try {failure.attempts}{kind}"
    asked = suspend.question or f"{what}: {failure.error_type}: {failure.message}"
    return f"{sentence(asked)} What next? ({how})"


def _remedy(said: str) -> Remedy:
    """Return the remedy that an answer names. Raises ValueError if it names none."""
    name, _, more = said.partition(":")
    make = _CHOICES.get(name.strip().lower())
    if make is None:
        raise ValueError(f"wanted {_HOW}")
    return make(more.strip())
