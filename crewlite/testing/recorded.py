"""A model whose replies are recorded once and then replayed, without a network or a key.

The file has one JSON line per reply, which people can read and commit. A request is stored as a digest that leaves out
the parts that differ between recordings: the ids of tool calls, and the model that answered.
"""

from __future__ import annotations

import copy
import json
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from crewlite import durable
from crewlite.concurrency import background, resources
from crewlite.encoding import codec
from crewlite.errors import ConfigError, RecordingDamaged, RecordingMissing
from crewlite.llm.base import BaseLLM, LLMReply, Message, OnChunk, with_fallbacks
from crewlite.llm.call import ask_once
from crewlite.llm.models import named
from crewlite.llm.parts import text_of
from crewlite.system import disk
from crewlite.system.forked import lock
from crewlite.system.paths import why_no_path
from crewlite.texts.masking import Masking
from crewlite.texts.secrets import Secrets

_SHOWN = 100  # characters of the last message that a line shows
_ALWAYS = ("text", "usage", "model")  # parts of a reply that no line leaves out


class RecordedLLM(BaseLLM):
    """Replays the replies in a file. For other requests it asks `llm`, a model or its name, and records the reply.

    ```python
    from crewlite import Agent
    from crewlite.testing import RecordedLLM, ScriptedLLM

    source = ScriptedLLM(["High water at 11:40."])
    pilot = Agent(role="Pilot", goal="answer", llm=RecordedLLM("replies.jsonl", source))
    assert pilot.kickoff("When?").raw == "High water at 11:40."

    pilot = Agent(role="Pilot", goal="answer", llm=RecordedLLM("replies.jsonl"))
    assert pilot.kickoff("When?").raw == "High water at 11:40."
    ```

    Without `llm`, a request that is not recorded raises RecordingMissing. A request is its messages, the available
    tools and the schema of the wanted answer. A request that is made several times is recorded each time; the n-th time
    that one RecordedLLM gets it, it answers with the n-th reply, or the last. This is counted in the object, not in the
    run's record: in a process that resumes a run, the count begins anew. A reply that was streamed is replayed as one
    chunk. Errors are not recorded. The fallbacks of `llm` are recorded into the same file.

    Several threads and processes may record into one file. Known secrets are masked in it. A line that cannot be read
    raises RecordingDamaged.
    """

    def __init__(self, path: str | Path, llm: BaseLLM | str | None = None) -> None:
        if why := why_no_path(path):
            raise ConfigError(f"RecordedLLM: path is {str(path)!r}, which {why}; choose another")
        source = named(llm) if isinstance(llm, str) else llm
        if source is not None and not isinstance(source, BaseLLM):
            raise ConfigError(f"RecordedLLM: llm is {source!r}; wanted a model, the name of a model, or None")
        super().__init__(source.model if source else "recorded")
        self._source = source
        self._tape = _Tape(Path(path))
        self.failure_policy = source.failure_policy if source else None
        self.fallbacks = tuple(self._beside(spare) for spare in with_fallbacks(source)[1:]) if source else ()

    def _beside(self, fallback: BaseLLM) -> RecordedLLM:
        """Return a RecordedLLM with the same file for a fallback, without that model's own fallbacks."""
        other = copy.copy(self)
        other.model, other._source, other.fallbacks = fallback.model, fallback, ()
        return other

    async def ready(self) -> None:
        """Read the file; if it is empty, check that `llm` can be asked. Raises RecordingDamaged, RecordingMissing."""
        if await background.in_thread(self._tape.read):
            return
        if self._source is None:
            raise RecordingMissing(str(self._tape.path), "", 0)
        await resources.ready(self._source)

    async def acall(
        self,
        messages: list[Message],
        *,
        tools: Sequence[dict[str, Any]] = (),
        response_schema: dict[str, Any] | None = None,
        on_chunk: OnChunk | None = None,
        **context: Any,
    ) -> LLMReply:
        """Return the next recorded reply to this request, or ask `llm` and record its reply."""
        key = _key(messages, tools, response_schema)
        kept = await background.in_thread(self._tape.next, key)
        if kept is None:
            kept = await self._record(key, messages, list(tools), response_schema, on_chunk, context)
        elif kept.streamed and on_chunk and kept.reply.text:
            await on_chunk(kept.reply.text)
        return kept.reply.model_copy(update={"model": None}) if kept.reply.model == self.model else kept.reply

    async def _record(
        self,
        key: str,
        messages: list[Message],
        tools: list[dict[str, Any]],
        schema: dict[str, Any] | None,
        on_chunk: OnChunk | None,
        context: dict[str, Any],
    ) -> _Kept:
        asked = _shown(messages)
        if self._source is None:
            raise RecordingMissing(str(self._tape.path), asked, self._tape.count, alike=self._tape.shows(asked))
        await resources.ready(self._source)
        chunks = _HeardChunks(on_chunk) if on_chunk else None
        context = context | {"response_schema": schema, "on_chunk": chunks}
        reply = await ask_once(self._source, messages, tools, context)
        line = _line(asked, reply, reply.model or self._source.model, streamed=bool(chunks and chunks.any))
        own, run = Secrets.of(*with_fallbacks(self._source)), durable.scope()
        line = Masking(lambda text: run.mask(own.mask(text)))(line)
        return await background.in_thread(self._tape.add, line | {"key": key})


