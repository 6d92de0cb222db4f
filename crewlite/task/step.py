"""A task as a durable step: agent, then output file, then callback; only then it is finished."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from crewlite import background, codec, disk, durable, events, kinds, templates
from crewlite.agent.agent import Agent
from crewlite.agent.approval import feedback
from crewlite.agent.loop import Answer, Work, system_prompt, work
from crewlite.agent.shape import PROMPTS, wanted
from crewlite.durable import Drift, Stamp, Step
from crewlite.errors import AnswerRefused, ConfigError, Suspended, text_of
from crewlite.llm.base import BaseLLM
from crewlite.task.output import TaskOutput
from crewlite.task.task import Task
from crewlite.tools.base import is_async


@dataclass(frozen=True, slots=True)
class Assignment:
    """A task with who does it, on which model."""

    task: Task
    agent: Agent
    llm: BaseLLM

    def filled(self, inputs: Mapping[str, Any]) -> FilledTask:
        """The task with its placeholders filled in. Raises MissingInput."""
        task, agent = self.task, self.agent
        where, who = f"Task {task.title!r}", f"Agent {agent.role!r}"
        return FilledTask(
            task,
            agent,
            self.llm,
            templates.fill(task.description, inputs, where=where),
            templates.fill(task.expected_output, inputs, where=where),
            templates.fill(task.output_file, inputs, where=where) if task.output_file else None,
            templates.fill(agent.role, inputs, where=who),
            templates.fill(agent.goal, inputs, where=who),
            templates.fill(agent.backstory, inputs, where=who),
        )


@dataclass(frozen=True, slots=True)
class FilledTask:
    """An assignment with its placeholders filled in."""

    task: Task
    agent: Agent
    llm: BaseLLM
    description: str
    expected_output: str
    output_file: str | None
    role: str
    goal: str
    backstory: str

    def asked(self) -> list[Any]:
        """What is asked of whom, and in which shape, as plain JSON."""
        shape = self.task.shape
        who = [self.role, self.goal, self.backstory]
        return [self.description, self.expected_output, shape.schema if shape else None, who]

    def question(self, context: Sequence[ContextItem]) -> list[Any]:
        """The question of its step: what is asked, of whom, in which shape, on the basis of what."""
        return [*self.asked(), [[item.address, codec.digest(item.text)] for item in context]]

    @property
    def texts(self) -> dict[str, str]:
        """Texts of the question that are recorded with the answer."""
        texts = {"description": self.description, "expected_output": self.expected_output}
        return texts | {"role": self.role, "goal": self.goal, "backstory": self.backstory}

    def output(self, answer: Answer) -> TaskOutput:
        """The answer as the task's output."""
        value = answer.value
        return TaskOutput(
            name=self.task.name,
            description=self.description,
            expected_output=self.expected_output,
            raw=answer.text,
            pydantic=value if self.task.output_pydantic else None,
            json_dict=value.model_dump(mode="json") if value and self.task.output_json else None,
            agent=self.role,
        )

    def output_of(self, data: Any) -> TaskOutput:
        """A recorded output, its structure read again with the class the task has now."""
        shape = self.task.shape
        return self.output(
            Answer(data["raw"], shape.recorded(data["raw"], f"task {self.task.title!r}") if shape else None)
        )


@dataclass(frozen=True, slots=True)
class ContextItem:
    """An output that a task is given as context."""

    address: str
    name: str
    text: str


def task_step(
    filled: FilledTask, context: Sequence[ContextItem], *, address: str | None, drift: Drift
) -> Step[TaskOutput]:
    """The step. Its question: see FilledTask.question."""
    task = filled.task

    async def act() -> TaskOutput:
        if filled.output_file:  # before the model is paid
            await background.in_thread(_check_file, Path(filled.output_file), f"Task {task.title!r}")
        output = filled.output(await _agent(filled, context))
        if filled.output_file:
            await background.in_thread(_write, Path(filled.output_file), output.raw)
        if task.callback:
            await _call_back(task, output)
        return output

    return Step(
        kind=kinds.TASK,
        name=task.name,
        work=act,
        question=filled.question(context),
        texts=filled.texts,
        voice=_TaskVoice(task, filled, tuple(item.address for item in context)),
        encode=lambda output: {"raw": output.raw, "agent": output.agent},
        decode=filled.output_of,
        placeholder=lambda: filled.output(Answer("")),
        address=address,
        timeout=filled.agent.max_execution_time,
        inherits=True,
        child_policy=task.failure_policy,
        drift=drift,
        checkpoint_settings=(task.checkpoint, filled.agent.checkpoint),
    )


