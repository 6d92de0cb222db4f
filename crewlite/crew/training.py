"""`crew.train`: the crew runs several times, its answers get feedback, and a model turns that into suggestions.

The agents of each iteration get the feedback on the iterations before it. Answers and feedback are recorded; the file
is written when the run has ended, from its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from crewlite import durable, events, kinds
from crewlite.agent.agent import Agent
from crewlite.crew import learned
from crewlite.crew.crew import Crew
from crewlite.crew.learned import CrewTrainingResult, Lesson, Suggestions, TrainedAgent
from crewlite.crew.staff import assignments, ready, suggestions_for
from crewlite.crew.trial import Judge, Trial, kicked_off
from crewlite.definitions.definition import check_takes
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.errors import ConfigError
from crewlite.events.family import FamilyEvents
from crewlite.llm.base import BaseLLM
from crewlite.recovery import checks
from crewlite.runtime.kickoffs.request import KickoffOptions
from crewlite.runtime.people.human import ask
from crewlite.runtime.steps.callbacks import callback_step, called, name_of
from crewlite.task.output import TaskOutput
from crewlite.task.task import Task
from crewlite.texts.wording import number_of
from crewlite.tools.naming import address_name

_EVENTS = events.CrewTrainStartedEvent, events.CrewTrainCompletedEvent, events.CrewTrainFailedEvent

Feedback: TypeAlias = Callable[[TaskOutput], Any] | Sequence[str | Mapping[str, str]] | None


def train(
    crew: Crew,
    n_iterations: int,
    filename: str,
    inputs: Mapping[str, Any] | None,
    feedback: Feedback,
    options: KickoffOptions,
) -> CrewTrainingResult:
    """Train a crew and write the file of trained agents, as Crew.train describes."""
    trial = trial_of(crew, n_iterations, filename, feedback)
    said = None if feedback is None or callable(feedback) else [_plain(one) for one in feedback]
    result: CrewTrainingResult = trial.kickoff(n_iterations, inputs, said, **options)
    learned.write(filename, result.agents)
    return result


def trial_of(crew: Crew, n_iterations: int, filename: str, feedback: Feedback) -> Trial:
    """Build the trial that trains a crew. Its arguments are n_iterations and inputs, and feedback if that is a list."""
    checks.whole("train", 1, n_iterations=n_iterations)
    _check_feedback(crew, n_iterations, feedback)
    learned.check(filename)
    if Path(filename).exists():
        learned.read(filename)  # before anything is paid
    training = _Training(crew, _known_before(crew, filename), feedback)

    async def code(n_iterations: int, inputs: Mapping[str, Any] | None, feedback: Any = None) -> CrewTrainingResult:
        return await training.at_work(n_iterations, inputs)

    def step_events(given: Mapping[str, Any]) -> FamilyEvents:
        about = {"crew_name": crew.name, "n_iterations": given["n_iterations"], "filename": filename}
        return FamilyEvents(crew, _EVENTS, about, lambda: {"inputs": dict(given["inputs"] or {})})

    models = list(training.models.values())
    return Trial("train", "training", crew, code, step_events, models=models, asks_people=feedback is None)


class _Training:
    """The iterations of a training, and the suggestions that follow from them."""

    def __init__(self, crew: Crew, before: Suggestions, feedback: Feedback) -> None:
        self._crew, self._before, self._feedback = crew, before, feedback
        made = assignments(crew.taught(before))
        self._doing = {one.task: one.worker.agent for one in made}
        self.models: dict[Agent, BaseLLM] = {one.worker.agent: one.worker.llm for one in made}

    async def at_work(self, n_iterations: int, inputs: Mapping[str, Any] | None) -> CrewTrainingResult:
        """Run all iterations, then have a model make suggestions for each agent whose answers got feedback."""
        await ready(self.models.values())
        lessons: list[Lesson] = []
        for number in range(1, n_iterations + 1):
            lessons += await self._iteration(number, inputs, lessons)
        agents = {}
        for agent, llm in self.models.items():
            own = [lesson for lesson in lessons if lesson.role == agent.role]
            if own and agent.role not in agents:  # it is about the role, which two agents may have
                agents[agent.role] = await durable.scope().step(self._suggestions(agent, llm, own))
        usage = durable.scope().usage
        return CrewTrainingResult(crew_name=self._crew.name, agents=agents, lessons=tuple(lessons), token_usage=usage)

    async def _iteration(
        self, number: int, inputs: Mapping[str, Any] | None, lessons: Sequence[Lesson]
    ) -> list[Lesson]:
        known = {agent.role: list(self._before.get(agent.role, ())) for agent in self.models}
        for lesson in lessons:
            known[lesson.role].append(lesson.feedback)
        result, _ = await kicked_off(self._crew.taught(known), inputs)
        found = []
        for at, (task, output) in enumerate(zip(self._crew.tasks, result.tasks_output, strict=True), 1):
            if not output.skipped and (said := await self._said(number, at, task, output)):
                about = {"role": self._doing[task].role, "iteration": number}
                found.append(Lesson(**about, description=output.description, answer=output.raw, feedback=said))
        return found

    async def _said(self, number: int, at: int, task: Task, output: TaskOutput) -> str:
        feedback, scope = self._feedback, durable.scope()
        if feedback is None:
            shown = f"{output.agent} answers ({task.title}, iteration {number}):\n\n{output.raw}\n\n"
            name = f"feedback.{number}.{task.address_name or at}"
            said: str = await ask(f"{shown}What should be better? (nothing: leave it empty)", name=name)
            return said.strip()
        if callable(feedback):
            question = [output.description, codec.digest(output.raw)]
            step = callback_step(feedback, lambda: _asked(feedback, output), question, role="feedback")
            return str(await scope.step(step))
        given = feedback[number - 1]
        return (given if isinstance(given, str) else given.get(task.name or "", "")).strip()

    def _suggestions(self, agent: Agent, llm: BaseLLM, lessons: Sequence[Lesson]) -> Step[TrainedAgent]:
        """Build the step in which a model makes suggestions for an agent."""
        prompts = "trainer.j2", "training.j2"
        judge = Judge(self._crew, llm, "Crew Trainer", TrainedAgent, prompts, "training_data_evaluation")
        name = address_name(agent.role)
        question = [
            agent.role,
            agent.goal,
            [[one.description, codec.digest(one.answer), one.feedback] for one in lessons],
        ]
        step_events = FamilyEvents.plain(self._crew, kinds.EVALUATION, name)
        about = {"agent_role": agent.role}
        return judge.step(name, question, step_events, about, role=agent.role, goal=agent.goal, lessons=lessons)


async def _asked(feedback: Callable[[TaskOutput], Any], output: TaskOutput) -> str:
    said = await called(feedback, output)
    if not isinstance(said, str | None):
        raise ConfigError(f"feedback {name_of(feedback)!r} returned {said!r}; wanted text, or None for no feedback")
    return (said or "").strip()


def _known_before(crew: Crew, filename: str) -> Suggestions:
    """Return what the agents have learned before this training; the file that the training writes may not exist yet."""
    file = crew.trained_agents_file
    if file is None or (Path(file).absolute() == Path(filename).absolute() and not Path(file).exists()):
        return {}
    return suggestions_for(crew)


def _check_feedback(crew: Crew, n_iterations: int, feedback: Feedback) -> None:
    """Raise ConfigError unless `feedback` is None, a function, or a list with an item for each iteration."""
    wanted = (
        "wanted a function that takes the TaskOutput, a list with an item for each iteration, or None to ask a person"
    )
    if feedback is None:
        return
    if callable(feedback):
        check_takes(feedback, "feedback", "the TaskOutput")
        return
    if isinstance(feedback, str | Mapping) or not isinstance(feedback, Sequence):
        raise ConfigError(f"feedback is {feedback!r}; {wanted}")
    if len(feedback) != n_iterations:
        raise ConfigError(
            f"feedback has {number_of(len(feedback), 'item')} for {number_of(n_iterations, 'iteration')}; {wanted}"
        )
    names = {task.name for task in crew.tasks}
    for item in feedback:
        fits = isinstance(item, str) or (
            isinstance(item, Mapping)
            and names.issuperset(item)
            and all(isinstance(text, str) for text in item.values())
        )
        if not fits:
            known = ", ".join(sorted(name for name in names if name)) or "none has a name"
            raise ConfigError(
                f"feedback holds {item!r}; wanted one text for all tasks, or a mapping of task name to text ({known})"
            )


def _plain(item: str | Mapping[str, str]) -> Any:
    return item if isinstance(item, str) else dict(item)
