"""Ask people about the work of an agent: to approve tool calls, and to comment on answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from crewlite import durable
from crewlite.durable import Step
from crewlite.runtime.people.human import ask, put
from crewlite.runtime.people.question import Question
from crewlite.tools import approval
from crewlite.tools.approval import Verdict
from crewlite.tools.call import PlannedCall
from crewlite.tools.result import ToolResult


async def make(calls: Sequence[PlannedCall], role: str) -> list[ToolResult]:
    """Make the tool calls of a model's reply side by side. A person first approves those whose tools require it.

    Each call is made once it is approved, even if others still wait. All are requested here, in their order, so that
    the next model call gets the results in this order, whoever answers first.
    """
    begun = [_approved(call, role) if call.decided else call.make() for call in calls]
    for call in calls:
        if call.decided:
            durable.scope().expect(call.address)
    return await _together(begun)


async def _together(work: Sequence[Awaitable[ToolResult]]) -> list[ToolResult]:
    """Await all, and return their results. If one fails, the others finish first; then raises the first failure."""
    if len(work) == 1:
        return [await work[0]]
    return [_returned(result) for result in await asyncio.gather(*work, return_exceptions=True)]


def _returned(result: ToolResult | BaseException) -> ToolResult:
    if isinstance(result, BaseException):
        raise result
    return result


def _approved(call: PlannedCall, role: str) -> Awaitable[ToolResult]:
    assert call.tool
    assert call.decided
    arguments = json.dumps(call.arguments, ensure_ascii=False, default=str)
    question = Question(
        f"{role} wants to call {call.tool.name} with {arguments}. Allow it?",
        bool,
        wider=(approval.schema_of(call.tool), approval.verdict_of),
        check=partial(approval.check, call.tool, call.arguments),
        is_approval=True,
    )
    return _once_decided(call.decided, put(question, call.tool.safe_name, call.address))


async def _once_decided(decided: Callable[[Verdict], Step[ToolResult]], verdict: Awaitable[Verdict]) -> ToolResult:
    return await durable.scope().step(decided(await verdict))


async def feedback(answer: str, who: str) -> str:
    """Ask a person what should be different in an answer, and return that; "" for nothing."""
    said: str = await ask(f"{who} answers:\n\n{answer}\n\nWhat should be different? (nothing: leave it empty)")
    return said.strip()
