"""The differences between two runs as a page of HTML, and the parts of it that other pages share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crewlite.pages.rendering import rendered
from crewlite.state.comparing.fields import FieldDiff
from crewlite.state.comparing.text import counts
from crewlite.state.comparing.words import marked

FOLDER = "crewlite/state/comparing"
"""The folder of the templates. In parts.html.j2 `compared(diff)` shows a RunDiff, with the values of `for_parts`."""


def page(diff: object) -> str:
    """Return the page of a RunDiff."""
    return rendered("diff.html.j2", FOLDER, diff=diff, **for_parts())


def for_parts() -> dict[str, Any]:
    """Return the functions that parts.html.j2 uses, for one page."""
    return {"marked": marked, "counts": counts, "first_shown": _first_shown()}


def _first_shown() -> Callable[[object, str, FieldDiff], str | None]:
    """Return a function of (diff, address, field): the earlier step with this same difference, None the first time."""
    seen: dict[tuple[int, tuple[str, ...]], str] = {}

    def find(diff: object, address: str, field: FieldDiff) -> str | None:
        earlier = seen.setdefault((id(diff), field.lines), address)
        return None if earlier == address else earlier

    return find
