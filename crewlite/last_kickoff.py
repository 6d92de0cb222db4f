"""What the last kickoff of a definition came to, for the code that kicked it off: `task.output`, `crew.usage_metrics`.

It is kept by the context of that code, not by the definition, which may run many times at once: a thread or a task of a
loop sees what it kicked off itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

_LAST: ContextVar[WeakKeyDictionary[Any, Any] | None] = ContextVar("crewlite_last_kickoff", default=None)


def keep(values: Mapping[Any, Any]) -> None:
    """What definitions came to, as this context sees it from now on."""
    known = WeakKeyDictionary(_LAST.get() or {})  # another context may go on with the one that is there
    known.update(values)
    _LAST.set(known)


def last(definition: object) -> Any:
    """What it came to when this context last kicked it off; None if it has not."""
    known = _LAST.get()
    return None if known is None else known.get(definition)
