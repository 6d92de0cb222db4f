"""A trial of a crew, that is a test or a training: kickoffs of the crew, whose answers a model judges, in one run.

A trial is a flow whose code is in this package. So its work is recorded, and an interrupted trial continues when it is
called again with the same run_id.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel

from crewlite import durable, events, kinds
from crewlite.agent.loop import answer_as
from crewlite.crew.crew import Crew
from crewlite.crew.output import CrewOutput
from crewlite.definitions.definition import Definition
from crewlite.durable import Step, StepEvents
from crewlite.encoding import codec
from crewlite.errors import ConfigError
from crewlite.flow.function import FlowFunction
from crewlite.flow.root import FlowRoot, Returned
from crewlite.kinds import Kind
from crewlite.llm.base import BaseLLM, with_fallbacks
from crewlite.runtime.kickoffs.engine import kickoff
from crewlite.runtime.kickoffs.request import Progress, Request
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.steps.run import Run
from crewlite.step_parts import INHERITED
from crewlite.texts import templates

B = TypeVar("B", bound=BaseModel)
_PROMPTS = "crewlite.crew"


class Trial(FlowFunction[..., Any]):
    """The flow of a trial. `step_events` makes the events of its start and end from its arguments."""

    run_kind: ClassVar[Kind] = kinds.TRIAL

    def __init__(
        self,
        verb: Literal["test", "train"],
        what: str,
        crew: Crew,
        code: Callable[..., Any],
        step_events: Callable[[Mapping[str, Any]], StepEvents],
        *,
        models: Sequence[BaseLLM],
        asks_people: bool = False,
    ) -> None:
        if crew.bound_at is not None:
            raise ConfigError(
                f"This crew is bound to one run, but a {what} starts several: call crew.bound_to(None) first"
            )
        name = f"{what} of {re.sub('[/#!]', '_', crew.name)}"
        super().__init__(code, name=name, checkpoint=crew.checkpoint, verbose=crew.verbose)
        self.run_verb, self.step_events, self.asks_people = verb, step_events, asks_people  # type: ignore[misc]  # each trial has its verb
        self._crew = crew
        self._sources = (*crew.secret_sources(), *(part for llm in models for part in with_fallbacks(llm)))

    def relies_on(self) -> tuple[Definition, ...]:
        """Return the crew and its parts, which stay as they are in all its kickoffs."""
        return self._crew.relies_on()

    def as_root(self, request: Request) -> Root[Any]:
        """Build the Root that the engine runs."""
        return _TrialRoot(self)

    def secret_sources(self) -> tuple[object, ...]:
        """Return the live objects whose fields are searched for secrets, the trial itself first."""
        return (*super().secret_sources(), *self._sources)


class _TrialRoot(FlowRoot):
    """The root of a trial, whose events are those of a test or a training."""

    waits = None  # as for a crew: the event of each question says that it waits

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial)
        self._step_events, self.asks_people = trial.step_events, trial.asks_people

    def step(self, inputs: dict[str, Any], run: Run | None) -> Step[Returned]:
        return dataclasses.replace(super().step(inputs, run), events=self._step_events(inputs))


async def kicked_off(crew: Crew, inputs: Mapping[str, Any] | None) -> tuple[CrewOutput, str]:
    """Kick off the crew inside the trial; return the result, and the address of that step."""
    progress = Progress()
    result = await kickoff(crew, Request(inputs, progress=progress))
    return result, progress.address


@dataclasses.dataclass(frozen=True, slots=True)
class Judge(Generic[B]):
    """A model that judges answers, in the form of a pydantic class."""

    crew: Crew
    llm: BaseLLM
    role: str
    shape: type[B]
    prompts: tuple[str, str]
    """The files that say who it is, and what it is asked."""
    evaluation_type: str
    """As the event `task_evaluation` names it."""

    def step(
        self, name: str | None, question: Any, step_events: StepEvents, about: Mapping[str, Any], **asked: Any
    ) -> Step[B]:
        """Build the step in which the model is asked. `about`: fields of the event; `asked`: values for the prompt."""

        async def act() -> B:
            kind = self.evaluation_type
            fields = {**about, "evaluation_type": kind}
            await durable.scope().announce(self.crew, events.TaskEvaluationEvent, fields)
            return await self._asked(asked)

        return Step(
            kind=kinds.EVALUATION,
            name=name,
            work=act,
            question=question,
            events=step_events,
            encode=lambda value: codec.encode(value.model_dump()),
            decode=lambda data: self.shape.model_validate(codec.decode(data)),
            policies=INHERITED,
            drift="rerun",
            round_trip=True,
        )

    async def _asked(self, asked: Mapping[str, Any]) -> B:
        """Ask the model. `asked`: values for the prompt."""
        who, what = self.prompts
        opening = (
            {"role": "system", "content": templates.render(_PROMPTS, who)},
            {"role": "user", "content": templates.render(_PROMPTS, what, **asked)},
        )
        title, verbose = f"{self.role} of crew {self.crew.name!r}", self.crew.verbose
        return await answer_as(self.shape, self.llm, opening, role=self.role, title=title, verbose=verbose, at=0)
