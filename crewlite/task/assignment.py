"""Who does a task, on which model, and what it asks with the placeholders filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crewlite import codec, templates
from crewlite.agent.agent import Agent
from crewlite.agent.coworkers import problems_of
from crewlite.agent.delegation import delegation_tools
from crewlite.agent.guarding import Guard, guards
from crewlite.agent.guardrail import models_of, texts_of
from crewlite.agent.input_files import InputFile, digests, read
from crewlite.agent.loop import Answer
from crewlite.agent.persona import Persona, Worker
from crewlite.errors import ConfigError
from crewlite.llm.base import BaseLLM
from crewlite.llm.models import resolve_llm
from crewlite.runtime.questions import FILE
from crewlite.task.conditional import ConditionalTask
from crewlite.task.output import TaskOutput
from crewlite.task.output_file import check_links, check_place, check_text
from crewlite.task.task import Task
from crewlite.tools.base import BaseTool


@dataclass(frozen=True, slots=True)
class ContextItem:
    """An output that another task builds on."""

    address: str
    name: str
    text: str
    skipped: bool = False
    """It has no text, and nobody is told of it."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A task with who does it, who may be asked to help, and who is told of its output."""

    task: Task
    worker: Worker
    coworkers: tuple[Worker, ...] = ()
    """Whom the worker may delegate to."""
    task_callback: Callable[[TaskOutput], Any] | None = None
    """Told of the output, after the task's own callback."""

    @property
    def models(self) -> list[BaseLLM]:
        """All that may be asked for it."""
        workers = (self.worker, *self.coworkers)
        judging = [
            models_of(guardrails) for guardrails in (self.task.chain, *(one.agent.guardrails for one in workers))
        ]
        judges = [resolve_llm([llm], agent="Guardrail") for models in judging for llm in models]
        return [*(worker.llm for worker in workers), *judges]

    def filled(self, inputs: Mapping[str, Any]) -> FilledTask:
        """The task with its placeholders filled in. Raises MissingInput, and ConfigError for two roles made alike."""
        return self._with(lambda text, where: templates.fill(text, inputs, where=where))

    def unfilled(self) -> FilledTask:
        """The task with its texts as they are, where nobody knows the inputs yet."""
        return self._with(lambda text, where: text)

    def _with(self, fill: Callable[[str, str], str]) -> FilledTask:
        task, where = self.task, f"Task {self.task.title!r}"
        output_file = fill(task.output_file, where) if task.output_file else None
        if output_file is not None:
            check_text(output_file, where, anywhere=task.output_file_anywhere)
        coworkers = tuple(one.filled(fill) for one in self.coworkers)
        for problem in problems_of(where, [one.role for one in coworkers]):
            raise ConfigError(problem)
        return FilledTask(
            self,
            fill(task.description, where),
            fill(task.expected_output, where),
            output_file,
            self.worker.filled(fill),
            coworkers,
        )


@dataclass(frozen=True, slots=True)
class FilledTask:
    """An assignment with its placeholders filled in."""

    assignment: Assignment
    description: str
    expected_output: str
    output_file: str | None
    persona: Persona
    coworkers: tuple[Persona, ...]

    @property
    def task(self) -> Task:
        """The task."""
        return self.assignment.task

    @property
    def agent(self) -> Agent:
        """Who does it."""
        return self.persona.agent

    @property
    def role(self) -> str:
        """What that one is told it is."""
        return self.persona.role

    @property
    def tools(self) -> tuple[BaseTool, ...]:
        """All that the agent may use for it."""
        return (*self.agent.may_use((*self.agent.tools, *self.task.tools)), *delegation_tools(self.coworkers))

    def place(self) -> Path:
        """The path of its output_file, as the disk is now. Raises ConfigError."""
        task, text = self.task, self.output_file or ""
        settings = {"anywhere": task.output_file_anywhere, "create_directory": task.create_directory}
        return check_place(text, f"Task {task.title!r}", **settings)

    def check_links(self) -> None:
        """Raise ConfigError if links lead its output_file out of the working directory."""
        if self.output_file:
            check_links(self.output_file, f"Task {self.task.title!r}", anywhere=self.task.output_file_anywhere)

    @property
    def guards(self) -> tuple[Guard, ...]:
        """What the answer has to pass: the guardrail of the agent, then those of the task."""
        agent, task = self.agent, self.task
        own = guards(f"task {task.title!r}", task.chain, task.retries)
        return (*guards(f"agent {self.role!r}", agent.guardrails, agent.guardrail_max_retries), *own)

    def asked(self, files: Sequence[InputFile] | None = None) -> list[Any]:
        """What is asked of whom, in which shape, and whether on a condition, as plain JSON.

        `files` are its input files as they were read; None reads them.
        """
        shape = self.task.shape
        who = [self.role, self.persona.goal, self.persona.backstory]
        condition = ["conditional"] if isinstance(self.task, ConditionalTask) else []
        guardrails = texts_of((*self.agent.guardrails, *self.task.chain))
        more: dict[str, Any] = {"guardrails": guardrails} if guardrails else {}
        more |= {"markdown": True} if self.task.markdown else {}
        if self.task.input_files:
            more["files"] = digests(read(self.task.input_files) if files is None else files)
        shown = [self.description, self.expected_output, shape.schema if shape else None, who, *condition]
        return [*shown, more] if more else shown

    def question(self, sources: Sequence[ContextItem], files: Sequence[InputFile] | None = None) -> list[Any]:
        """The question of its step: what is asked, of whom, in which shape, on the basis of what."""
        return [*self.asked(files), [[item.address, codec.digest(item.text)] for item in sources]]

    def texts(self, files: Sequence[InputFile] = ()) -> dict[str, str]:
        """Texts of the question that are recorded with the answer; of its input files, digests."""
        texts = {"description": self.description, "expected_output": self.expected_output}
        texts |= {"role": self.role, "goal": self.persona.goal, "backstory": self.persona.backstory}
        return texts | {f"{FILE}{file.name!r}": file.digest or "" for file in files}

    def output(self, answer: Answer) -> TaskOutput:
        """The answer as the task's output."""
        value = answer.value
        return TaskOutput(
            name=self.task.name,
            description=self.description,
            expected_output=self.expected_output,
            raw=answer.text,
            pydantic=None if self.task.output_json else value,
            json_dict=value.model_dump(mode="json") if value and self.task.output_json else None,
            agent=self.role,
        )

    def file_text(self, output: TaskOutput) -> str:
        """What its output_file holds: a structured answer as JSON, without what the model wrote around it."""
        return self.task.shape.json_in(output.raw) if self.task.shape else output.raw

    def skipped(self) -> TaskOutput:
        """The output of a task that is not done."""
        return self.output(Answer("")).model_copy(update={"skipped": True})

    def output_of(self, data: Any) -> TaskOutput:
        """A recorded output, its structure read again with the class the task has now."""
        if data.get("skipped"):
            return self.skipped()
        shape = self.task.shape
        return self.output(
            Answer(data["raw"], shape.recorded(data["raw"], f"task {self.task.title!r}") if shape else None)
        )
