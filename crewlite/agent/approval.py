"""People between an agent and what it wants to do: calls that wait for a yes, answers that wait for a word."""

from __future__ import annotations

import json
from functools import partial

from crewlite import durable
from crewlite.runtime.human import Question, ask, put
from crewlite.tools import approval
from crewlite.tools.call import PlannedCall
from crewlite.tools.result import ToolResult


async def make(call: PlannedCall, role: str) -> ToolResult:
    """Make a call; first have a person approve it, if its tool wants that."""
    if call.decided is None or call.tool is None:
        return await call.make()
    arguments = json.dumps(call.arguments, ensure_ascii=False, default=str)
    question = Question(
        f"{role} wants to call {call.tool.name} with {arguments}. Allow it?",
        bool,
        wider=(approval.schema_of(call.tool), approval.verdict_of),
        check=partial(approval.check, call.tool, call.arguments),
        is_approval=True,
    )
    return await durable.scope().step(call.decided(await put(question, call.tool.safe_name, call.address)))


async def feedback(answer: str, who: str) -> str:
    """What a person wants to be different in an answer; "" for nothing."""
    said: str = await ask(f"{who} answers:\n\n{answer}\n\nWhat should be different? (nothing: leave it empty)")
    return said.strip()