class _HeardChunks:
    """Passes on the pieces of a reply, and notes whether there were any."""

    def __init__(self, on_chunk: OnChunk) -> None:
        self._on_chunk, self.any = on_chunk, False

    async def __call__(self, text: str, thinking: bool = False) -> None:
        self.any = True
        await self._on_chunk(text, thinking)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A recorded reply: one line of the file."""

    key: str
    asked: str
    reply: LLMReply
    streamed: bool


@dataclass(slots=True)
class _Tape:
    """A file of recorded replies, and how many replies to each request were replayed."""

    path: Path
    _kept: dict[str, list[_Kept]] = field(default_factory=dict)
    _played: Counter[str] = field(default_factory=Counter)
    _own: set[str] = field(default_factory=set)
    """Requests that were not recorded when they were first made: `llm` is asked each time."""
    _lines: list[bytes] = field(default_factory=list)
    """The lines that were read."""
    _lock: threading.RLock = field(default_factory=lock)

    def __reduce__(self) -> tuple[Any, ...]:
        """Give a deep copy, or a pickle, a lock of its own."""
        return _Tape, (self.path, self._kept, self._played, self._own, self._lines)

    @property
    def count(self) -> int:
        return len(self._lines)

    def read(self) -> int:
        """Read the lines that were added. Returns the number of recorded replies. Raises RecordingDamaged."""
        with self._lock:
            lines, _ = _split(_bytes(self.path))
            if lines[: len(self._lines)] != self._lines:  # the file was replaced or edited
                self._kept, self._lines = {}, []
            for number, line in enumerate(lines[len(self._lines) :], len(self._lines) + 1):
                kept = _read(line, f"{self.path}, line {number}")
                self._kept.setdefault(kept.key, []).append(kept)
                self._lines.append(line)
            return len(lines)

    def next(self, key: str) -> _Kept | None:
        """Return the reply to replay now; None if `llm` is to be asked."""
        with self._lock:
            if key not in self._kept:
                self.read()
            found = self._kept.get(key, ())
            if key in self._own or not found:
                self._own.add(key)
                return None
            self._played[key] += 1
            return found[min(self._played[key], len(found)) - 1]

    def add(self, line: dict[str, Any]) -> _Kept:
        """Append a reply to the file. Returns it as it will be read."""
        data = codec.dumps(line)
        with self._lock:
            disk.make_directory(self.path.parent, mode=0o777)
            while not self._append(data):
                pass
            self.read()
        return _read(data, str(self.path))

    def shows(self, asked: str) -> bool:
        """Return whether a recorded request has the same last message."""
        with self._lock:
            return any(kept.asked == asked for group in self._kept.values() for kept in group)

    def _append(self, line: bytes) -> bool:
        """Append a line at the end of the file. Returns False if another process has appended one first."""
        whole = _bytes(self.path)
        lines, end = _split(whole)
        unended = lines and not whole[:end].endswith(b"\n")  # some editors do not end the last line
        data = (b"\n" if unended else b"") + line + b"\n"
        try:
            disk.append(self.path, data, at=end, torn=lambda beyond: b"\n" not in beyond)
        except FileExistsError:
            return False
        return True


def _bytes(path: Path) -> bytes:
    try:
        return disk.read_complete(path)
    except FileNotFoundError:
        return b""


def _split(data: bytes) -> tuple[list[bytes], int]:
    """Return the complete lines, and the position of their end. A torn last line of a killed process does not count."""
    lines = data.split(b"\n")
    last = lines.pop()
    if not last:
        return lines, len(data)
    try:
        json.loads(last)
    except (ValueError, RecursionError):
        return lines, len(data) - len(last)
    return [*lines, last], len(data)


def _read(line: bytes, where: str) -> _Kept:
    try:
        said = codec.decode(json.loads(line))
        parts = {name: said[name] for name in LLMReply.model_fields if name in _ALWAYS or name in said}
        reply = LLMReply.model_validate(parts)
        return _Kept(said["key"], said["asked"], reply, bool(said.get("streamed")))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise RecordingDamaged(where, f"{type(error).__name__}: {' '.join(str(error).split())}") from None


def _line(asked: str, reply: LLMReply, model: str, *, streamed: bool) -> dict[str, Any]:
    """Return the data of a line, in the order in which a reader wants to see it."""
    calls = [
        {"name": call.name, "arguments": call.arguments} | ({"id": call.id} if call.id else {})
        for call in reply.tool_calls
    ]
    line: dict[str, Any] = {
        "asked": asked,
        "text": reply.text,
        "tool_calls": calls,
        "usage": reply.usage.to_record(),
        "model": model,
        "streamed": streamed,
        "finish_reason": reply.finish_reason,
        "response_id": reply.response_id,
        "carried": reply.carried,
    }
    encoded = codec.encode({name: value for name, value in line.items() if value or name in _ALWAYS})
    return cast(dict[str, Any], encoded)


def _key(messages: list[Message], tools: Any, schema: dict[str, Any] | None) -> str:
    """Return the digest of a request. Ids of tool calls count only by their order."""
    order: dict[Any, int] = {}
    asked = [_anonymous(message, order) for message in messages]
    return codec.digest(codec.encode([asked, list(tools), schema]))


def _anonymous(message: Message, order: dict[Any, int]) -> Message:
    plain = {name: value for name, value in message.items() if name != "carried"}
    if calls := plain.get("tool_calls"):
        plain["tool_calls"] = [call["function"] for call in calls]
        order.update({call.get("id"): len(order) + n for n, call in enumerate(calls)})
    if "tool_call_id" in plain:
        plain["tool_call_id"] = order.get(plain["tool_call_id"])
    return plain


def _shown(messages: list[Message]) -> str:
    text = " ".join(text_of(messages[-1] if messages else {}).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
