"""What opens a conversation: the agent's role, the date and the user's messages, in its own templates.

After a failed attempt also what the agent is told of that, and which tools it is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from crewlite import durable
from crewlite.agent.loop import Work
from crewlite.agent.persona import Persona
from crewlite.agent.shape import PROMPTS, Shape
from crewlite.llm import parts
from crewlite.llm.base import Message
from crewlite.recovery import Remedy
from crewlite.recovery.types import RecoveryContext
from crewlite.texts import templates
from crewlite.tools.base import BaseTool
from crewlite.tools.toolbox import permitted


def opened(
    persona: Persona,
    messages: Sequence[Message],
    *,
    title: str,
    tools: tuple[BaseTool, ...] | None = None,
    shape: Shape | None = None,
    say: str = "",
    began: datetime | None = None,
    task: object | None = None,
    recovery: RecoveryContext | None = None,
) -> Work:
    """Build the work of answering messages: they follow a text about the agent's role, to which `say` is added.

    `tools`: None takes the agent's own. `began`: the time at which the run began; None takes that of the running step.
    `recovery`: what the agent is told of the failed attempt before this one, which may leave it fewer tools. Raises
    ConfigError for a template that cannot be rendered.
    """
    agent, asked = persona.agent, list(messages)
    has = agent.may_use(agent.tools) if tools is None else tools
    if recovery:
        has = permitted(has, recovery.tools)
        asked = with_recovery(asked, has, recovery)
    who = "\n\n".join(filter(None, (_who(persona, has, began), say)))
    if agent.prompt_template:
        asked = [_in_template(persona, message) for message in asked]
    if asked and agent.response_template:
        start = _response_start(persona)
        asked[-1] = _changed(asked[-1], lambda text: f"{text}{start}")
    opening = [{"role": "system", "content": who}, *asked] if agent.use_system_prompt else _before(asked, who)
    return Work(persona, tuple(opening), has, shape, title, task)


def with_recovery(
    messages: list[Message], tools: Sequence[BaseTool], recovery: RecoveryContext | None
) -> list[Message]:
    """Return the messages, with a text about the failed attempt before this one at the running step, if there was one.

    `tools`: those that the agent is offered in this attempt. `recovery`: that of the running step.
    """
    if recovery is None:
        return messages
    names = [tool.name for tool in tools] if recovery.lists_tools else []
    text = templates.render(PROMPTS, "recovery.j2", recovery=recovery, tools=names)
    if messages and messages[-1].get("role") == "user":
        return [*messages[:-1], _changed(messages[-1], lambda before: f"{before}\n\n{text}")]
    return [*messages, {"role": "user", "content": text}]


def refused(tools: Sequence[BaseTool], remedy: Remedy) -> str:
    """Return why an agent with these tools cannot work as a remedy says: it would have none of them. "" if it can."""
    names = remedy.tools
    if not tools or not names or permitted(tools, names):
        return ""
    known = ", ".join(tool.name for tool in tools)
    return f"The next attempt may call only {', '.join(names)}, and the agent has none of these. Its tools are {known}"


def _who(persona: Persona, tools: Sequence[BaseTool], began: datetime | None) -> str:
    agent, today = persona.agent, ""
    if agent.inject_date:
        today = (began or durable.scope().began).astimezone().strftime(agent.date_format)
    who = _system_prompt(persona.role, persona.goal, persona.backstory, bool(tools), today)
    return _rendered(persona, "system_template", System=who) if agent.system_template else who


@lru_cache(maxsize=256)
def _system_prompt(role: str, goal: str, backstory: str, tools: bool, today: str) -> str:
    return templates.render(PROMPTS, "system.j2", role=role, goal=goal, backstory=backstory, tools=tools, today=today)


def _in_template(persona: Persona, message: Message) -> Message:
    if message.get("role") != "user":
        return message
    return _changed(message, lambda text: _rendered(persona, "prompt_template", Prompt=text))


def _response_start(persona: Persona) -> str:
    """Return the text that response_template puts before the model's answer."""
    mark = "\0"
    return _rendered(persona, "response_template", Response=mark).partition(mark)[0]


def _before(messages: list[Message], who: str) -> list[Message]:
    """Return the messages with a text at their beginning, in the first of them if that is the user's."""
    if messages and messages[0].get("role") == "user":
        first = _changed(messages[0], lambda text: f"{who}\n\n{text}")
        if first != messages[0]:
            return [first, *messages[1:]]
    return [{"role": "user", "content": who}, *messages]


def _changed(message: Message, change: Callable[[str], str]) -> Message:
    return {**message, "content": parts.changed(message["content"], change)}


def _rendered(persona: Persona, field: str, **values: Any) -> str:
    known = {"role": persona.role, "goal": persona.goal, "backstory": persona.backstory, **values}
    return templates.render_template(getattr(persona.agent, field), known, f"{field} of agent {persona.agent.role!r}")
