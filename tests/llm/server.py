"""A server on loopback that plays a script: for each request, what is done to its connection.

An answer is a list of acts: bytes are sent as they are, a number is seconds of silence, CLOSE and RESET end the
connection. Nothing here knows a protocol but for reading requests, so that every mistake a server can make can be made.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class End(Enum):
    CLOSE = "close"
    RESET = "reset"


CLOSE, RESET = End.CLOSE, End.RESET
Act = bytes | float | End
Answer = Sequence[Act]
HANG: Answer = (3600.0,)


@dataclass(frozen=True)
class Request:
    """What was asked."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Server:
    """Plays one answer per request, in the order in which they come; what comes after the script gets a 599."""

    def __init__(self, *script: Answer) -> None:
        self.script, self.requests = list(script), list[Request]()
        self._over, self._lock = threading.Event(), threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.base_url = f"{self.address}/v1"
        self._threads = [threading.Thread(target=self._listen, daemon=True)]
        self._open = list[socket.socket]()

    def __enter__(self) -> Server:
        self._threads[0].start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)

    def _listen(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._open.append(connection)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as incoming, contextlib.suppress(OSError):
            while request := _read(incoming):
                with self._lock:
                    number = len(self.requests)
                    self.requests.append(request)
                answer = self.script[number] if number < len(self.script) else reply({}, 599)
                if not self._play(connection, answer):
                    return

    def _play(self, connection: socket.socket, answer: Answer) -> bool:
        """Whether the connection goes on."""
        for act in answer:
            if isinstance(act, bytes):
                connection.sendall(act)
            elif isinstance(act, End):
                if act is RESET:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                else:
                    connection.shutdown(socket.SHUT_RDWR)  # makefile holds the socket, so close() alone would not
                return False
            elif self._over.wait(act):
                return False
        return True


def _read(incoming: Any) -> Request | None:
    """The next request of a connection; None at its end."""
    first = incoming.readline().decode().split()
    if len(first) < 2:
        return None
    headers = dict[str, str]()
    while (line := incoming.readline().decode("latin-1").strip()) != "":
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    body = incoming.read(int(headers.get("content-length", 0)))
    return Request(first[0], first[1], headers, json.loads(body) if body else {})


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """The address of a port at which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/v1"


# answers


def head(status: int = 200, headers: Mapping[str, Any] | None = None, *, version: str = "HTTP/1.1") -> bytes:
    """The head of a response."""
    lines = [f"{version} {status} Whatever", *(f"{name}: {value}" for name, value in (headers or {}).items()), "", ""]
    return "\r\n".join(lines).encode()


def body(content: bytes, status: int = 200, **headers: Any) -> list[Act]:
    """A whole response; `content_type="text/html"` is a header."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return [head(status, {"content-type": "application/json", "content-length": len(content)} | named) + content]


def reply(content: Any, status: int = 200, **headers: Any) -> list[Act]:
    """A whole response of JSON."""
    return body(json.dumps(content).encode(), status, **headers)


def error(status: int, message: str = "no", code: str | None = None, **headers: Any) -> list[Act]:
    """An error as OpenAI's services send it."""
    return reply({"error": {"message": message, "type": "some_error", "param": None, "code": code}}, status, **headers)


def stream(*events: Any, end: Sequence[Act] = (b"data: [DONE]\n\n", CLOSE)) -> list[Act]:
    """A stream of server-sent events: JSON, or bytes as they are, or seconds of silence; then `end`."""
    acts: list[Act] = [head(200, {"content-type": "text/event-stream"})]
    for event in events:
        acts.append(event if isinstance(event, bytes | float) else b"data: " + json.dumps(event).encode() + b"\n\n")
    return [*acts, *end]


def drip(content: bytes, every: float) -> list[Act]:
    """Bytes, one at a time."""
    return [act for byte in content for act in (bytes([byte]), every)]


def cut(acts: Sequence[Act], keep: int, end: End = CLOSE) -> list[Act]:
    """A response of one piece that ends early: after so many bytes of it, or, if negative, that many before its end."""
    whole = b"".join(act for act in acts if isinstance(act, bytes))
    return [whole[:keep], 0.05, end]


# what OpenAI's chat completions say


def chat(content: Any = "hello", *, usage: Any = True, finish: str | None = "stop", **message: Any) -> dict[str, Any]:
    """A chat completion."""
    said = {"role": "assistant", "content": content, **message}
    counted = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12} if usage is True else usage
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "foo",
        "choices": [{"index": 0, "message": said, "finish_reason": finish}],
        **({} if counted is False else {"usage": counted}),
    }


def calling(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A chat completion that asks for tools."""
    return chat(None, **{"finish": "tool_calls", "tool_calls": list(calls), **more})


def call(name: Any, arguments: Any = "{}", id: Any = "c1") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def piece(content: Any = None, *, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """A chunk of a streamed completion."""
    told = {name: value for name, value in {"content": content, **delta}.items() if value is not None}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "foo",
        "choices": [{"index": 0, "delta": told, "finish_reason": finish}],
    }


COUNTED = {
    "id": "chatcmpl-1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "foo",
    "choices": [],
    "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12},
}
"""The chunk at the end of a stream that holds the usage."""


# what Anthropic's messages say


def message(*blocks: dict[str, Any], stop: str = "end_turn") -> dict[str, Any]:
    """A message of blocks."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": list(blocks),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 5},
    }


def overloaded(status: int, kind: str, said: str = "no", **headers: Any) -> list[Act]:
    """An error as Anthropic sends it."""
    return reply({"type": "error", "error": {"type": kind, "message": said}}, status, **headers)
