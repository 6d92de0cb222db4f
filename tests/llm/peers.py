"""Servers that others wrote, which speak the protocols of providers: started here, scripted, and asked what they heard.

Nobody who wrote crewlite wrote these, so what both sides take for the protocol is not one misunderstanding. `.ci/run`
installs them; without them the tests that want them are skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tests import children

CI = Path(__file__).parents[2] / ".ci"
_PATIENCE = 30.0  # seconds until a server that was started is there
_ENDING = 5.0

Calls = list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Turn:
    """What to reply, and to what: the last user's message holds `asked`, the last tool's result `after`."""

    asked: str
    says: str | Calls
    after: str | None = None
    breaks_off: bool = False
    """The first time, the connection is lost in the middle of the stream."""


@dataclass(frozen=True)
class Heard:
    """A request, as the server saw it."""

    status: int
    body: dict[str, Any]
    whole: bool
    """Whether it was answered to the end."""


class Peer:
    """A server on loopback, and the process that it runs in."""

    name: ClassVar[str]
    needs: ClassVar[str]
    """What to install, if it is not there."""
    health: ClassVar[str]
    bases: ClassVar[dict[str, str]]
    """The path under which each provider is played."""

    def __init__(self, port: int) -> None:
        self.port, self.address = port, f"http://127.0.0.1:{port}"

    @classmethod
    def command(cls, port: int) -> list[str] | None:
        """How it is started; None if it is not installed."""
        raise NotImplementedError

    def base(self, provider: str) -> str:
        return self.address + self.bases[provider]

    def reset(self) -> None:
        """Forget what it was told and what it heard."""
        raise NotImplementedError

    def script(self, *turns: Turn) -> None:
        """What it is to say. Whatever else it is asked is wrong."""
        raise NotImplementedError

    def busy(self, times: int) -> None:
        """Answer the next requests with 429."""
        raise NotImplementedError

    def heard(self) -> list[Heard]:
        """The requests for a reply, in order."""
        raise NotImplementedError

    def send(self, method: str, path: str, data: Any = None) -> Any:
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(self.address + path, body, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)


class Aimock(Peer):
    name = "aimock"
    needs = "the npm package @copilotkit/aimock: npm ci --prefix .ci --ignore-scripts, as .ci/run does"
    health = "/__aimock/health"
    bases = {"openai": "/v1", "anthropic": "", "gemini": "/v1beta", "mistral": "/v1", "cohere_chat": "/v2/chat"}

    @classmethod
    def command(cls, port):
        node, script = shutil.which("node"), CI / "node_modules/@copilotkit/aimock/dist/cli.js"
        if not node or not script.is_file():
            return None
        nothing = script.parent.parent / "fixtures" / "example-greeting.json"  # it wants some at its start
        return [node, str(script), "-p", str(port), "-f", str(nothing), "--strict", "--log-level", "warn"]

    def reset(self):
        self.send("POST", "/__aimock/reset")
        self.send("DELETE", "/__aimock/chaos")

    def script(self, *turns):
        self.send("POST", "/__aimock/fixtures", {"fixtures": [entry for turn in turns for entry in _fixtures(turn)]})

    def busy(self, times):
        for _ in range(times):
            self.send("POST", "/__aimock/error", {"status": 429, "body": {"message": "Too many", "type": "rate_limit"}})

    def chaos(self, **rates: float) -> None:
        """What goes wrong from now on; nothing, if nothing is said."""
        self.send("POST", "/__aimock/chaos", rates) if rates else self.send("DELETE", "/__aimock/chaos")

    def heard(self):
        seen = self.send("GET", "/__aimock/journal?method=POST")
        return [
            Heard(entry["response"]["status"], entry["body"], not entry["response"].get("interrupted"))
            for entry in seen
            if "__aimock" not in entry["path"]
        ]


def _fixtures(turn: Turn) -> list[dict[str, Any]]:
    match: dict[str, Any] = {"userMessage": turn.asked, "hasToolResult": turn.after is not None}
    if turn.after is not None:
        match["toolResultContains"] = turn.after
    if isinstance(turn.says, str):
        response: dict[str, Any] = {"content": turn.says}
    else:
        response = {"toolCalls": [{"name": name, "arguments": arguments} for name, arguments in turn.says]}
    whole = {"match": match, "response": response, "chunkSize": 4}
    if turn.breaks_off:
        return [whole | {"match": match | {"sequenceIndex": 0}, "truncateAfterChunks": 2}, whole]
    return [whole]


class Llmock(Peer):
    name = "llmock"
    needs = "the PyPI package llmock in .ci/venv: bash .ci/run installs it"
    health = "/health"
    bases = {
        "openai": "/v1",
        "anthropic": "/anthropic",
        "gemini": "/gemini/v1beta",
        "mistral": "/mistral/v1",
        "cohere_chat": "/cohere/v2/chat",
    }

    @classmethod
    def command(cls, port):
        script = CI / "venv" / "bin" / "llmock"
        if not script.is_file():
            return None
        return [str(script), "serve", "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]

    def reset(self):
        self.send("POST", "/_llmock/reset")

    def script(self, *turns):
        self.send("POST", "/_llmock/scenario", {"behaviors": [one for turn in turns for one in _behaviors(turn)]})

    def busy(self, times):
        fail = {"type": "fail", "status": 429, "retry_after": 0.2, "times": times}
        self.send("POST", "/_llmock/scenario", {"behaviors": [fail]})

    def heard(self):
        seen = self.send("GET", "/_llmock/requests")["requests"]
        return [Heard(one["status"], one["body"], one["completed"]) for one in seen]

    def verdict(self) -> dict[str, Any]:
        """How well whoever asked it bore what it did."""
        verdict: dict[str, Any] = self.send("GET", "/_llmock/verdict")
        return verdict


def _behaviors(turn: Turn) -> list[dict[str, Any]]:
    """It takes them in order, whatever it is asked; the first stream is the one that breaks."""
    if isinstance(turn.says, str):
        reply: dict[str, Any] = {"type": "reply", "text": turn.says}
    else:
        reply = {"type": "reply", "tool_calls": [{"name": name, "arguments": given} for name, given in turn.says]}
    if turn.breaks_off:
        return [{"type": "stream_fault", "kind": "disconnect", "after_chunks": 2}, reply, reply]
    return [reply]


@contextlib.contextmanager
def started(kind: type[Peer]) -> Iterator[Peer]:
    """A server of this kind, healthy; its process group is ended with the block."""
    for last in (False, False, True):
        port = _free_port()
        command = kind.command(port)
        assert command, f"needs {kind.needs}"
        process = children.Child(command, shared=True, stdout=children.DEVNULL)
        try:
            if _comes_up(process, kind, port) or last:
                assert process.poll() is None, f"{kind.name} ended with {process.returncode}"
                yield kind(port)
                return
        finally:
            _end(process)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _comes_up(process: children.Child, kind: type[Peer], port: int) -> bool:
    """Whether it is there in time; not if its port was taken by another meanwhile."""
    until = time.monotonic() + _PATIENCE
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}{kind.health}", timeout=2).close()
            return process.poll() is None
        time.sleep(0.05)
    return False


def _end(process: children.Child) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(children.TimeoutExpired):
            process.wait(_ENDING)
            return
