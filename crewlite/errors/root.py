"""What every error of crewlite is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class CrewliteError(Exception):
    """The root of the tree. `code` is stable across releases."""

    code: ClassVar[str] = "crewlite"
    ends_run: bool = False
    """Raised inside a tool, it ends the run: the model cannot mend it. Any other error is told to the model."""


def ends_run(error: BaseException) -> bool:
    """Whether an error that a tool raised is for the author of the program, rather than for the model."""
    return isinstance(error, CrewliteError) and error.ends_run


def text_of(error: BaseException) -> str:
    """What an error says, also if its own `__str__` fails."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - somebody else's __str__ may raise anything
        return f"(its text cannot be read: {type(failure).__name__})"


def meant(name: str, known: Iterable[str]) -> str:
    """For a message about a misspelt name: "did you mean 'x'?"; empty where none is like it."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else ""
