"""The loop of an agent: call the model and make the tool calls that it requests, until it answers.

The conversation is never stored: a resume rebuilds it from the definition and the recorded replies and results.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from crewlite import durable, events
from crewlite.agent.agent import Agent
from crewlite.agent.approval import make
from crewlite.agent.persona import Persona
from crewlite.agent.shape import PROMPTS, Misshapen, Shape, schema_text, wanted
from crewlite.agent.steps import AgentAction, AgentFinish
from crewlite.agent.summary import summarised
from crewlite.encoding import codec
from crewlite.errors import MaxIterations, OutputInvalid
from crewlite.llm.base import OVERFLOW, REMINDER, BaseLLM, LLMReply, Message
from crewlite.llm.call import call_step
from crewlite.runtime.steps.callbacks import call_back
from crewlite.step_parts import Intent
from crewlite.texts import templates
from crewlite.tools.base import BaseTool
from crewlite.tools.call import PlannedCall
from crewlite.tools.pictures import AddImage, picture_message
from crewlite.tools.plan import plan_calls
from crewlite.tools.result import shortened
from crewlite.tools.toolbox import Toolbox

M = TypeVar("M", bound=BaseModel)
_TRIES = 3  # answers, before one that does not fit is given up
_OF_A_FORM = 5  # replies that an answer of `answer_as` may take


@dataclass(frozen=True, slots=True)
class Work:
    """The work for one agent, with its texts filled in. Further settings are those of the agent."""

    persona: Persona
    messages: tuple[Message, ...]
    """The messages with which the conversation opens."""
    tools: tuple[BaseTool, ...] = ()
    shape: Shape | None = None
    title: str = ""
    """The name of the work in errors and logs."""
    task: object | None = None
    """The Task, for models that want to know; None without one."""
    max_iter: int | None = None
    """The greatest number of replies of the model; None for that of the agent."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The final answer of an agent or of its tool, as text and, with an output schema, as an object."""

    text: str
    value: BaseModel | None = None


async def work(job: Work, talk: list[Message] | None = None) -> Answer:
    """Do the work, and return the answer. Raises MaxIterations, OutputInvalid, InDoubt, and what the model raises.

    When all replies are used up, the model is asked for a last one without tools. `talk`: the conversation to continue,
    to which new messages are added; None begins one.
    """
    agent, misfits, scope = job.persona.agent, 0, durable.scope()
    calls = list[PlannedCall]()

    def intends(reply: LLMReply) -> list[Intent]:
        """Plan the tool calls that a reply requests; return them, to be recorded with the reply."""
        asked, allowed = reply.tool_calls, agent.allowed_tools
        calls[:] = plan_calls(scope, asked, Toolbox(job.tools, allowed), job.persona) if asked else ()
        return [call.intent for call in calls]

    messages = list(job.messages) if talk is None else talk
    if agent.verbose:
        begins = {"agent_role": job.persona.role, "task_description": job.title}
        await scope.announce(agent, events.AgentLogsStartedEvent, begins)
    limit, shown = job.max_iter or agent.max_iter, Toolbox(job.tools).schemas if job.tools else []
    for _ in range(limit):
        calls.clear()
        reply = await _ask(job, messages, shown, intends)
        if reply.tool_calls and not calls:  # the reply came from the record
            intends(reply)
        messages.append(reply.as_message())
        answer = await _make_calls(job, messages, reply, calls) if calls else reply.text
        if answer is None:
            continue
        try:
            return await _accept(job, answer, reply)
        except Misshapen as problem:
            assert job.shape
            misfits += 1
            if misfits == _TRIES:
                raise OutputInvalid(job.title, str(problem), tries=misfits) from None
            messages.append(mending(problem, job.shape))
    reply = await _ask(job, [*messages, last_call(job.shape)])
    if reply.tool_calls:
        raise MaxIterations(job.persona.role, limit)
    messages.append(reply.as_message())
    try:
        return await _accept(job, reply.text, reply)
    except Misshapen as problem:
        raise OutputInvalid(job.title, str(problem), tries=misfits + 1) from None


