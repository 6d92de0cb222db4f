"""Lines to be copied into a shell."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from crewlite.cli.locations import DIRECTORY, detected


@dataclass(frozen=True, slots=True)
class Again:
    """What the lines that go on with a run have in common: where it is kept, and what it is of."""

    location: str | None = None
    target: str | None = None
    """Of --crew; None if the command finds it without."""
    model: str | None = None

    def line(self, verb: str, *words: str) -> str:
        """`crewlite checkpoint <verb> ...`, to be copied into a shell."""
        options = [("--location", self._location()), ("--crew", self.target), ("--model", self.model)]
        given = [word for name, value in options if value for word in (name, value)]
        return shell_line(["crewlite", "checkpoint", verb, *words, *given])

    def _location(self) -> str | None:
        """As seen from here; None if it is where the command looks by itself."""
        if self.location is None or os.path.abspath(self.location) == os.path.abspath(detected() or DIRECTORY):
            return None
        below = os.path.join(os.getcwd(), "")
        return self.location.removeprefix(below) or self.location


def shell_line(words: Sequence[str]) -> str:
    """A command as one types it."""
    return subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)
