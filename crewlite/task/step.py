"""A task as a recorded step: the agent answers, the output file is written, the callbacks run, the step is finished."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import filterfalse
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from crewlite import durable, events, kinds
from crewlite.agent import input_files, knowing
from crewlite.agent.approval import feedback
from crewlite.agent.input_files import InputFile
from crewlite.agent.loop import Answer, work
from crewlite.agent.opening import opened, refused
from crewlite.agent.shape import PROMPTS, wanted
from crewlite.concurrency import background
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.errors import AnswerRefused, ConfigError, Suspended, text_of
from crewlite.events.family import FamilyEvents
from crewlite.lazy import lazy
from crewlite.llm.base import Message
from crewlite.llm.parts import with_pictures
from crewlite.runtime.steps.callbacks import call_back, callback_step, called
from crewlite.step_parts import Drift, Policies
from crewlite.task.assignment import ContextItem, FilledTask
from crewlite.task.output import TaskOutput
from crewlite.task.output_file import write
from crewlite.task.task import ConditionalTask
from crewlite.texts import templates
from crewlite.usage import Usage

if TYPE_CHECKING:
    from crewlite.agent import guarding, reasoning
else:  # only for tasks and agents that say so: an assignment loads them
    guarding, reasoning = lazy("crewlite.agent.guarding"), lazy("crewlite.agent.reasoning")

_EVENTS = events.TaskStartedEvent, events.TaskCompletedEvent, events.TaskFailedEvent
_NO = ("no", "n", "false", "0", "none")
"""Texts that say no."""


class Given(NamedTuple):
    """What a task gets from the tasks before it and from its crew."""

    context: Sequence[ContextItem] = ()
    """The outputs of the tasks in its context."""
    sources: Sequence[ContextItem] = ()
    """The outputs that its own outcome depends on."""
    previous: TaskOutput | None = None
    """The output that its condition is called with."""
    plan: str = ""
    """The plan for the task, as text; "" for none."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the tasks whose outputs its agent is shown."""
        return tuple(map(attrgetter("address"), self._shown()))

    @property
    def prompt(self) -> str:
        """The outputs that its agent is shown, as a part of its prompt."""
        return "\n\n".join(map(attrgetter("prompt"), self._shown()))

    def _shown(self) -> Iterator[ContextItem]:
        return filterfalse(attrgetter("skipped"), self.context)


def task_step(
    filled: FilledTask, given: Given, used: Callable[[], Usage], *, address: str | None, drift: Drift
) -> Step[TaskOutput]:
    """Build the step of a task. What the step is asked is FilledTask.question.

    `used`: returns the recorded usage of the task, with which its recorded output is made, rather than copied.
    """
    task, agent = filled.task, filled.persona.agent
    files = input_files.read(filled.input_files) if filled.input_files else ()

    async def act() -> TaskOutput:
        if isinstance(task, ConditionalTask) and not await _holds(filled.title, task.condition, given.previous):
            return filled.skipped()
        if files:
            input_files.check(files, f"Task {filled.title!r}")
        if filled.output_file:  # before the model is paid
            await background.in_thread(filled.place)
        output = filled.output(await _agent(filled, given, files), durable.scope().usage)
        if filled.output_file:
            scope, place = durable.scope(), await background.in_thread(filled.place)  # a tool may have made a link
            await background.in_thread(write, place, scope.mask(filled.file_text(output)), scope.idempotency_key)
        for role, callback in filled.assignment.callbacks:
            await call_back(callback, output, [codec.digest(output.raw)], role=role)
        return output

    return Step(
        kind=kinds.TASK,
        name=task.name,
        work=act,
        question=filled.question(given.sources, files),
        texts=filled.texts(files),
        events=FamilyEvents(
            task,
            _EVENTS,
            {"task_name": task.name, "agent_role": filled.persona.role},
            of_start=lambda: {
                "description": filled.description,
                "expected_output": filled.expected_output,
                "context": given.addresses if given.context else (),
            },
            of_outcome=lambda output: {"output": output},
        ),
        encode=_encoded,
        decode=lambda data: filled.output_of(data, used()),
        with_usage=_with_usage,
        placeholder=lambda: filled.output(Answer("")),
        address=address,
        budgets=filled.assignment.budgets,
        policies=Policies(
            own=agent.retries,
            inherits=True,
            inside=task.failure_policy or agent.failure_policy,
            overruled=agent.failure_policy,
            refuses=lambda remedy: refused(filled.tools, remedy),
        ),
        drift=drift,
        checkpoint=agent.checkpoint if task.checkpoint is None else task.checkpoint,
    )


