"""One model call without an agent: `llm.ask(...)` and `llm.call(...)`, recorded steps of the code that makes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from crewlite import durable, kinds
from crewlite.agent.shape import Misshapen, Shape, check_format, wanted
from crewlite.concurrency import background
from crewlite.definitions.callables import context_for
from crewlite.durable import Scope, Step
from crewlite.encoding import codec
from crewlite.encoding.comparable import comparable
from crewlite.errors import ConfigError, NotCodable, OnLoopThread, OutputInvalid
from crewlite.llm.base import (
    BaseLLM,
    FromAThread,
    LLMReply,
    Message,
    Reply,
    ReplyText,
    acall_behind,
    as_messages,
    whole_reply,
)
from crewlite.llm.call import call_step, read_back
from crewlite.runtime.steps.future import StepFuture, requested, runs_here
from crewlite.texts.wording import what_is

_WHO_ASKS = ("agent", "from_agent", "from_task")
"""What a model is told about who asks: no part of the question."""


def asked(llm: BaseLLM, messages: str | Sequence[Message], response_format: object) -> Any:
    """Ask as `BaseLLM.ask` does: in a coroutine, return an awaitable; else wait for the answer."""
    scope, (step, value) = durable.scope(), _asking(llm, messages, response_format)
    if scope.loop is None and not background.running_loop():
        return value(background.run(_work(step)))
    return requested(scope, step, "ask(...)", value)


def _asking(
    llm: BaseLLM, messages: str | Sequence[Message], response_format: object
) -> tuple[Step[LLMReply], Callable[[LLMReply], Any]]:
    """Build the step that asks, and a function that makes the answer of a reply."""
    model = check_format(response_format)
    shape = Shape(model) if model else None
    opening = [{"role": "system", "content": wanted(shape)}] if shape else []
    conversation = [*opening, *_messages(messages, "ask")]

    def value(reply: LLMReply) -> Any:
        return shape.read(reply.text) if shape else reply.text

    def check(reply: LLMReply) -> None:
        try:
            if shape:
                shape.read(reply.text)
        except Misshapen as problem:
            raise OutputInvalid(f"a call of {llm.model}", str(problem), tries=1) from None

    def decode(data: Any) -> LLMReply:
        reply = read_back(data)
        if shape:
            shape.recorded(reply.text, f"a call of {llm.model}")
        return reply

    schema = shape.schema if shape else None
    said = codec.encode(conversation, "messages") if durable.scope().loop else []
    step = call_step(llm, conversation, response_schema=schema, question=[said, schema], check=check)
    return replace(step, decode=decode), value


def called(
    llm: BaseLLM, messages: str | list[Message], context: Mapping[str, Any], own: Callable[[], Any] | None = None
) -> Any:
    """Call as `BaseLLM.call` does, and wait for the reply. Raises what `_called_plainly` does, or the step.

    `own`: makes the call where it is no step, if the class of the model overrides `call`.
    """
    scope = durable.scope()
    form = context.get("response_model") or context.get("response_format")
    if form and type(llm).call is BaseLLM.call:  # else that method makes the object
        step, value = _asking(llm, messages, form)
        return value(_waited_for(scope, step))
    if scope.loop is None or kinds.at(scope.address).asks_model:  # a model that asks another one is one call
        return own() if own else _called_plainly(llm, messages, context, "acall")
    blocks = runs_here(scope.loop)  # which nothing can be awaited on, so nothing can be recorded
    conversation = _messages(messages, "call")
    arguments = {name: value for name, value in context.items() if name not in _WHO_ASKS}
    said = None if blocks or "on_chunk" in context else _as_recorded(conversation)
    if said is None and (not scope.dry or background.on_loop_thread()):
        return own() if own else _called_plainly(llm, messages, context, "ask")
    step = call_step(
        llm,
        conversation,
        tools=context.get("tools") or (),
        agent=str(context.get("agent", "")),
        source=context.get("from_agent"),
        task=context.get("from_task"),
        question=[said, comparable(arguments, _name_of)],
        more=arguments,
    )
    step = replace(step, with_usage=lambda it, usage: it.model_copy(update={"usage": usage}), drift="may_differ")
    if said is None:  # a preview shows it without asking the model; no recorded call has the number 0
        step = replace(step, address=f"{scope.address}/{kinds.LLM}#0".removeprefix("/"))
    return ReplyText(_at_once(scope.step(step)) if blocks else StepFuture(scope, step).result())


def _waited_for(scope: Scope, step: Step[LLMReply]) -> LLMReply:
    """Return the outcome of a step to code that waits for it. Raises OnLoopThread if that would block the loop."""
    if scope.loop is None or kinds.at(scope.address).asks_model:
        return background.run(_work(step))
    if scope.dry and runs_here(scope.loop):
        return _at_once(scope.step(step))
    return StepFuture(scope, step).result()


def _at_once(step: Awaitable[LLMReply]) -> LLMReply:
    """Return the outcome of a step of a preview, which waits for nothing, on the loop that the preview is on."""
    try:
        next(step.__await__())
    except StopIteration as end:
        reply: LLMReply = end.value
        return reply
    raise AssertionError("a step of a preview has waited")


def _as_recorded(messages: list[Message]) -> Any:
    """Return messages as a record would hold them, to tell this question from others; None if none can hold them."""
    try:
        return codec.encode(messages)
    except NotCodable:
        return None


def _name_of(live: Any) -> Any:
    named = live if hasattr(live, "__qualname__") else type(live)  # a function, a class; else the class of an object
    return {"opaque": f"{named.__module__}:{named.__qualname__}"}


def _called_plainly(llm: BaseLLM, messages: str | list[Message], context: Mapping[str, Any], instead: str) -> ReplyText:
    """Call `acall` from blocking code: nothing is recorded, retried or emitted.

    Raises OnLoopThread, which advises the verb `instead`, LLMEmptyReply, and what the model raises.
    """
    if background.on_loop_thread():
        raise OnLoopThread("call", f"await {instead}(messages)")
    reply = background.run(_acall(llm, as_messages(messages), context))
    return ReplyText(whole_reply(reply, llm.model))


async def _acall(llm: BaseLLM, messages: list[Message], context: Mapping[str, Any]) -> Reply:
    acall = acall_behind(type(llm))
    given = {name: value for name, value in context.items() if value is not None}
    if isinstance(on_chunk := given.get("on_chunk"), FromAThread):
        given["on_chunk"] = on_chunk.on_chunk  # awaited on this loop, which must not block
    reply: Reply = await acall(llm, messages, **context_for(acall, given))
    return reply


async def _work(step: Step[LLMReply]) -> LLMReply:
    return await step.work()


def _messages(messages: object, verb: str) -> list[Message]:
    if isinstance(messages, str):
        return as_messages(messages)
    if isinstance(messages, list | tuple) and messages and all(isinstance(one, dict) for one in messages):
        return [dict(one) for one in messages]  # the code may go on with its own before they are sent
    raise ConfigError(
        f"{verb}(messages={messages!r:.80}) is given {what_is(messages)}; wanted text, or a list of messages "
        f"such as {{'role': 'user', 'content': 'Well?'}}"
    )
