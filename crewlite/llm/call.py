"""Call a model as a durable step: events, retries and recording, in one place for every kind of model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crewlite import durable, events, kinds
from crewlite.concurrency import resources
from crewlite.concurrency.between_loops import await_work, begin_on
from crewlite.definitions.callables import context_for
from crewlite.durable import Said, Scope, Step
from crewlite.encoding import codec
from crewlite.errors import ContextOverflow, LLMError
from crewlite.lazy import asyncio, lazy
from crewlite.llm.base import (
    OVERFLOW,
    BaseLLM,
    LLMReply,
    Message,
    ToolCall,
    is_of_crewai,
    whole_reply,
    with_fallbacks,
    writes_calls,
)
from crewlite.llm.parts import check_sees
from crewlite.recovery import Fallback, GuardedCall
from crewlite.recovery.guards import UNGUARDED, guarding, guards_inside
from crewlite.recovery.port import Policy, check_policy
from crewlite.step_parts import Intent, Policies
from crewlite.usage import Usage, UsageRecord

if TYPE_CHECKING:
    from crewlite.llm import protocol, wire
else:
    protocol = lazy("crewlite.llm.protocol")  # only for models that have no tool calls of their own
    wire = lazy("crewlite.llm.wire")  # only for models that were written for CrewAI


def call_step(
    llm: BaseLLM,
    messages: Sequence[Message],
    *,
    tools: Sequence[dict[str, Any]] = (),
    agent: str = "",
    response_schema: dict[str, Any] | None = None,
    template: str = "",
    may_overflow: bool = False,
    intends: Callable[[LLMReply], Sequence[Intent]] | None = None,
    source: object | None = None,
    task: object | None = None,
    policy: Policy | None = None,
    question: Any = None,
    check: Callable[[LLMReply], object] | None = None,
    more: Mapping[str, Any] = {},
) -> Step[LLMReply]:
    """Build the step that asks a model, or a fallback where a policy chooses one, for a complete reply.

    A recorded call is answered from the record. `template` names the prompt template, `intends` the calls to record as
    about to be made because of the reply. With `may_overflow`, a conversation that does not fit the last model is no
    ContextOverflow, but a reply with the finish_reason OVERFLOW, which is recorded like any.
    `source` is the Agent that asks, `task` its Task, for models that take them. `policy` decides on failures in place
    of all others.

    `question`: what the call is asked, as plain JSON, where it does not follow from the steps before it. `check` raises
    an error for a reply that is a failure, and not to be recorded. `more`: further arguments for models that take them.
    """
    context = {"agent": agent, "from_agent": source, "from_task": task, "response_schema": response_schema, **more}
    call = _Call(llm, with_fallbacks(llm), tuple(messages), tools, agent, context, may_overflow, check, llm)
    if policy is None and llm.failure_policy is not None:
        policy = check_policy(llm.failure_policy, f"model {llm.model!r}")
    return Step(
        kind=kinds.LLM,
        name=None,
        work=call.work,
        question=question,
        chained=question is None,
        events=call,
        encode=recorded,
        decode=read_back,
        usage=call.usage,
        provenance={"model": llm.model, "template": template},
        policies=Policies(inherits=True, inside=policy),
        intends=intends,
        model_call=call,
    )


@dataclass(slots=True)
class _Call:
    """The work of the step, and its events: ask the model of the current attempt, under the guards of the run."""

    source: BaseLLM
    models: Sequence[BaseLLM]
    """The source and its fallbacks."""
    messages: Sequence[Message]
    tools: Sequence[dict[str, Any]]
    agent: str
    context: Mapping[str, Any]
    """Further arguments for models that take them."""
    may_overflow: bool
    check: Callable[[LLMReply], object] | None
    asked: BaseLLM
    """The model of the current attempt: the source itself, or a fallback."""
    used: UsageRecord | None = None
    """The usage of the reply to the current attempt, also of one that is no answer; None before there is one.

    It is stored separately: a reply that is read from the record does not hold it."""

    async def work(self) -> LLMReply:
        scope = durable.scope()
        past, self.used = scope.past, None
        asked = self.asked = self.models[sum(isinstance(one, Fallback) for one in past)] if past else self.source
        for model in self.models:  # fallbacks too: a missing key is an error before anything is paid
            await resources.ready(model)
        check_sees(asked, self.messages)
        guarded: AbstractAsyncContextManager[None] = UNGUARDED
        if guards := guards_inside(scope.guards, asked.failure_policy):
            seen = GuardedCall("model", asked.model, address=scope.address, shared=scope.shared)
            guarded = guarding(guards, seen, scope.mask)
        try:
            async with guarded, _Chunks(asked, self.agent, scope) as chunks:
                reply = await ask_once(asked, self.messages, self.tools, {**self.context, "on_chunk": chunks})
                self.used = reply.usage.to_record()
                if self.check:
                    self.check(reply)
        except ContextOverflow as error:
            if not self.may_overflow or asked is not self.models[-1]:
                raise
            reply = LLMReply(text=error.said, finish_reason=OVERFLOW)
        except LLMError as error:
            self.used = error.usage.to_record() if isinstance(error.usage, Usage) else self.used
            raise
        return reply if asked is self.source else reply.model_copy(update={"model": asked.model})

    def usage(self, reply: LLMReply | None) -> UsageRecord:
        """Return the usage of the reply as it is recorded, with the role of the agent that asked."""
        used = self.used or {}
        paid: UsageRecord = {**used, "requests": used.get("requests", 1)}
        if self.agent:
            paid["agent"] = durable.scope().mask(self.agent)
        return paid

    def usage_of_failure(self) -> UsageRecord | None:
        """Return the usage of a reply that was no answer, and forget it; None if no reply came.

        The next attempt may fail before it asks a model, and must not be charged again.
        """
        used, self.used = None if self.used is None else self.usage(None), None
        return used

    @property
    def fallbacks(self) -> int:
        return len(self.models) - 1

    def asked_model(self) -> str:
        return self.asked.model

    def started(self) -> Said:
        names = tuple([str(tool.get("function", tool).get("name")) for tool in self.tools]) if self.tools else ()
        about = {"model": self.source.model, "agent_role": self.agent, "messages": self.messages, "tools": names}
        return events.LLMCallStartedEvent, about

    def completed(self, value: LLMReply) -> Said:
        calls = value.tool_calls
        return events.LLMCallCompletedEvent, {
            "model": value.model or self.source.model,
            "agent_role": self.agent,
            "response": value.text,
            "tool_calls": tuple([{"name": call.name, "arguments": call.arguments} for call in calls]) if calls else (),
            "call_type": "tool_call" if calls else "llm_call",
            "usage": self.used or {},
            "finish_reason": value.finish_reason,
            "response_id": value.response_id,
        }

    def failed(self, error: str, error_type: str) -> Said:
        about = {"model": self.asked.model, "agent_role": self.agent, "error": error, "error_type": error_type}
        return events.LLMCallFailedEvent, about


async def ask_once(
    llm: BaseLLM, messages: Sequence[Message], tools: Sequence[dict[str, Any]], context: dict[str, Any]
) -> LLMReply:
    """Call a model once, with tools in its own protocol, and return the reply in the same form for both protocols.

    Raises LLMEmptyReply, LLMError.
    """
    written = writes_calls(llm) and (bool(tools) or protocol.has_calls(messages))
    if written:
        said, context = protocol.in_plain_text(messages, tools), context | {"tools": [], "stop": [protocol.STOP]}
    else:
        kind: Any = type(llm)
        said = [wire.with_text(message) for message in messages] if is_of_crewai(kind) else [*map(dict, messages)]
        context = context | {"tools": list(tools)}
    reply = whole_reply(await llm.acall(said, **context_for(type(llm).acall, context)), llm.model)
    return whole_reply(protocol.read(reply), llm.model) if written else reply


class _Chunks:
    """Emits the pieces of one reply as events, on the loop of the run, until the call is over.

    The end of a piece that may be the beginning of a secret comes with the next one, so that the secret is masked.
    """

    def __init__(self, llm: BaseLLM, agent: str, scope: Scope) -> None:
        self._llm, self._agent, self._scope, self._over = llm, agent, scope, False
        self._home = asyncio.get_running_loop()
        self._held = {False: "", True: ""}  # of the reply, and of thoughts

    async def __aenter__(self) -> _Chunks:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """End the call, however it ends. After GeneratorExit nothing can be awaited, as the loop is closed."""
        self._over = True
        if kind is not GeneratorExit and any(self._held.values()):
            await self._end(True, False)

    async def __call__(self, text: str, thinking: bool = False) -> None:
        if self._over:  # the model runs in a thread that outlived its timeout
            raise LLMError(f"{self._llm.model}: the call has ended, so its reply is not wanted any more")
        if not thinking:
            await self._end(True)  # these thoughts are over
        so_far = self._held[thinking] + text
        shown = self._scope.shown_of_beginning(so_far)
        self._held[thinking] = so_far[shown:]
        if shown or not so_far:
            await self._tell(so_far[:shown], thinking)

    async def _end(self, *kinds: bool) -> None:
        """Emit what was held back of thoughts (True) or of the reply (False), as nothing follows it."""
        for thinking in kinds:
            if held := self._held[thinking]:
                self._held[thinking] = ""
                await self._tell(held, thinking)

    async def _tell(self, text: str, thinking: bool) -> None:
        cls = events.LLMThinkingChunkEvent if thinking else events.LLMStreamChunkEvent
        if not self._scope.hears(cls):
            return
        about = {"model": self._llm.model, "agent_role": self._agent, "attempt": len(self._scope.past) + 1}

        async def tell() -> None:
            await self._scope.announce(self._llm, cls, {**about, "chunk": text})

        if asyncio.get_running_loop() is self._home:
            await tell()
        else:
            await await_work(begin_on(self._home, tell()))


def recorded(reply: LLMReply) -> Any:
    """Encode a reply as the outcome of its step."""
    data: dict[str, Any] = {"text": reply.text}
    if reply.tool_calls:
        data["tool_calls"] = codec.encode([[call.name, call.arguments, call.id] for call in reply.tool_calls])
    if reply.finish_reason:
        data["finish"] = reply.finish_reason
    if reply.response_id:
        data["id"] = reply.response_id
    if reply.model:
        data["model"] = reply.model
    if reply.carried:
        data["carried"] = codec.encode(reply.carried)
    return data


def read_back(data: Any) -> LLMReply:
    """Decode a recorded reply."""
    plain = codec.decode(data)
    return LLMReply(
        text=plain["text"],
        tool_calls=tuple(ToolCall(*call) for call in plain.get("tool_calls", ())),
        finish_reason=plain.get("finish"),
        response_id=plain.get("id"),
        model=plain.get("model"),
        carried=plain.get("carried"),
    )
