"""What the code of an attempt, and of the steps in it, says of its work with `record_step` and `update_state`."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from crewlite.state.format.failed import SaidRecord


class Sayings:
    """What one attempt says: its own words, and those of the steps inside it, in the order of their requests.

    What a step says is recorded with its outcome or failure, and heard again when that answers from the record. So an
    attempt says the same in every process. Of a step that is tried again, only the last attempt is heard.
    """

    __slots__ = ("_inside", "_parts")

    def __init__(self) -> None:
        self._parts: list[SaidRecord | str] = []
        self._inside: dict[str, SaidRecord] = {}

    def say(self, part: SaidRecord) -> None:
        """Add the attempt's own words."""
        self._parts.append(part)

    def expect(self, address: str) -> None:
        """Keep the place of a step that is requested now."""
        if address not in self._inside:
            self._inside[address] = {}
            self._parts.append(address)

    def hear(self, address: str, said: SaidRecord | None) -> None:
        """Take what a step inside has said, once it has its outcome or has failed for good."""
        if said:
            self._inside[address] = said

    def record(self) -> SaidRecord | None:
        """Return all of it; None if nothing was said."""
        steps, state = list[Any](), dict[str, Any]()
        for part in self._parts:
            said: SaidRecord = self._inside.get(part, {}) if isinstance(part, str) else part
            steps += said.get("steps", ())
            state |= said.get("state", {})
        whole: SaidRecord = {}
        if steps:
            whole["steps"] = steps
        if state:
            whole["state"] = state
        return whole or None


around: ContextVar[Sayings | None] = ContextVar("crewlite_sayings_around", default=None)
"""What hears a separate run that is kicked off inside a step of another one."""
