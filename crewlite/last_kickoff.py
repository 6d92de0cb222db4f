"""The result of the last kickoff of a definition, for the code that kicked it off: `task.output`, `crew.usage_metrics`.

It belongs to the context of that code, not to the definition, which may run several times at once: a thread or an
asyncio task sees the results of its own kickoffs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

_LAST: ContextVar[WeakKeyDictionary[Any, Any] | None] = ContextVar("crewlite_last_kickoff", default=None)


def keep(values: Mapping[Any, Any]) -> None:
    """Set the results of definitions for this context. `values` maps definitions to results."""
    known = WeakKeyDictionary(_LAST.get() or {})  # a copy, as other contexts may share the old one
    known.update(values)
    _LAST.set(known)


def last(definition: object) -> Any:
    """Return the result of a definition's last kickoff in this context; None if there was none."""
    known = _LAST.get()
    return None if known is None else known.get(definition)
