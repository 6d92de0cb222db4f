"""Have an agent work until its answer passes all guardrails: after a refusal it works again, with the reason.

Each verdict is a recorded step, which is asked the answer and the guardrail's position. So a resume reuses verdicts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

from crewlite import durable, events, kinds
from crewlite.agent.guardrail import Guardrail, LLMGuardrail, rule_of
from crewlite.agent.loop import Answer, Work, answer_as, work
from crewlite.agent.shape import PROMPTS, Misshapen
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.errors import ConfigError, GuardrailFailed
from crewlite.events.family import FamilyEvents
from crewlite.llm.base import Message
from crewlite.llm.models import resolve_llm
from crewlite.runtime.steps.callbacks import called, name_of
from crewlite.step_parts import INHERITED
from crewlite.texts import templates
from crewlite.texts.wording import cut, what_is

_WANTED = "wanted (True, value) or (False, reason)"
_EVENTS = events.LLMGuardrailStartedEvent, events.LLMGuardrailCompletedEvent, events.LLMGuardrailFailedEvent


@dataclass(frozen=True, slots=True)
class Guard:
    """A guardrail of an agent or a task, and how many answers it may refuse."""

    guardrail: Guardrail
    retries: int
    owner: str
    """The agent or task that it belongs to. All guardrails of one owner share their retries."""

    @property
    def text(self) -> str | None:
        """The rule that a model judges by; None if the guardrail is a function."""
        return rule_of(self.guardrail)

    @property
    def title(self) -> str:
        """The name of the guardrail in errors and events."""
        return self.text or name_of(self.guardrail)


async def accepted(job: Work, talk: list[Message], chain: Sequence[Guard], output: Callable[[Answer], Any]) -> Answer:
    """Do the work until an answer passes all guardrails of `chain`, and return that answer.

    Adds the conversation to `talk`. `output` converts an answer to what guardrail functions get. Raises
    GuardrailFailed, ConfigError for a function that returns no verdict, and what the work and the functions raise.
    """
    refused = dict[str, int]()
    while True:
        answer = await work(job, talk)
        for place, guard in enumerate(chain):
            check = _Check(guard, place, sum(refused.values()), job, answer, output)
            passes, value = await durable.scope().step(check.step())
            if not passes:
                break
            if value is not None:
                answer = Answer(value, job.shape.read(value) if job.shape else None)
                amend(talk, value)
        else:
            return answer
        refused[guard.owner] = refused.get(guard.owner, 0) + 1
        if refused[guard.owner] > guard.retries:
            raise GuardrailFailed(job.title, guard.title, value, tries=sum(refused.values()))
        talk.append(refusal(value))


def refusal(reason: str) -> Message:
    """Build the message that tells the agent why a guardrail has refused its answer."""
    return {"role": "user", "content": templates.render(PROMPTS, "refused.j2", reason=reason)}


def amend(talk: list[Message], answer: str) -> None:
    """Replace the answer at the end of the conversation by the one that a guardrail has returned."""
    if talk[-1]["role"] == "assistant":
        talk[-1] = talk[-1] | {"content": answer}
    else:  # a tool has answered
        talk.append({"role": "assistant", "content": answer})


class _Judgement(BaseModel):
    """What a model says of an answer."""

    valid: bool = Field(description="Whether the answer meets the rule")
    feedback: str = Field(default="", description="If it does not: what is wrong with it")


@dataclass(frozen=True, slots=True)
class _Check:
    """One check of one answer by one guardrail."""

    guard: Guard
    place: int
    retry_count: int
    job: Work
    answer: Answer
    output: Callable[[Answer], Any]

    def step(self) -> Step[list[Any]]:
        """Build the step of the check. It returns [True, replacement text or None] or [False, reason]."""
        about = {"guardrail": self.guard.title, "agent_role": self.job.persona.role, "retry_count": self.retry_count}
        return Step(
            kind=kinds.GUARDRAIL,
            name=None,
            work=self._verdict,
            question=[self.place, codec.digest(self.answer.text), self.guard.text],
            events=FamilyEvents(self.job.persona.agent, _EVENTS, about, of_outcome=_verdict_fields),
            encode=codec.encode,
            decode=self._decoded,
            round_trip=True,
            effect="idempotent",
            policies=INHERITED,
            drift="rerun",
            label=None if self.guard.text else self.guard.title,
        )

    async def _verdict(self) -> list[Any]:
        if self.guard.text is not None:
            return await self._judged(self.guard.text)
        assert callable(self.guard.guardrail)
        return self._read(await called(self.guard.guardrail, self.output(self.answer)))

    def _decoded(self, data: Any) -> list[Any]:
        """Return a recorded verdict. Raises AnswerMisfit if the answer in it does not fit."""
        verdict: list[Any] = codec.decode(data)
        passes, text = verdict
        if passes and text is not None and self.job.shape:
            self.job.shape.recorded(text, self.job.title)
        return verdict

    async def _judged(self, rule: str) -> list[Any]:
        """Have a model judge the answer by a rule, and return its verdict."""
        own = self.guard.guardrail.llm if isinstance(self.guard.guardrail, LLMGuardrail) else None
        role, verbose = "Guardrail", self.job.persona.agent.verbose
        llm = resolve_llm([own, self.job.persona.llm], agent=role)
        answer = templates.marked("answer", self.answer.text)
        prompt = templates.render(PROMPTS, "judge.j2", answer=answer, rule=rule)
        messages, title = [{"role": "user", "content": prompt}], f"guardrail {rule!r} of {self.job.title}"
        said = await answer_as(_Judgement, llm, messages, role=role, title=title, verbose=verbose)
        return [True, None] if said.valid else [False, said.feedback.strip() or f"It does not meet the rule: {rule}"]

    def _read(self, made: object) -> list[Any]:
        """Return the verdict that a guardrail function has returned. Raises ConfigError if it is none."""
        if not isinstance(made, tuple | list) or len(made) != 2 or not isinstance(made[0], bool):
            raise self._wrong(f"{made!r}; {_WANTED}")
        passes, value = made
        if passes:
            return [True, self._text(value)]
        if value is None or not str(value).strip():
            raise self._wrong(f"False and no reason; {_WANTED}, as the agent is told the reason")
        return [False, str(value)]

    def _text(self, value: object) -> str | None:
        """Return the text that a guardrail function wants as the answer; None if it returned the answer unchanged."""
        if value is None:
            return None
        given, shape = self.output(self.answer), self.job.shape
        if isinstance(value, type(given)):
            parts = [(name, getattr(value, name, None)) for name in ("raw", "pydantic", "json_dict")]
            other = [part for name, part in parts if part != getattr(given, name, None)]
            return self._text(other[-1]) if other else None
        if value in (self.answer.text, self.answer.value, getattr(given, "json_dict", None)):
            return None
        text = value if isinstance(value, str) else self._as_json(value)
        if shape:
            try:
                shape.read(text)
            except Misshapen as problem:
                shown = durable.scope().mask(cut(text, 80))
                raise self._wrong(f"{shown!r}, which does not fit {shape.model.__name__} ({problem})") from None
        return text

    def _as_json(self, value: object) -> str:
        if isinstance(value, BaseModel):
            return value.model_dump_json(by_alias=True)
        if isinstance(value, dict | list):
            try:
                return json.dumps(value, ensure_ascii=False)
            except (TypeError, ValueError) as error:
                raise self._wrong(f"data that JSON cannot hold ({error})") from None
        raise self._wrong(f"True and {what_is(value)}; wanted text, data or None as the value")

    def _wrong(self, returned: str) -> ConfigError:
        return ConfigError(f"The guardrail {self.guard.title!r} of {self.guard.owner} returned {returned}")


def _verdict_fields(verdict: list[Any]) -> dict[str, Any]:
    passes, text = verdict
    return {"success": passes, "result" if passes else "error": text}
