"""A framework in a process of its own, in an environment of its own, that plays one scene at a time."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_HERE = Path(__file__).parent
_PATIENCE = 180.0
"""Seconds a framework has to start, or to play one scene."""
_QUIET = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_TRACKING": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "LANGSMITH_TRACING": "false",
    "OTEL_SDK_DISABLED": "true",
}
"""Nothing is told to anybody over a network."""


class NotMeasured(Exception):
    """Why a framework has no figure."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A framework. `folder` is that of its environment in PEERS; "" is this one."""

    name: str
    folder: str
    unit: str
    """What it calls a piece of work."""
    imports: str
    promise: str = ""
    """What it says of a piece of work that is stored."""

    def python(self, environments: Path) -> str:
        """The python of its environment. Raises NotMeasured if there is none."""
        if not self.folder:
            return sys.executable
        for place in ("bin/python", "Scripts/python.exe"):
            if (found := environments / self.folder / place).exists():
                return str(found)
        raise NotMeasured(f"PEERS has no environment {self.folder}")

    def surroundings(self, home: Path) -> dict[str, str]:
        """Its environment variables: ours, but what it keeps for itself goes to `home`."""
        found = {**os.environ, **_QUIET}
        found |= dict.fromkeys(("HOME", "USERPROFILE", "XDG_DATA_HOME", "XDG_CACHE_HOME"), str(home))
        found.pop("PYTHONPATH", None)
        return found if self.folder else {**found, "PYTHONPATH": str(_HERE.parents[1])}


class Player:
    """A running framework. Every failure is a NotMeasured."""

    def __init__(self, peer: Peer, environments: Path, home: Path) -> None:
        command = [peer.python(environments), str(_HERE / f"with_{peer.folder or 'crewlite'}.py")]
        self._said = home / "said.txt"
        with self._said.open("wb") as said:
            self._process = _started(command, said, home, peer.surroundings(home))
        try:
            self.version: str = self._answer()["version"]
        except NotMeasured:
            self.close()
            raise

    def play(self, scene: str, **how: Any) -> dict[str, Any]:
        """Play a scene; what came out."""
        try:
            self._process.stdin.write(json.dumps({"scene": scene, **how}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise NotMeasured(self._last_words()) from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        impatience = threading.Timer(_PATIENCE, self._process.kill)
        impatience.start()
        line = self._process.stdout.readline()
        while line and not line.startswith("{"):  # a framework that greets when it is imported
            line = self._process.stdout.readline()
        out_of_time = not impatience.is_alive()
        impatience.cancel()
        if not line:
            raise NotMeasured(f"no answer in {_PATIENCE:.0f} s" if out_of_time else self._last_words())
        answer = json.loads(line)
        if why := answer.get("broken"):
            raise NotMeasured(why)
        return answer

    def _last_words(self) -> str:
        code = self._process.wait()
        said = self._said.read_text("utf-8", "replace").strip().splitlines()
        return said[-1] if said else f"it ended with {code}"

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


def _started(command: list[str], errors: IO[bytes], home: Path, surroundings: dict[str, str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
            cwd=home,
            env=surroundings,
        )
    except OSError as why:
        raise NotMeasured(f"its python does not start: {why.strerror}") from None


@contextlib.contextmanager
def players(
    peers: list[Peer], environments: Path, directory: Path
) -> Iterator[tuple[dict[str, Player], dict[str, str]]]:
    """Those of `peers` that start, by name, and why the others do not."""
    playing: dict[str, Player] = {}
    missing: dict[str, str] = {}
    try:
        for peer in peers:
            home = directory / f"home-{peer.name}"
            home.mkdir(exist_ok=True)
            try:
                playing[peer.name] = Player(peer, environments, home)
            except NotMeasured as why:
                missing[peer.name] = str(why)
        yield playing, missing
    finally:
        for player in playing.values():
            player.close()
