"""What a run prints on stdout: its result alone, or with --json one line of JSON per event and one with the result."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, TextIO

from pydantic import BaseModel

from crewlite import kinds
from crewlite.cli.checkpoint.document import plain
from crewlite.cli.checkpoint.words import compact
from crewlite.cli.exits import writing
from crewlite.console.text import printable
from crewlite.events.base import BaseEvent
from crewlite.events.event_bus import event_bus
from crewlite.lazy import lazy
from crewlite.system.forked import lock
from crewlite.usage import Usage

rich = lazy("rich.console")
_ALWAYS = ("type", "address", "run_id", "branch", "timestamp", "resumed")
_LEFT_OUT = {*BaseEvent.model_fields, "messages", "task_prompt", "traceback", "task_description"}
_LONGEST = 2_000  # characters of a text within an event


class Output:
    """Stdout as it was when the command began."""

    def __init__(self, out: TextIO, as_json: bool) -> None:
        self._out, self._as_json = out, as_json
        self._reader_is_gone = False
        self._lock = lock()

    def result(self, result: Any, kind: kinds.Kind, **about: Any) -> None:
        """Print what a run of this kind returned: its answer; of a flow text as it is, nothing for None, else JSON."""
        if kind is kinds.FLOW:
            text = result if result is None or isinstance(result, str) else compact(result)
            self.put("result", text, value=result, **about)
        elif kind is kinds.TRIAL:
            self.put("result", str(result), value=result, **about)
        else:
            self.put("result", str(result), raw=str(result), **about)

    def put(self, kind: str, text: str | None, **data: Any) -> None:
        """Print a text, or nothing for None; with --json one line of JSON with these data."""
        if self._as_json:
            self.tell({"type": kind, **data})
        elif text is not None:
            self._text(text)

    def tell(self, data: dict[str, Any]) -> None:
        """Print one line of JSON."""
        self._print(json.dumps(plain(data)))

    def hear(self, data: dict[str, Any]) -> None:
        """Print one line of JSON, from any thread. Once the reader has closed the stream, further lines are dropped."""
        line = json.dumps(plain(data))
        with self._lock:
            if self._reader_is_gone:
                return
            try:
                self._out.write(f"{line}\n")
                self._out.flush()
            except (OSError, ValueError):  # the run continues without its reader
                self._reader_is_gone = True

    @contextlib.contextmanager
    def events(self) -> Iterator[None]:
        """Print all events in the block as lines of JSON, one for each, as it happens."""
        with event_bus.on(BaseEvent, lambda _, event: self.hear(as_data(event))):
            yield

    def _text(self, text: str) -> None:
        if self._out.isatty():
            console = rich.Console(file=self._out)
            text = "\n".join(printable(line.replace("\t", "    "), console) for line in text.split("\n"))
        encoding = getattr(self._out, "encoding", None) or "utf-8"
        self._print(text.encode(encoding, "backslashreplace").decode(encoding))

    def _print(self, text: str) -> None:
        """Print a text unchanged: click would remove colours from a text that goes into a pipe."""
        with writing():
            self._out.write(f"{text}\n")
            self._out.flush()


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
    return str(value) if isinstance(value, BaseModel) and not isinstance(value, Usage) else plain(value)
