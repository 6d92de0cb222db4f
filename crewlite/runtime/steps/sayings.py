"""Sayings: what the code of an attempt, and of the steps in it, reports with `record_step` and `update_state`."""

from __future__ import annotations

from typing import Any

from crewlite.state.format.failed import SaidRecord


class Sayings:
    """The sayings of one attempt and of the steps inside it, in the order in which the steps were requested.

    Those of a step are recorded with its outcome or failure, and received again when the record answers for the step.
    So an attempt has the same sayings in every process. Of a step that is tried again, only the last attempt counts.
    """

    __slots__ = ("_inside", "_parts")

    def __init__(self) -> None:
        self._parts: list[SaidRecord | str] = []
        self._inside: dict[str, SaidRecord] = {}

    def say(self, part: SaidRecord) -> None:
        """Add what the attempt's own code has reported."""
        self._parts.append(part)

    def expect(self, address: str) -> None:
        """Keep a place in the order for the sayings of a step that is requested now."""
        if address not in self._inside:
            self._inside[address] = {}
            self._parts.append(address)

    def receive(self, address: str, said: SaidRecord | None) -> None:
        """Receive the sayings of a step inside, once the step has its outcome or has failed finally."""
        if said:
            self._inside[address] = said

    def record(self) -> SaidRecord | None:
        """Return all sayings, merged in order; None if there are none."""
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
