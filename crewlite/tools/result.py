"""The result of a tool call: how it is recorded, and what of it the model and people are shown.

Results are recorded whole. What is left out follows from the text and the limit alone, so a resumed agent reads the
same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from crewlite.encoding import codec
from crewlite.texts.wording import cut

_ARGUMENTS = 120  # characters
_HEAD = 2 / 3  # of the limit; the rest is the tail


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model is told. `error` is the type of what went wrong, if anything did."""

    text: str
    error: str | None = None
    reusable: str | None = None
    """If it may answer the same call again: the digest of the arguments (`key_of`)."""
    cached: str | None = None
    """The address of the earlier call whose result this is."""
    note: str | None = None
    """What the model is told besides the result: that a person has changed the arguments."""
    raised: Exception | None = field(default=None, compare=False)
    """What the tool raised just now. Not recorded."""

    @classmethod
    def failed(cls, tool: str, raised: Exception, reason: str) -> ToolResult:
        """What the model is told of a tool that has raised an error."""
        return cls(f"Tool {tool} failed: {reason}", type(raised).__name__, raised=raised)

    @property
    def told(self) -> str:
        """All that the model is told."""
        return f"{self.note}\n{self.text}" if self.note else self.text

    @property
    def reason(self) -> str:
        """Why the tool failed, without its name and the type of the error."""
        _, failed, reason = self.text.partition(" failed: ")
        return (reason if failed else self.text).removeprefix(f"{self.error}: ")

    def encode(self) -> dict[str, Any]:
        """Return the recorded form of the result."""
        more = {"error": self.error, "reusable": self.reusable, "cached": self.cached, "note": self.note}
        return {"text": self.text} | {name: value for name, value in more.items() if value}

    @classmethod
    def decode(cls, data: Any) -> ToolResult:
        """Build a result from its recorded form. Raises LookupError or TypeError for data of another form."""
        return cls(data["text"], data.get("error"), data.get("reusable"), data.get("cached"), data.get("note"))


def key_of(description: str, arguments: dict[str, Any]) -> str:
    """Return a digest of a call: its arguments in any order, and the description, as tools may share a name."""
    return codec.digest([description, json.dumps(codec.encode(arguments), sort_keys=True)])


def shortened(text: str, limit: int | None, address: str) -> str:
    """`text`, or its head and tail of `limit` characters together, with a line between them that says so.

    >>> head, note, tail = shortened("abcdefghijkl", 6, "task:t/tool:read").splitlines()
    >>> head, tail, note[:60]
    ('abcd', 'kl', '[6 of 12 characters are left out here. The whole is recorded')
    """
    if limit is None or len(text) <= limit:
        return text
    head = round(limit * _HEAD)
    tail = limit - head
    note = (
        f"[{len(text) - limit:,} of {len(text):,} characters are left out here. The whole is recorded at {address}. "
        f"To read more of it, call the tool again with narrower arguments.]"
    )
    return f"{text[:head]}\n{note}\n{text[-tail:]}"


def shown_arguments(arguments: object, mask: Callable[[str], str] = str) -> str:
    """The beginning of the arguments of a call, as JSON. `mask` hides secrets in a text."""
    return cut(mask(json.dumps(arguments, ensure_ascii=False, default=str)), _ARGUMENTS)
