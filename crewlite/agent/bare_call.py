"""One model call without an agent: `llm.ask(...)`, a recorded step of the code that makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from crewlite import background, durable
from crewlite.agent.shape import Misshapen, Shape, check_format, wanted
from crewlite.durable import Step
from crewlite.errors import ConfigError, OutputInvalid
from crewlite.llm.base import BaseLLM, LLMReply, Message
from crewlite.llm.call import call_step, read_back
from crewlite.runtime.steps.future import requested
from crewlite.wording import an


def asked(llm: BaseLLM, messages: str | Sequence[Message], response_format: object) -> Any:
    """Ask as `BaseLLM.ask` does: in a coroutine, return an awaitable; else wait for the answer."""
    model = check_format(response_format)
    shape = Shape(model) if model else None
    opening = [{"role": "system", "content": wanted(shape)}] if shape else []
    conversation = [*opening, *_messages(messages)]

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
    scope = durable.scope()
    step = call_step(llm, conversation, response_schema=schema, question=[conversation, schema], check=check)
    step = replace(step, decode=decode)
    if scope.loop is None and not background.running_loop():
        return value(background.run(_work(step)))
    return requested(scope, step, "ask(...)", value)


async def _work(step: Step[LLMReply]) -> LLMReply:
    return await step.work()


def _messages(messages: object) -> list[Message]:
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if isinstance(messages, list | tuple) and messages and all(isinstance(one, dict) for one in messages):
        return list(messages)
    raise ConfigError(
        f"ask(messages={messages!r:.80}) is given {an(type(messages).__name__)}; wanted text, or a list of messages "
        f"such as {{'role': 'user', 'content': 'Well?'}}"
    )
