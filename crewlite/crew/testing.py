"""`crew.test`: the crew runs several times, and a model scores each answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from crewlite import durable, events, kinds
from crewlite.agent.judging import Score
from crewlite.crew.crew import Crew
from crewlite.crew.scores import CrewTestResult, TaskScore
from crewlite.crew.staff import ready
from crewlite.crew.trial import Judge, Trial, kicked_off
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.events.family import FamilyEvents
from crewlite.llm.base import BaseLLM
from crewlite.llm.models import as_model, resolve_llm
from crewlite.recovery import checks
from crewlite.runtime.steps.step_scope import StepScope
from crewlite.state.format.times import Times
from crewlite.task.output import TaskOutput
from crewlite.task.task import Task

_TEST = events.CrewTestStartedEvent, events.CrewTestCompletedEvent, events.CrewTestFailedEvent
_RESULT = None, events.CrewTestResultEvent, None
_EVALUATION = (
    events.AgentEvaluationStartedEvent,
    events.AgentEvaluationCompletedEvent,
    events.AgentEvaluationFailedEvent,
)


def trial_of(crew: Crew, n_iterations: int, eval_llm: BaseLLM | str | None) -> Trial:
    """Build the trial that tests a crew. Its arguments are n_iterations and inputs."""
    checks.whole("test", 1, n_iterations=n_iterations)
    given: Any = as_model(eval_llm)  # resolve_llm checks it
    judging = resolve_llm([given], agent="Crew Evaluator", give="Pass the model that scores, test(..., eval_llm=...)")

    async def code(n_iterations: int, inputs: Mapping[str, Any] | None) -> CrewTestResult:
        await ready([judging])
        tested = _Test(crew, judging)
        results = [await tested.iteration(number, inputs) for number in range(1, n_iterations + 1)]
        return CrewTestResult(
            crew_name=crew.name,
            model=judging.model,
            scores=tuple(score for scores, _ in results for score in scores),
            seconds=tuple(seconds for _, seconds in results),
            token_usage=durable.scope().usage,
        )

    def step_events(given: Mapping[str, Any]) -> FamilyEvents:
        about = {"crew_name": crew.name, "n_iterations": given["n_iterations"], "eval_llm": judging.model}
        inputs = given["inputs"] or {}
        return FamilyEvents(
            crew, _TEST, about, lambda: {"inputs": dict(inputs)}, lambda made: {"quality": made.value.quality}
        )

    return Trial("test", "test", crew, code, step_events, models=[judging])


@dataclass(frozen=True, slots=True)
class _Test:
    crew: Crew
    llm: BaseLLM

    async def iteration(self, number: int, inputs: Mapping[str, Any] | None) -> tuple[list[TaskScore], float]:
        """Kick off the crew once; return the scores of its answers, and the seconds that the kickoff took."""
        result, address = await kicked_off(self.crew, inputs)
        found = []
        for task, output in zip(self.crew.tasks, result.tasks_output, strict=True):
            if not output.skipped:
                score = await durable.scope().step(self._evaluation(number, task, output))
                about = {"task": task.title, "agent": output.agent, "iteration": number}
                found.append(TaskScore(**about, quality=score.quality, reason=score.reason))
        quality = fmean(score.quality for score in found)
        return found, await durable.scope().step(self._result(number, quality, address))

    def _evaluation(self, number: int, task: Task, output: TaskOutput) -> Step[Score]:
        prompts = "evaluator.j2", "evaluation.j2"
        judge = Judge(self.crew, self.llm, "Crew Evaluator", Score, prompts, "task_evaluation")
        about = {"task_name": output.name, "agent_role": output.agent}
        step_events = FamilyEvents(
            task.agent or self.crew,
            _EVALUATION,
            {"iteration": number, **about},
            of_outcome=lambda score: {"score": score.quality, "reason": score.reason},
        )
        question = [output.description, output.expected_output, codec.digest(output.raw)]
        return judge.step(task.address_name, question, step_events, about, output=output)

    def _result(self, number: int, quality: float, address: str) -> Step[float]:
        """Build the step that records the result of an iteration: the seconds that its kickoff took."""

        async def act() -> float:
            scope = durable.scope()
            return Times(scope.run.record).of(address) if isinstance(scope, StepScope) else 0.0

        about = {"crew_name": self.crew.name, "iteration": number, "quality": quality, "model": self.llm.model}
        return Step(
            kind=kinds.EVALUATION,
            name="result",
            work=act,
            question=[number, quality],
            events=FamilyEvents(self.crew, _RESULT, about, of_outcome=lambda seconds: {"execution_duration": seconds}),
            drift="rerun",
        )
