"""Classify a failure by a model. Its answer is a recorded step beside the failure, so no resume pays for it again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from crewlite import durable, kinds
from crewlite.agent.shape import PROMPTS
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.errors import CONTROL_FLOW, ConfigError, text_of
from crewlite.events.family import FamilyEvents
from crewlite.lazy import lazy
from crewlite.llm.base import OFFLINE, BaseLLM
from crewlite.llm.call import call_step
from crewlite.llm.models import named
from crewlite.recovery import Failure, RecordedStep
from crewlite.recovery.policy import model_calls
from crewlite.recovery.types import MEANINGS, Evidence, FailureType
from crewlite.texts import templates
from crewlite.texts.wording import what_is

if TYPE_CHECKING:
    from crewlite.llm import model
else:
    model = lazy("crewlite.llm.model")  # only for classifiers that name their model

_CONFIDENCE = 0.8
_LONGEST = 2_000  # characters of a text that the model is shown
_NAMED = re.compile(rf"\b({'|'.join(name.replace('_', '[ _-]') for name in FailureType)})\b:?\s*(.*)", re.IGNORECASE)


def model_of(llm: object, max_tokens: int) -> BaseLLM:
    """Return the model of a classifier. One that is given by name answers in at most `max_tokens` tokens."""
    if isinstance(llm, str):
        return named(llm) if llm == OFFLINE else model.LLM(llm, max_tokens=max_tokens)
    if isinstance(llm, BaseLLM):
        return llm
    raise ConfigError(f"LLMClassifier: llm is {what_is(llm)}; wanted a model, such as LLM(...), or its name")


async def classified_by_model(llm: BaseLLM, failure: Failure, max_steps: int) -> Failure:
    """Return a failure with the type that the model names, and its reason as evidence; UNKNOWN if the model fails.

    Errors with which the run itself stops are raised.
    """
    try:
        answer: str = await durable.scope().step(_step(llm, _shown(failure, max_steps)))
    except CONTROL_FLOW:
        raise
    except Exception as error:  # the border: what failed must not be hidden by a model that fails
        return failure.of_type(FailureType.UNKNOWN, _reason(f"{type(error).__name__}: {text_of(error)}", 0.0))
    if found := _NAMED.search(answer):
        named_type = FailureType(re.sub(r"[ -]", "_", found[1].lower()))
        return failure.of_type(named_type, _reason(found[2].strip() or answer.strip(), _CONFIDENCE))
    return failure.of_type(FailureType.UNKNOWN, _reason(f"The model named no type: {answer[:_LONGEST]}", 0.0))


def _step(llm: BaseLLM, shown: str) -> Step[str]:
    async def act() -> str:
        system = templates.render(PROMPTS, "classify.j2", types=[[str(one), MEANINGS[one]] for one in FailureType])
        asked = [{"role": "system", "content": system}, {"role": "user", "content": shown}]
        return (await durable.scope().step(call_step(llm, asked, template="classify.j2", policy=model_calls(1)))).text

    return Step(
        kind=kinds.CLASSIFICATION,
        name=codec.digest(shown)[:8],  # another failure of the step, in a later try, is another question
        work=act,
        question=shown,
        events=FamilyEvents.silent(llm),
    )


def _shown(failure: Failure, max_steps: int) -> str:
    lines = [f"step: {failure.address or 'the run itself'}", f"error: {failure.error_type}: {failure.message}"]
    lines += [f"it failed first in: {failure.cause}"] if failure.cause else []
    lines += [f"before: {_line(step)}" for step in failure.trajectory[-max_steps:]]
    return templates.marked("failure", durable.scope().mask("\n".join(line[:_LONGEST] for line in lines)))


def _reason(text: str, confidence: float) -> Evidence:
    return Evidence("LLMClassifier", text, confidence)


def _line(step: RecordedStep) -> str:
    parts = {"tool": step.tool, "input": step.input, "output": step.output, "error": step.error, "said": step.said}
    return "; ".join([step.action, *(f"{name} {value}" for name, value in parts.items() if value)])
