"""People between an agent and what it wants to do: calls that wait for a yes, answers that wait for a word."""

from __future__ import annotations

import dataclasses
import json

from crewlite import durable
from crewlite.runtime.human import ask
from crewlite.tools.call import PlannedCall
from crewlite.tools.result import ToolResult


async def make(call: PlannedCall, role: str) -> ToolResult:
    """Make a call; first have a person approve it, if its tool wants that."""
    if call.refused is None or call.tool is None:
        return await call.make()
    arguments = json.dumps(call.arguments, ensure_ascii=False, default=str)
    yes = await ask(
        f"{role} wants to call {call.tool.name} with {arguments}. Allow it?", bool, name=call.tool.safe_name
    )
    if not yes:
        refused = call.refused(f"A person did not allow this call of {call.tool.safe_name}. Go on without it.")
        call = dataclasses.replace(call, step=refused)
    return await durable.scope().step(call.step)


async def feedback(answer: str, who: str) -> str:
    """What a person wants to be different in an answer; "" for nothing."""
    said: str = await ask(f"{who} answers:\n\n{answer}\n\nWhat should be different? (nothing: leave it empty)")
    return said.strip()
