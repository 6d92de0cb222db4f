"""A model that gives prepared replies, for tests without a key or a network."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from crewlite.definitions.callables import context_for
from crewlite.errors import ConfigError, ScriptExhausted
from crewlite.llm.base import BaseLLM, LLMReply, Message, Reply
from crewlite.llm.parts import text_of
from crewlite.system.forked import OwnLock, lock
from crewlite.usage import Usage

Line = Reply | BaseException
_CONTEXT = ("agent", "from_agent", "from_task", "on_chunk", "response_schema", "stop", "tools")  # see `BaseLLM.acall`
Script = Sequence[Line] | Callable[..., Line]


class ScriptedLLM(OwnLock, BaseLLM):
    """Answers from a list, in order, or by a function called as `f(messages, **context)` on the event loop of the run.

    A line is text, a ToolCall or a list of them, an LLMReply, or an exception to raise. `delay` (seconds) passes
    before each answer. `calls` holds the messages of every call so far, so `len(llm.calls)` counts them. A copy goes on
    with the line that is next, whatever the original is asked then.

    >>> from crewlite.testing import ScriptedLLM, ToolCall
    >>> llm = ScriptedLLM(["first", ToolCall("search", {"query": "tides"}), "last"])
    """

    model = "scripted"

    def __init__(self, replies: Script, *, delay: float = 0.0, model: str | None = None) -> None:
        super().__init__(model)
        self.delay = delay
        self.calls: list[list[Message]] = []
        if isinstance(replies, str) or not (callable(replies) or isinstance(replies, Iterable)):
            raise ConfigError(f"ScriptedLLM was given {replies!r} as replies; wanted a list of replies, or a function")
        if callable(replies):
            _check_takes_messages(replies)
        self._script = replies if callable(replies) else tuple(replies)
        self._lock = lock()

    async def acall(self, messages: list[Message], **context: Any) -> Reply:
        """Answer with the next line."""
        with self._lock:
            number = len(self.calls)
            self.calls.append(messages)
        if self.delay:
            await asyncio.sleep(self.delay)
        if callable(self._script):
            line = self._script(messages, **context_for(self._script, context))
        elif number < len(self._script):
            line = self._script[number]
        else:
            raise ScriptExhausted(len(self._script))
        if isinstance(line, BaseException):
            raise line
        return _counted(line, messages)


def _check_takes_messages(fn: Callable[..., Line]) -> None:
    """Raise ConfigError for a function that cannot be called with the messages and the context that it names."""
    try:
        inspect.signature(fn).bind([], **context_for(fn, dict.fromkeys(_CONTEXT)))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"ScriptedLLM was given a function that it cannot call: {error}. Wanted a function of the messages, and of "
            f"any of these by their names: {', '.join(_CONTEXT)}"
        ) from None


def _counted(line: Reply, messages: list[Message]) -> Reply:
    """Return a text as a reply with usage that counts words as tokens, so that sums of usage are not 0."""
    if not isinstance(line, str) or not line:
        return line
    words = len(" ".join(map(text_of, messages)).split())
    return LLMReply(text=line, usage=Usage(prompt_tokens=words, completion_tokens=len(line.split()), requests=1))
