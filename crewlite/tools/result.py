"""What a call came to, and how it is recorded."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from crewlite import codec


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
    """What the model is told beside the result: that a person has changed the arguments."""
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
    """A digest of a call: the arguments, whatever their order, and what tells tools of one name from each other."""
    return codec.digest([description, json.dumps(codec.encode(arguments), sort_keys=True)])
