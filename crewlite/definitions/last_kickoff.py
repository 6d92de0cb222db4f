"""The last kickoff of a definition, for the code that kicked it off: `task.output`, `crew.usage_metrics`, `flow.state`.

It belongs to the context of that code, not to the definition, which may run several times at once: a thread or an
asyncio task sees the results of its own kickoffs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary


class Kickoff:
    """A kickoff that was begun, and may have ended since.

    `outcome` returns its outcome; None before it has ended. `shown` makes the result that users get from the outcome.
    """

    def __init__(self, outcome: Callable[[], Any], shown: Callable[[Any], Any] = lambda outcome: outcome) -> None:
        self._outcome, self._shown = outcome, shown
        self._known: tuple[Any, Any] = (None, None)

    def result(self) -> Any:
        """Return the result, the same object each time; None if the kickoff has not ended or has no outcome."""
        outcome = self._outcome()
        if outcome is not None and self._known[0] is not outcome:
            self._known = outcome, self._shown(outcome)
        return self._known[1] if outcome is not None else None

    def handed_out(self) -> tuple[Any, Any] | None:
        """Return (the result that `result` returned, the result as made anew), to compare; None if it returned none."""
        outcome, result = self._known
        return None if outcome is None else (result, self._shown(outcome))


_LAST: ContextVar[Mapping[Any, Kickoff]] = ContextVar("crewlite_last_kickoff", default=MappingProxyType({}))


def keep(kickoffs: Mapping[Any, Kickoff]) -> None:
    """Set the last kickoffs of definitions for this context. `kickoffs` maps definitions to them."""
    known = WeakKeyDictionary(_LAST.get())  # a copy, as other contexts may share the old one
    known.update(kickoffs)
    _LAST.set(known)


def last(definition: object) -> Any:
    """Return the result of a definition's last kickoff in this context; None if there is none."""
    kickoff = _LAST.get().get(definition)
    return kickoff.result() if kickoff else None


def handed_out(definition: object) -> tuple[Any, Any] | None:
    """Return what `Kickoff.handed_out` returns for a definition's last kickoff in this context."""
    kickoff = _LAST.get().get(definition)
    return kickoff.handed_out() if kickoff else None
