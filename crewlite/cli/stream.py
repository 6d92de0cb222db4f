"""Events as JSON lines for another process: one line for each event, as it happens."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, TextIO

from pydantic import BaseModel

from crewlite.cli.checkpoint import document
from crewlite.events.base import BaseEvent
from crewlite.events.event_bus import event_bus
from crewlite.forked import lock

_ALWAYS = ("type", "address", "run_id", "branch", "timestamp", "resumed")
_LEFT_OUT = {*BaseEvent.model_fields, "messages", "task_prompt", "traceback", "task_description"}
_LONGEST = 2_000  # characters of a text within an event


@contextlib.contextmanager
def told(out: TextIO) -> Iterator[Stream]:
    """Write all events in the block to a stream as JSON lines."""
    stream = Stream(out)
    with event_bus.on(BaseEvent, lambda _, event: stream.tell(as_data(event))):
        yield stream


class Stream:
    """Writes JSON lines, from any thread. Once the reader has closed the stream, further lines are dropped."""

    def __init__(self, out: TextIO) -> None:
        self._out: TextIO | None = out
        self._lock = lock()

    def tell(self, data: dict[str, Any]) -> None:
        """Write one line."""
        line = json.dumps(document.plain(data))
        with self._lock:
            if self._out is None:
                return
            try:
                self._out.write(f"{line}\n")
                self._out.flush()
            except (OSError, ValueError):  # the reader has gone; the run continues without it
                self._out = None


def as_data(event: BaseEvent) -> dict[str, Any]:
    """Return an event as small plain data without live objects. Long texts are cut, and "cut" names their fields."""
    data: dict[str, Any] = {name: _small(getattr(event, name)) for name in _ALWAYS}
    if not event.resumed:
        del data["resumed"]
    cut = []
    for name in type(event).model_fields:
        if name in _LEFT_OUT:
            continue
        value = _small(getattr(event, name))
        if isinstance(value, str) and len(value) > _LONGEST:
            value = f"{value[: _LONGEST - 3]}..."
            cut.append(name)
        data[name] = value
    return data | ({"cut": cut} if cut else {})


def _small(value: object) -> Any:
    """Return a result as its text, and other values as plain data."""
    return str(value) if isinstance(value, BaseModel) else document.plain(value)