def _with_usage(output: TaskOutput, usage: Usage) -> TaskOutput:
    return output if output.token_usage is usage else output.model_copy(update={"token_usage": usage})


def _encoded(output: TaskOutput) -> Any:
    return {"raw": output.raw, "agent": output.agent} | ({"skipped": True} if output.skipped else {})


async def _holds(title: str, condition: Callable[[TaskOutput], Any], previous: TaskOutput | None) -> bool:
    """Call the condition of a task in a recorded step, and return whether the task is to be done.

    Raises ConfigError for a text that says no, as any text but "" counts as true. `title`: of the task.

    The step has the same address in every attempt at the task, and whatever the name of the function is, so the first
    verdict holds.
    """

    async def act() -> bool:
        verdict = await called(condition, previous)
        if isinstance(verdict, str) and verdict.strip().lower() in _NO:
            problem = f"its condition returned the text {verdict!r}, which counts as true; return True or False"
            raise ConfigError(f"task {title!r}: {problem}")
        return bool(verdict)

    asked = [codec.digest(previous.raw if previous else "")]
    step = callback_step(condition, act, asked, kind=kinds.CONDITION, name="condition")
    address = f"{durable.scope().address}/{kinds.CONDITION.name}#1"
    verdict: bool = await durable.scope().step(dataclasses.replace(step, address=address))
    return verdict


async def _agent(filled: FilledTask, given: Given, files: Sequence[InputFile]) -> Answer:
    """Have the agent answer, between the events of its start and its end."""
    task, persona, scope = filled.task, filled.persona, durable.scope()
    shape, title = filled.assignment.shape, f"task {filled.title!r}"
    said: dict[str, Any] = {"agent_role": persona.role, "task_name": task.name}
    prompt = templates.render(
        PROMPTS,
        "task.j2",
        description=filled.description,
        expected_output=filled.expected_output,
        context=given.prompt if given.context else "",
        plan=given.plan,
        markdown=task.markdown,
        knowledge=knowing.shown(filled.passages) if filled.passages else "",
        files=input_files.shown(files) if files else "",
        shape=wanted(shape) if shape else "",
    )
    content: Any = with_pictures(prompt, input_files.pictures(files)) if files else prompt
    asked: list[Message] = [{"role": "user", "content": content}]
    recovery, tools = scope.recovery(), filled.tools
    job = opened(persona, asked, title=title, tools=tools, shape=shape, task=task, recovery=recovery)
    talk, agent, chain = list(job.messages), persona.agent, filled.guards
    answers = partial(guarding.accepted, job, talk, chain, filled.output) if chain else partial(work, job, talk)
    about = {**said, "tools": tuple(map(attrgetter("name"), job.tools)), "task_prompt": prompt}
    said["started_event_id"] = await scope.announce(agent, events.AgentExecutionStartedEvent, about)
    if persona.known:
        await knowing.announce(agent, persona.role, filled.text, filled.passages, task.name)
    try:
        if filled.assignment.plans:
            await reasoning.prepare(job, talk)
        answer = await answers()
        while task.human_input and (wish := await feedback(answer.text, f"{persona.role} ({title})")):
            talk.append({"role": "user", "content": wish})
            answer = await answers()
    except (Suspended, AnswerRefused):
        raise
    except Exception as error:
        said |= {"error": text_of(error), "error_type": type(error).__qualname__}
        await scope.announce(agent, events.AgentExecutionErrorEvent, said)
        raise
    await scope.announce(agent, events.AgentExecutionCompletedEvent, {**said, "output": answer.text})
    return answer
