"""What is to become of the calls that a reply asks for: made, answered with an earlier result, or refused.

All of it is decided in call order before the first one is made, and what is to be made is recorded together with the
reply. So calls that go on side by side cannot slip through a limit, and a resumed run decides as it did: what was
begun once is made, whatever else has been recorded since.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from crewlite import events
from crewlite.durable import Scope, Step, StepEvents
from crewlite.events.base import BaseEvent
from crewlite.llm.base import ToolCall
from crewlite.llm.tool_arguments import UNREAD
from crewlite.recovery.guards import guards_inside
from crewlite.step_parts import Call, Effect, Intent
from crewlite.tools.approval import Verdict, changed
from crewlite.tools.base import BaseTool, as_text, misfit
from crewlite.tools.call import Made, PlannedCall, call_step, guarded, question_of, refused, reused, use
from crewlite.tools.naming import address_name
from crewlite.tools.result import ToolResult, key_of
from crewlite.tools.toolbox import Toolbox

_Work = Callable[[], Awaitable[ToolResult]]
_ToolStep = Step[ToolResult]
_SHOWN = 40  # characters of what could not be read
_TOO_DEEP = "not a JSON object that can be read: it is nested too deeply. Send a flatter one"


class Named(Protocol):
    """The agent that calls."""

    @property
    def agent(self) -> object:
        """The live agent."""

    @property
    def role(self) -> str:
        """What it is called."""


def plan_calls(scope: Scope, calls: Sequence[ToolCall], tools: Toolbox, caller: Named) -> list[PlannedCall]:
    """Reserve the addresses of the calls in a reply, and decide what becomes of each."""
    plan = _Plan(scope, tools, caller)
    return [plan.decide(call, number) for number, call in enumerate(calls, 1)]


class _Plan:
    """The calls of one reply, as far as they are decided."""

    def __init__(self, scope: Scope, tools: Toolbox, caller: Named) -> None:
        self._scope, self._tools, self._caller = scope, tools, caller
        self._granted: defaultdict[str, set[str]] = defaultdict(set)
        """Addresses of calls of this reply that are to be made, by tool: no record has them yet."""

    def decide(self, call: ToolCall, number: int) -> PlannedCall:
        tool, label = self._tools.find(call.name), call.id or f"call_{number}"
        once = question_of(call) if tool and tool.effect == "once" and not tool.requires_approval else None
        address = self._scope.reserve_address("tool", address_name(call.name), once)
        about = {"tool_name": call.name, "tool_args": call.arguments, "agent_role": self._caller.role}
        asked = _Asked(call, label, address, tool, about, self._caller.agent)
        if tool is None:
            return asked.refused(self._tools.missing(call.name))
        about["tool_name"] = tool.name
        if problem := _misfit(call, tool):
            return asked.refused(problem, events.ToolValidateInputErrorEvent)
        about["tool_class"] = type(tool).__name__
        begun, earlier_calls = self._earlier(tool)
        if address not in begun:
            if earlier := _reusable(tool, call, address, earlier_calls):
                return asked.planned(asked.step(_giving(earlier), reused(tool, about, "from_cache")))
            if tool.max_usage_count is not None and len(begun) >= tool.max_usage_count:
                return asked.refused(_used_up(tool))
        self._granted[tool.name].add(address)
        made = Made(tool, about, self._scope.in_doubt(address))
        step = asked.step(lambda: use(tool, call, about), made, tool.effect)
        guards = guards_inside(self._scope.guards, tool.failure_policy)
        seen = guarded(self._scope, tool, call, address) if guards else None
        if not tool.requires_approval and not (seen and any(guard.asks(seen) for guard in guards)):
            return asked.planned(step, tool.effect)
        return asked.planned(step, decided=partial(asked.decided, tool, step, made))

    def _earlier(self, tool: BaseTool) -> tuple[set[str], Sequence[Call]]:
        """Return the addresses of the tool's calls that the run has begun, and the recorded calls.

        Both are empty for a tool with neither a limit nor a cache_function, as nothing depends on them then.
        """
        if tool.max_usage_count is None and tool.cache_function is None:
            return set(), ()
        found = self._scope.calls("tool", {address_name(tool.name), tool.safe_name})
        return {call.address for call in found} | self._granted[tool.name], found


@dataclass(frozen=True, slots=True)
class _Asked:
    call: ToolCall
    label: str
    address: str
    tool: BaseTool | None
    about: dict[str, Any]
    """The fields that all events of the call share."""
    agent: object

    def step(self, work: _Work, emitted: StepEvents, effect: Effect = "none", instead: Sequence[Any] = ()) -> _ToolStep:
        return call_step(self.call, self.address, self.tool, work, emitted, effect, instead=instead)

    def planned(
        self, step: _ToolStep, effect: Effect | None = None, decided: Callable[[Verdict], _ToolStep] | None = None
    ) -> PlannedCall:
        intent = Intent(self.address, effect, step.question)
        return PlannedCall(self.label, self.call.name, self.tool, step, intent, self.call.arguments, decided)

    def refused(
        self, problem: str, event: type[BaseEvent] = events.ToolSelectionErrorEvent, instead: Sequence[Any] = ()
    ) -> PlannedCall:
        result = ToolResult(problem, event.__name__.removesuffix("Event"))
        return self.planned(self.step(_giving(result), refused(self.agent, self.about, event), instead=instead))

    def decided(self, tool: BaseTool, step: _ToolStep, made: Made, verdict: Verdict) -> _ToolStep:
        """Return the step of the call as a person decided it. `step` and `made` are those that the model asked for."""
        if verdict is True:
            return step
        if verdict is False:
            problem = f"A person did not allow this call of {tool.safe_name}. Go on without it."
            return self.refused(problem, instead=["not allowed"]).step
        if "answer" in verdict:
            answer, by_person = verdict["answer"], reused(tool, self.about, "from_person")
            return self.step(_giving(ToolResult(as_text(answer))), by_person, instead=["answered", answer])
        other = ToolCall(self.call.name, changed(self.call.arguments, verdict), self.call.id)
        if other.arguments == self.call.arguments:
            return step
        about = {**self.about, "tool_args": other.arguments}
        note = f"A person changed the arguments: {json.dumps(other.arguments, ensure_ascii=False, default=str)}"

        async def work() -> ToolResult:
            return dataclasses.replace(await use(tool, other, about), note=note)

        step = dataclasses.replace(self, call=other).step(work, Made(tool, about, made.in_doubt), tool.effect)
        return dataclasses.replace(step, answer=lambda value: ToolResult(as_text(value), note=note))


def _giving(result: ToolResult) -> _Work:
    async def give() -> ToolResult:
        return result

    return give


def _reusable(tool: BaseTool, call: ToolCall, address: str, ended: Sequence[Call]) -> ToolResult | None:
    """Return the first result of the run that may answer this call; None without one.

    The text is copied and not referred to, because the step that recorded it may run again.
    """
    if tool.cache_function is None:
        return None
    key = key_of(tool.description, call.arguments)
    for earlier in ended:
        kept = earlier.outcome if isinstance(earlier.outcome, dict) else {}
        if earlier.address != address and kept.get("reusable") == key and isinstance(kept.get("text"), str):
            return ToolResult(kept["text"], reusable=key, cached=kept.get("cached") or earlier.address)
    return None


def _used_up(tool: BaseTool) -> str:
    limit = tool.max_usage_count
    times = "once" if limit == 1 else f"{limit} times"
    return (
        f"Tool {tool.safe_name} was used {times} in this run, which is its limit (max_usage_count={limit}), so it was "
        f"not called. Go on without it."
    )


def _misfit(call: ToolCall, tool: BaseTool) -> str | None:
    """Return what is wrong with the arguments, for the model to read; None if they fit."""
    if len(call.arguments) == 1 and (key := next(iter(call.arguments))) in UNREAD and key not in tool.takes:
        why = _TOO_DEEP if key == UNREAD[2] else _unread(str(call.arguments[key]))
        return f"The arguments for {tool.safe_name} were {why}. {_takes(tool)}"
    problem = misfit(tool, call.arguments)
    return f"The arguments do not fit {tool.safe_name}: {problem}. {_takes(tool)}" if problem else None


def _takes(tool: BaseTool) -> str:
    return f"It takes: {', '.join(tool.takes) or 'no arguments'}."


def _unread(text: str) -> str:
    """Return why this text is no JSON object, and where reading it failed, for the model to read."""
    try:
        read = json.loads(text)
    except json.JSONDecodeError as problem:
        if problem.msg.startswith("Unterminated") or problem.pos >= len(text.rstrip()):
            return f"not a JSON object: they break off after {text.rstrip()[-_SHOWN:]!r}. Send them again, whole"
        after = text[: problem.pos][-_SHOWN:]
        at = f"at character {problem.pos + 1}, after {after!r}" if after.strip() else f"at {text[:_SHOWN]!r}"
        return f"not a JSON object: {problem.msg} {at}. Send them again as one JSON object"
    except RecursionError:
        return _TOO_DEEP
    except ValueError:  # of Python's limit on the digits of a number
        most = f"{sys.get_int_max_str_digits():,}"
        return f"not a JSON object that can be read: it holds a number of more than {most} digits. Send a shorter one"
    kind = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}.get(type(read), "a number")
    return f"not a JSON object, but {kind}. Send them again as one JSON object, by name"
