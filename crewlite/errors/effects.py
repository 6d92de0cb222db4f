"""The error of a fork or a rewind that would repeat calls which may be made once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from crewlite.errors.root import CrewliteError


class RepeatedCall(NamedTuple):
    """A call with effect="once" that would be made again."""

    address: str
    arguments: str
    """The beginning of its arguments as JSON; "" if they are not recorded."""
    at: str
    """The time at which it was recorded that it is made, in ISO 8601."""
    finished: bool
    """False for a call in doubt: it was cut in the middle, has failed, or is being made."""

    def __str__(self) -> str:
        arguments = f" {self.arguments}" if self.arguments else ""
        return f"{self.address}{arguments}, {'made at' if self.finished else 'in doubt since'} {self.at[:19]}"


class EffectsRepeat(CrewliteError, RuntimeError):
    """A fork or a rewind would make calls again that are declared effect="once". Nothing was changed.

    `effects` has the calls.
    """

    code = "effects_repeat"

    def __init__(self, what: str, effects: Sequence[RepeatedCall]) -> None:
        listed = "; ".join(map(str, effects[:10])) + ("; ..." if len(effects) > 10 else "")
        super().__init__(
            f"A run that goes on from {what} may make calls again that are declared effect='once': {listed}. Nothing "
            f"was changed. If they may be made again, pass allow_effects=True (--allow-effects)."
        )
        self.what, self.effects = what, tuple(effects)
