"""What an agent is told of the failure before this attempt at its work: by its prompt, and by the tools it has."""

from __future__ import annotations

from collections.abc import Sequence

from crewlite import templates
from crewlite.agent.shape import PROMPTS
from crewlite.llm import parts
from crewlite.llm.base import Message
from crewlite.recovery import FailureType, Remedy
from crewlite.recovery.types import RecoveryContext
from crewlite.tools.base import BaseTool
from crewlite.tools.toolbox import permitted


def told(messages: list[Message], tools: Sequence[BaseTool], recovery: RecoveryContext | None) -> list[Message]:
    """Return the messages, with what is told of the failure before this attempt at the running step, if there was one.

    `tools`: those that the agent is offered in this attempt. `recovery`: that of the running step.
    """
    if recovery is None:
        return messages
    lists_tools = recovery.tools is not None or recovery.failure_type is FailureType.WRONG_TOOL_CALLED
    names = [tool.name for tool in tools] if lists_tools else []
    text = templates.render(PROMPTS, "recovery.j2", recovery=recovery, tools=names)
    if messages and messages[-1].get("role") == "user":
        last = messages[-1]
        content = parts.changed(last["content"], lambda before: f"{before}\n\n{text}")
        return [*messages[:-1], {**last, "content": content}]
    return [*messages, {"role": "user", "content": text}]


def offered(tools: tuple[BaseTool, ...], recovery: RecoveryContext) -> tuple[BaseTool, ...]:
    """Return the tools that this attempt at the running step may call. `recovery`: that of the step."""
    return permitted(tools, recovery.tools)


def refused(tools: Sequence[BaseTool], remedy: Remedy) -> str:
    """Return why an agent with these tools cannot work as a remedy says: it would have none of them. "" if it can."""
    names = remedy.tools
    if not tools or not names or permitted(tools, names):
        return ""
    known = ", ".join(tool.name for tool in tools)
    return f"The next attempt may call only {', '.join(names)}, and the agent has none of these. Its tools are {known}"
