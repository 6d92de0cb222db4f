"""Assign a task to an agent and a model, and fill in the placeholders of its texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from crewlite.agent import knowing
from crewlite.agent.coworkers import problems_of
from crewlite.agent.guardrail import rule_of
from crewlite.agent.input_files import InputFile, digests, read
from crewlite.agent.loop import Answer
from crewlite.agent.persona import Filling, Persona, Worker
from crewlite.encoding import codec
from crewlite.errors import ConfigError
from crewlite.lazy import lazy, load
from crewlite.runtime.steps.questions import FILE
from crewlite.system.forked import cached_property
from crewlite.task.output import TaskOutput
from crewlite.task.output_file import check_links, check_place, check_text
from crewlite.task.task import ConditionalTask, Task
from crewlite.tools.base import BaseTool
from crewlite.usage import NO_USAGE, Usage

if TYPE_CHECKING:
    from crewlite.agent import delegation, guarding, reasoning
    from crewlite.knowledge.passages import Passage
else:  # only for agents that delegate, for guardrails, and for agents that plan
    delegation, guarding = lazy("crewlite.agent.delegation"), lazy("crewlite.agent.guarding")
    reasoning = lazy("crewlite.agent.reasoning")


@dataclass(frozen=True)
class ContextItem:
    """The output of one task, as part of the context of others."""

    address: str
    name: str
    text: str
    skipped: bool = False
    """Whether the task was skipped, so that it has no text and is left out of prompts."""

    @cached_property
    def asked(self) -> list[str]:
        """Its part of what a task is asked that depends on it."""
        return [self.address, codec.digest(self.text)]

    @cached_property
    def prompt(self) -> str:
        """Its part of the prompt."""
        return f"## {self.name}\n{self.text}"


class Assignment:
    """A task with the agent that does it, the coworkers that may help, and the callbacks for its output.

    All kickoffs side by side share it, so what does not depend on their inputs is computed once, here.
    """

    def __init__(
        self,
        task: Task,
        worker: Worker,
        coworkers: tuple[Worker, ...] = (),
        task_callback: Callable[[TaskOutput], Any] | None = None,
    ) -> None:
        """`coworkers`: the workers to delegate to. `task_callback`: called with the output, after the task's own."""
        self.task, self.worker, self.coworkers = task, worker, coworkers
        self.title = task.title
        self.shape = task.shape
        self.budgets = *task.budgets, worker.budget
        agent = worker.agent
        self.tools = agent.may_use((*agent.tools, *task.tools))
        """The tools that the agent may use for the task, without those to delegate with."""
        self.plans = agent.plans
        """Whether the agent plans before its work."""
        own, of_crew = task.callback, task_callback
        callbacks = [("", own), ("task_callback", of_crew if of_crew is not own else None)]
        self.callbacks = [(role, callback) for role, callback in callbacks if callback]
        """The callbacks for the output, each with its role."""
        self.chain = task.chain
        guardrails = [rule_of(one) for one in (*agent.guardrails, *self.chain)]
        rules: dict[str, Any] = {"guardrails": guardrails} if guardrails else {}
        self.rules = rules | ({"markdown": True} if task.markdown else {})
        """The guardrails that models judge by, and the form of the text, where they are part of what the task asks."""
        load(*([guarding] if guardrails else []), *([delegation] if coworkers else []))
        if any(one.agent.plans for one in (worker, *coworkers)):
            load(reasoning)

    def filled(self, filling: Filling) -> FilledTask:
        """Fill in the placeholders. Raises MissingInput, and ConfigError if two agents then have the same role."""
        task, title, fill = self.task, self.title, filling.text
        where = f"Task {title!r}"
        output_file = fill(task.output_file, where) if task.output_file else None
        if output_file is not None:
            check_text(output_file, where, anywhere=task.output_file_anywhere)
        coworkers = tuple(map(filling.persona, self.coworkers))
        if coworkers:
            for problem in problems_of(where, [one.role for one in coworkers]):
                raise ConfigError(problem)
        filled = FilledTask(
            self,
            task,
            title,
            fill(task.description, where),
            fill(task.expected_output, where),
            output_file,
            filling.persona(self.worker),
            coworkers,
            {**filling.files, **task.input_files} if task.input_files else filling.files,
        )
        known = self.worker.known
        return filled._replace(passages=known.passages(filled.text)) if known else filled