async def answer_as(
    form: type[M], llm: BaseLLM, messages: Sequence[Message], *, role: str, title: str, verbose: bool, at: int = -1
) -> M:
    """Return the answer of the model as an instance of the class `form`. `title` names the work in errors.

    The message number `at` is made to tell of the schema. Raises MaxIterations, OutputInvalid, and what the model
    raises.
    """
    shape, asked = Shape(form), list(messages)
    asked[at] = {**asked[at], "content": f"{asked[at]['content']}\n\n{wanted(shape)}"}
    agent = Agent(role=role, goal=title, max_iter=_OF_A_FORM, verbose=verbose)
    persona = Persona(agent, llm, agent.role, agent.goal, agent.backstory)
    answer = await work(Work(persona, tuple(asked), shape=shape, title=title))
    assert isinstance(answer.value, form)
    return answer.value


async def _make_calls(job: Work, messages: list[Message], reply: LLMReply, calls: Sequence[PlannedCall]) -> str | None:
    """Make the calls of a reply, and add their results to the messages.

    Return the first result of a tool that answers by itself; None if there is none.
    """
    made = list(zip(calls, await make(calls, job.persona.role), strict=True))
    limit = job.persona.agent.max_tool_output
    messages += [tool_message(call.id, call.name, result.told, call.address, limit) for call, result in made]
    messages += [
        picture_message(call.arguments) for call, result in made if isinstance(call.tool, AddImage) and not result.error
    ]
    if callback := job.persona.step_callback:
        for call, result in made:
            asked = json.dumps(call.arguments, ensure_ascii=False, default=str)
            await _tell(callback, AgentAction(reply.text, call.name, asked, _shown(reply), result.text))
    return next((result.text for call, result in made if call.answers(result)), None)


async def _accept(job: Work, text: str, reply: LLMReply) -> Answer:
    """Return a text as the answer, and call the step_callback. Raises Misshapen if the text does not fit the schema."""
    value = job.shape.read(text) if job.shape else None
    if callback := job.persona.step_callback:
        await _tell(callback, AgentFinish("", text, reply.text))
    return Answer(text, value)


async def _tell(callback: Callable[[Any], Any], step: AgentAction | AgentFinish) -> None:
    await call_back(callback, step, [codec.digest(dataclasses.asdict(step))], role="step_callback")


def tool_message(identifier: str, name: str, text: str, address: str, limit: int | None) -> Message:
    """Build the message with the result of a tool. `limit`: the number of characters that the model is shown."""
    return {"role": "tool", "tool_call_id": identifier, "name": name, "content": shortened(text, limit, address)}


def mending(problem: Misshapen, shape: Shape) -> Message:
    """Build the message that tells the model why its answer does not fit the schema, and what would."""
    text = templates.render(PROMPTS, "mend.j2", problem=problem, schema=schema_text(shape))
    return {"role": "user", "content": text}


def last_call(shape: Shape | None) -> Message:
    """Build the message that asks for the final answer, as the agent has used up its replies."""
    text = templates.render(PROMPTS, "last_call.j2", schema=schema_text(shape) if shape else "")
    return {"role": "user", "content": text, "name": REMINDER}


async def _ask(
    job: Work,
    messages: list[Message],
    tools: Sequence[dict[str, Any]] = (),
    intends: Callable[[LLMReply], Sequence[Intent]] | None = None,
) -> LLMReply:
    """Get one reply to the conversation. If that does not fit the model any more, replace it by a summary first."""
    persona, agent = job.persona, job.persona.agent
    schema = copy.deepcopy(job.shape.schema) if job.shape else None  # a model may change what it is given
    while True:
        call = call_step(
            persona.llm,
            messages,
            tools=tools,
            agent=persona.role,
            response_schema=schema,
            template=_version(agent),
            may_overflow=agent.respect_context_window,
            intends=intends,
            source=agent,
            task=job.task,
        )
        reply = await durable.scope().step(call)
        if reply.finish_reason != OVERFLOW:
            break
        messages[:] = await summarised(persona, messages, len(job.messages), reply.text)
    if agent.verbose:
        about = {"agent_role": persona.role, "formatted_answer": _shown(reply)}
        await durable.scope().announce(agent, events.AgentLogsExecutionEvent, about)
    return reply


def _version(agent: Agent) -> str:
    """Return the version of the prompts for the agent, with a digest of its own templates, to be recorded."""
    own = [agent.system_template, agent.prompt_template, agent.response_template]
    version = templates.version(PROMPTS, "system.j2")
    return f"{version}.{codec.digest(own)[:8]}" if any(own) else version


def _shown(reply: LLMReply) -> str:
    """Return the text of a reply; of a reply without text, the calls that it requests."""
    return reply.text or ", ".join(f"{call.name}({call.arguments})" for call in reply.tool_calls)
