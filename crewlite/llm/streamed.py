"""Replies that are received in pieces: what a piece says, where a reply ends, and the complete response at its end.

Some servers answer with one JSON body although a stream was asked for, and some leave the connection open after the
end. Both have sent a reply that is paid, so it is taken.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from crewlite.errors import LLMTimeout, LLMUnavailable
from crewlite.llm.base import OnChunk
from crewlite.llm.wire import clean

Hear = Callable[..., Awaitable[Any]]
"""Awaits an answer of litellm and converts its errors. `begun=`: whether the answer had begun."""


@dataclass(slots=True)
class StreamedReply:
    """The answer to a request for a stream. `whole` receives all of it."""

    library: Any
    stream: Any
    model: str
    idle_timeout: float | None
    hear: Hear
    first: Any = None
    """The first piece; None if there is none."""
    unstreamed: Any = None
    """The complete response, of a server that does not stream."""

    async def begin(self) -> None:
        """Receive the first piece: litellm sends some requests, such as those to Gemini, only when it is asked for."""
        self.unstreamed = await self.hear(_unstreamed(self.library, self.stream), begun=True)
        if self.unstreamed is None:
            _end_when_done(self.stream)
            self.first = await self._next(begun=False)

    async def whole(self, on_chunk: OnChunk | None) -> Any:
        """Receive all pieces, tell `on_chunk` what they say, and return the complete response.

        Raises LLMUnavailable if the stream ends too early.
        """
        pieces, piece = list[Any](), self.unstreamed or self.first
        while piece is not None:
            pieces.append(piece)
            for said, thinking in _said(piece):
                if on_chunk:
                    await on_chunk(said, thinking)
            piece = None if self.unstreamed else await self._next(begun=True)
        if self.unstreamed:
            return self.unstreamed
        if not _ended(self.stream):
            raise LLMUnavailable(f"{self.model}: the stream ended before the reply was complete. Start the run again.")
        return await self.hear(_put_together(self.library, pieces), begun=True)

    async def _next(self, *, begun: bool) -> Any:
        """Return the next piece of a stream; None at its end. Raises LLMTimeout if none comes for `idle_timeout`.

        After the `finish_reason`, that silence is the end.
        """
        try:
            async with asyncio.timeout(self.idle_timeout):
                return await self.hear(anext(aiter(self.stream), None), begun=begun)
        except TimeoutError:
            if getattr(self.stream, "received_finish_reason", None) is None:
                raise LLMTimeout(self.model, self.idle_timeout or 0.0, "idle_timeout") from None
        return await self.hear(anext(aiter(self.stream), None), begun=begun)  # the last piece, which litellm keeps back


async def _unstreamed(library: Any, stream: Any) -> Any:
    """Return the response of a server that has sent one JSON body instead of a stream; None for a stream.

    A body of any other content can still be read as a stream. Raises what litellm raises for an error in the body.
    """
    source = getattr(stream, "completion_stream", None)  # of the client of OpenAI, or of litellm's own
    response = getattr(source, "response", None) or getattr(source, "http_response", None)
    if response is None or response.headers.get("content-type", "").partition(";")[0] not in ("application/json", ""):
        return None
    try:
        body = json.loads(await response.aread())
    except ValueError:
        return None
    if not isinstance(body, dict) or not body.keys() & {"choices", "error"}:
        return None
    return library.utils.convert_to_model_response_object(body, library.ModelResponse())


def _end_when_done(stream: Any) -> None:
    """Have litellm's own client end a stream at its `[DONE]`: by itself it waits for the end of the connection."""
    source: Any = getattr(stream, "completion_stream", None)
    if hasattr(source, "http_response"):
        source.streaming_response = _until_done(source.streaming_response)


async def _until_done(lines: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for line in lines:
        yield line
        if isinstance(line, str) and line.removeprefix("data:").strip() == "[DONE]":
            return


def _ended(stream: Any) -> bool:
    """Return whether the service said that its reply is complete. litellm's last piece always says so.

    For Gemini litellm sets only the second attribute, with every piece: there a lost connection raises an error.
    """
    reason = getattr(stream, "received_finish_reason", "unknown") or getattr(stream, "intermittent_finish_reason", None)
    return reason is not None


async def _put_together(library: Any, pieces: Sequence[Any]) -> Any:
    """Return the complete response of a stream. Async, so that its errors are converted as those of the stream are."""
    _tell_calls_apart(pieces)
    return library.stream_chunk_builder(pieces)


def _tell_calls_apart(pieces: Iterable[Any]) -> None:
    """Give each tool call of a stream its own index and an id: litellm joins the calls of one index, and drops others.

    Some servers number all calls of a reply 0, and tell them apart by their ids; some send no ids, and some another id
    with each piece of a call, but its name with the first alone.
    """
    ids, at = dict[int, str | None](), dict[int, int]()  # `at`: the call that goes on at an index that is sent
    for call in (call for piece in pieces for call in getattr(_said_in(piece), "tool_calls", None) or ()):
        sent, named = call.index or 0, call.function and call.function.name
        if sent not in at or (named and call.id and ids[at[sent]] not in (None, call.id)):
            at[sent] = sent if sent not in ids else max(ids) + 1
            ids[at[sent]] = None
        own = ids[at[sent]] = ids[at[sent]] or call.id
        call.index, call.id = at[sent], own or f"call_{at[sent] + 1}"


def _said(piece: Any) -> list[tuple[str, bool]]:
    """Return the texts in a piece of a stream, or in a complete response, each with whether it is thinking."""
    part = _said_in(piece)
    found = [(getattr(part, "reasoning_content", None), True), (getattr(part, "content", None), False)]
    return [(clean(text), thinking) for text, thinking in found if isinstance(text, str) and text]


def _said_in(piece: Any) -> Any:
    choice = piece.choices[0] if getattr(piece, "choices", None) else None
    return getattr(choice, "delta", None) or getattr(choice, "message", None)