class FilledTask(NamedTuple):
    """An assignment with its placeholders filled in."""

    assignment: Assignment
    task: Task
    title: str
    """The title of the task, for messages."""
    description: str
    expected_output: str
    output_file: str | None
    persona: Persona
    coworkers: tuple[Persona, ...]
    input_files: Mapping[str, str]
    """The task's and the kickoff's; of two with the same name, the task's."""
    passages: tuple[Passage, ...] = ()
    """The passages of its agent's knowledge that fit its text."""

    @property
    def text(self) -> str:
        """What it is about, in the words of its author."""
        return f"{self.description}\n{self.expected_output}"

    @property
    def tools(self) -> tuple[BaseTool, ...]:
        """The tools that the agent may use for the task."""
        own = self.assignment.tools
        return (*own, *delegation.delegation_tools(self.coworkers)) if self.coworkers else own

    def place(self) -> Path:
        """Return the absolute path of the output_file. Raises ConfigError if no file can be written there."""
        task, text = self.task, self.output_file or ""
        settings = {"anywhere": task.output_file_anywhere, "create_directory": task.create_directory}
        return check_place(text, f"Task {self.title!r}", **settings)

    def check_links(self) -> None:
        """Raise ConfigError if links lead its output_file out of the working directory."""
        if self.output_file:
            check_links(self.output_file, f"Task {self.title!r}", anywhere=self.task.output_file_anywhere)

    @property
    def guards(self) -> tuple[guarding.Guard, ...]:
        """The guardrails that the answer has to pass: that of the agent, then those of the task."""
        task, agent, role = self.task, self.persona.agent, self.persona.role
        if not (chain := self.assignment.chain) and agent.guardrail is None:
            return ()
        of_agent = [guarding.Guard(one, agent.guardrail_max_retries, f"agent {role!r}") for one in agent.guardrails]
        return (*of_agent, *(guarding.Guard(one, task.retries, f"task {self.title!r}") for one in chain))

    def asked(self, files: Sequence[InputFile] | None = None) -> list[Any]:
        """Return what the task asks, as plain JSON: its texts, its agent, its output schema and its condition.

        `files`: the input files as they were read; None reads them.
        """
        persona, shape, more = self.persona, self.assignment.shape, self.assignment.rules
        who = [persona.role, persona.goal, persona.backstory]
        condition = ["conditional"] if isinstance(self.task, ConditionalTask) else []
        if self.input_files:
            more = more | {"files": digests(read(self.input_files) if files is None else files)}
        if self.passages:
            more = more | {"knowledge": knowing.asked_about(self.passages)}
        shown = [self.description, self.expected_output, shape.schema if shape else None, who, *condition]
        return [*shown, more] if more else shown

    def question(self, sources: Sequence[ContextItem], files: Sequence[InputFile] | None = None) -> list[Any]:
        """Return what the task's step is asked (`Step.question`): `asked`, and the outputs that the task builds on."""
        return [*self.asked(files), list(map(attrgetter("asked"), sources))]

    def texts(self, files: Sequence[InputFile] = ()) -> dict[str, str]:
        """Return the texts that the task asks, to be recorded with its answer, and digests of files and passages."""
        who = self.persona
        texts = {"description": self.description, "expected_output": self.expected_output}
        texts |= {"role": who.role, "goal": who.goal, "backstory": who.backstory}
        texts |= {f"{FILE}{file.name!r}": file.digest or "" for file in files}
        return texts | knowing.digests(self.passages) if self.passages else texts

    def output(self, answer: Answer, usage: Usage = NO_USAGE) -> TaskOutput:
        """Return the answer as the output of the task."""
        value = answer.value
        return TaskOutput(
            name=self.task.name,
            description=self.description,
            expected_output=self.expected_output,
            raw=answer.text,
            pydantic=None if self.task.output_json else value,
            json_dict=value.model_dump(mode="json") if value and self.task.output_json else None,
            agent=self.persona.role,
            token_usage=usage,
        )

    def file_text(self, output: TaskOutput) -> str:
        """Return the content of the output_file: of a structured answer only the JSON, not the text around it."""
        shape = self.assignment.shape
        return shape.json_in(output.raw) if shape else output.raw

    def skipped(self) -> TaskOutput:
        """Return the output of the task if its condition says that it is not done."""
        return self.output(Answer("")).model_copy(update={"skipped": True})

    def output_of(self, data: Any, usage: Usage = NO_USAGE) -> TaskOutput:
        """Decode a recorded output; a structured answer becomes an object of the class that the task has now."""
        if data.get("skipped"):
            return self.skipped()
        shape, text = self.assignment.shape, data["raw"]
        value = shape.recorded(text, f"task {self.title!r}") if shape else None
        return self.output(Answer(text, value), usage)
