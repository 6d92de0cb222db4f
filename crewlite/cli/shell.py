"""Command lines for people to copy into a shell, and the location that they mean if they name none."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from crewlite.lazy import lazy
from crewlite.texts.resuming import nth_attempt

if TYPE_CHECKING:
    from crewlite.state.run_history import Waiting

fitting = lazy("crewlite.state.reading.fitting")
DIRECTORY, DATABASE = "./.checkpoints", "./.checkpoints.db"


def detected() -> str | None:
    """Return the store of this directory: ./.checkpoints if it exists, else the database; None if there is neither."""
    if os.path.isdir(DIRECTORY):
        return DIRECTORY
    return DATABASE if os.path.exists(DATABASE) else None


@dataclass(frozen=True, slots=True)
class Again:
    """The options that all commands for a run share: its location, its definition and its model."""

    location: str | None = None
    target: str | None = None
    """The value of --crew; None if the command finds the definition without it."""
    model: str | None = None

    def words(self, verb: str, *words: str) -> list[str]:
        """Return the words `checkpoint <verb> ...` with the shared options."""
        options = [("--location", self.location), ("--crew", self.target), ("--model", self.model)]
        return ["checkpoint", verb, *words, *(word for name, value in options if value for word in (name, value))]

    def line(self, verb: str, *words: str) -> str:
        """Return the line `crewlite checkpoint <verb> ...` with the shared options, for people: as short as can be."""
        return shell_line(["crewlite", *replace(self, location=self._location()).words(verb, *words)])

    def settling(self, ref: str, calls: Mapping[str, int]) -> tuple[str, str]:
        """Return the lines that settle the doubt about calls: if they took effect, and if they did not.

        `calls`: how often each was begun, by address.
        """
        answers = [word for address in calls for word in ("--answer", f"{address}=RESULT")]
        reruns = [word for named in map(nth_attempt, calls, calls.values()) for word in ("--rerun", named)]
        return self.line("resume", ref, *answers), self.line("resume", ref, *reruns)

    def to_settle(self, ref: str, calls: Mapping[str, int]) -> str:
        """Return in words how to settle the doubt about calls. See `settling`."""
        return settling_words(*self.settling(ref, calls), len(calls))

    def questions(self, ref: str, waiting: Sequence[Waiting]) -> list[str]:
        """Return the lines that tell questions: their texts, the answers that fit, and the command that answers."""
        lines = []
        for asked in waiting:
            first, *rest = asked.question.strip().splitlines() or [""]
            lines += [f"{asked.address}: {first}", *(f"  {text}" for text in rest)]
            until = f", until {asked.until.strftime('%Y-%m-%dT%H:%M:%SZ')}" if asked.until else ""
            lines += [f"  wanted: {fitting.what_fits(asked.schema)}{until}"]
            lines += [f"  {Again(self.location).line('answer', ref, asked.address, 'VALUE')}"]
        return lines

    def _location(self) -> str | None:
        """Return the location relative to this directory; None if the command looks there by default."""
        if self.location is None or os.path.abspath(self.location) == os.path.abspath(detected() or DIRECTORY):
            return None
        below = os.path.join(os.getcwd(), "")
        return self.location.removeprefix(below) or self.location


def settling_words(answered: str, rerun: str, count: int = 1) -> str:
    """Return in words how to settle the doubt about so many calls, with the lines of `Again.settling`."""
    if count == 1:
        return f"Check whether it took effect. If it did: {answered} - if it did not: {rerun}"
    return (
        f"Check of each whether it took effect. If all did: {answered} - if none did: {rerun} - else give the --answer "
        f"of those that did and the --rerun of the others in one command"
    )


def shell_line(words: Sequence[str]) -> str:
    """Return a command with its words quoted for a shell."""
    return subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)
