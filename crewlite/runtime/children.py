"""The ledger of one running step: which child steps its code asked for, and what came of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crewlite.errors import AnswerRefused, Suspended
from crewlite.runtime.numbering import Numbering
from crewlite.runtime.siblings import Siblings
from crewlite.runtime.turns import Turns
from crewlite.state.format.kept import Order
from crewlite.state.journal.view import View

_SHORTEST_REFERENCE = 64  # characters; a shorter text is no longer than the reference to it


class Children:
    """The child steps of one attempt of a step."""

    __slots__ = (
        "asked",
        "blocked",
        "drifted",
        "driven",
        "failed",
        "numbering",
        "spawned",
        "suspended",
        "texts",
        "turns",
        "unasked",
        "view",
    )

    def __init__(self, prefix: str, recorded: Iterable[str]) -> None:
        self.numbering = Numbering(prefix)
        """Gives them their addresses, which begin with `prefix`."""
        self.unasked = set(recorded)
        """Recorded ones that have not been asked for yet."""
        self.asked: dict[str, str] = {}
        """Those asked for, in order, with the digests of their outcomes; "" without one."""
        self.driven: set[str] = set()
        """Those that were awaited or spawned, not only asked for."""
        self.failed: dict[str, BaseException] = {}
        """Those that failed, with their errors; the latest last."""
        self.suspended: Suspended | AnswerRefused | None = None
        """One of them waits for a person."""
        self.blocked: Suspended | AnswerRefused | None = None
        """The same, once the code of the parent was told: behind that it begins nothing more, on any machine."""
        self.drifted: list[str] = []
        """Steps among and inside them whose answers were kept, though they are asked something else."""
        self.texts: dict[str, str] = {}
        """Long texts that they recorded, each with its address: what the parent's outcome refers to."""
        self.view: View | None = None
        """The state as this attempt sees it, with what they have changed."""
        self.turns: Turns | None = None
        """Recorded ones that have changed it, and are about to be handed over."""
        self.spawned: Siblings | None = None
        """Those that were begun and not awaited on the spot."""

    def record_child(self, address: str, digest: str, data: Any, drifted: Iterable[str] = ()) -> None:
        """Note the outcome of one, and what in it answers another question than is asked."""
        self.asked[address] = digest
        self.drifted += drifted
        text = data.get("text") if isinstance(data, dict) else None
        if isinstance(text, str) and len(text) >= _SHORTEST_REFERENCE:
            self.texts.setdefault(text, address)

    def unobserved(self) -> list[str]:
        """Spawned steps whose failures nobody awaited."""
        return self.spawned.unobserved() if self.spawned else []

    def is_alone(self, address: str) -> bool:
        """Whether no other is under way, and the code was handed the results of all others."""
        handed = self.view.handed if self.view else ()
        return all(at == address or at in handed or at in self.failed for at in list(self.asked))

    def enter_turn(self, address: str, order: Order) -> Turns:
        """A recorded one, which has changed the state, is about to be handed over."""
        if self.turns is None:
            self.turns = Turns()
        self.turns.enter(address, order)
        return self.turns

    def siblings(self) -> Siblings:
        """The steps that go on side by side here."""
        if self.spawned is None:
            self.spawned = Siblings()
        return self.spawned
