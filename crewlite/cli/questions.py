"""Print the questions that a run waits with: their text, the answers that fit, and the command that answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from crewlite.state.reading.wanted import what_fits

if TYPE_CHECKING:
    from crewlite.state.run_history import Waiting


def told(waiting: Sequence[Waiting], line: Callable[[str], str]) -> list[str]:
    """Return the lines to print. `line` returns the command that answers the question at an address."""
    lines = []
    for question in waiting:
        first, *rest = question.question.strip().splitlines() or [""]
        lines += [f"{question.address}: {first}", *(f"  {text}" for text in rest)]
        wanted = f"{what_fits(question.schema)}"
        if question.until:
            wanted += f", until {question.until.strftime('%Y-%m-%dT%H:%M:%SZ')}"
        lines += [f"  wanted: {wanted}", f"  {line(question.address)}"]
    return lines