async def _agent(filled: FilledTask, context: Sequence[ContextItem]) -> Answer:
    """Let the agent answer, and say so."""
    task, agent, scope = filled.task, filled.agent, durable.scope()
    tools = (*agent.tools, *task.tools)
    prompt = templates.render(
        PROMPTS,
        "task.j2",
        description=filled.description,
        expected_output=filled.expected_output,
        context=context,
        shape=wanted(task.shape),
    )
    system = system_prompt(filled.role, filled.goal, filled.backstory, tools=bool(tools))
    opening = ({"role": "system", "content": system}, {"role": "user", "content": prompt})
    title = f"task {task.title!r}"
    job = Work(
        agent,
        filled.role,
        filled.llm,
        tools,
        opening,
        agent.max_iter,
        agent.verbose,
        task.shape,
        title,
        agent.max_tool_output,
    )
    names = tuple(tool.name for tool in tools)
    said = {"agent_role": filled.role}
    started = await scope.announce(
        agent, lambda stamp: events.AgentExecutionStartedEvent(**stamp, **said, tools=names, task_prompt=prompt)
    )
    try:
        answer = await work(job)
        while task.human_input and (wish := await feedback(answer.text, f"{filled.role} ({title})")):
            said_so = ({"role": "assistant", "content": answer.text}, {"role": "user", "content": wish})
            job = dataclasses.replace(job, messages=(*job.messages, *said_so))
            answer = await work(job)
    except (Suspended, AnswerRefused):
        raise
    except Exception as error:
        text, kind = scope.mask(text_of(error)), type(error).__qualname__
        await scope.announce(
            agent,
            lambda stamp: events.AgentExecutionErrorEvent(
                **stamp, **said, started_event_id=started, error=text, error_type=kind
            ),
        )
        raise
    await scope.announce(
        agent,
        lambda stamp: events.AgentExecutionCompletedEvent(
            **stamp, **said, started_event_id=started, output=answer.text
        ),
    )
    return answer


async def _call_back(task: Task, output: TaskOutput) -> None:
    callback = task.callback
    assert callback

    async def act() -> None:
        await callback(output) if is_async(callback) else await background.blocking(callback, output)

    name = getattr(callback, "__name__", type(callback).__name__).strip("<>")
    await durable.scope().step(
        Step(
            kind=kinds.CALLBACK,
            name=name,
            work=act,
            question=[codec.digest(output.raw)],
            voice=_CallbackVoice(callback, name),
            effect="idempotent",
            inherits=True,
        )
    )


def _check_file(path: Path, where: str) -> None:
    """Raises ConfigError if no file can be at `path`."""
    there = next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())
    if there == path.absolute() and there.is_dir():
        raise ConfigError(f"{where}: output_file is {str(path)!r}, which is a directory; wanted the name of a file")
    if there != path.absolute() and not there.is_dir():
        raise ConfigError(f"{where}: output_file is {str(path)!r}, but {there} is no directory; wanted another place")


def _write(path: Path, text: str) -> None:
    disk.make_directory(path.absolute().parent, mode=0o777)
    disk.replace(path.absolute(), text.encode("utf-8", "backslashreplace"), mode=0o666)


@dataclass(frozen=True, slots=True)
class _TaskVoice:
    source: Task
    filled: FilledTask
    context: tuple[str, ...]

    def started(self, stamp: Stamp) -> events.TaskStartedEvent:
        return events.TaskStartedEvent(
            **stamp,
            task_name=self.source.name,
            agent_role=self.filled.role,
            description=self.filled.description,
            expected_output=self.filled.expected_output,
            context=self.context,
        )

    def completed(self, stamp: Stamp, value: TaskOutput) -> events.TaskCompletedEvent:
        return events.TaskCompletedEvent(**stamp, task_name=self.source.name, agent_role=self.filled.role, output=value)

    def failed(self, stamp: Stamp, error: str, error_type: str) -> events.TaskFailedEvent:
        return events.TaskFailedEvent(
            **stamp, task_name=self.source.name, agent_role=self.filled.role, error=error, error_type=error_type
        )


@dataclass(frozen=True, slots=True)
class _CallbackVoice:
    source: object
    name: str

    def started(self, stamp: Stamp) -> events.StepStartedEvent:
        return events.StepStartedEvent(**stamp, kind="callback", name=self.name)

    def completed(self, stamp: Stamp, value: BaseModel | None) -> events.StepCompletedEvent:
        return events.StepCompletedEvent(**stamp, kind="callback", name=self.name)

    def failed(self, stamp: Stamp, error: str, error_type: str) -> events.StepFailedEvent:
        return events.StepFailedEvent(**stamp, kind="callback", name=self.name, error=error, error_type=error_type)
