"""What every error of crewlite is."""

from __future__ import annotations

from typing import ClassVar


class CrewliteError(Exception):
    """The root of the tree. `code` is stable across releases."""

    code: ClassVar[str] = "crewlite"


def text_of(error: BaseException) -> str:
    """What an error says, also if its own `__str__` fails."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - somebody else's __str__ may raise anything
        return f"(its text cannot be read: {type(failure).__name__})"
