"""What is read of errors and objects of other code, whose own methods may raise anything.

An error that is being reported must not be replaced by one about its text, its attributes or its notes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


def text_of(error: BaseException) -> str:
    """Return the text of an error, also if its own `__str__` raises."""
    try:
        return str(error)
    except Exception as failure:  # somebody else's __str__ may raise anything
        return f"(its text cannot be read: {type(failure).__name__})"


def repr_of(error: BaseException) -> str:
    """Return the class of an error with its arguments, also if they or the class cannot be shown."""
    try:
        return f"{type(error).__name__}({', '.join(map(repr, error.args))})"
    except Exception as failure:  # somebody else's __repr__ may raise anything
        return f"{type(error).__name__} (its arguments cannot be read: {type(failure).__name__})"


def attribute_of(item: object, name: str) -> Any:
    """Return an attribute of somebody else's object, or None; also if a property or a __getattr__ raises."""
    try:
        return getattr(item, name, None)
    except Exception:  # somebody else's attribute may raise anything: what cannot be read is not there
        return None


def came_from(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors that led to this one, from the last to the first."""
    seen = set[int]()
    while (cause := error.__context__ if error.__cause__ is None else error.__cause__) is not None:
        if id(cause) in seen:
            return
        seen.add(id(cause))
        yield cause
        error = cause


def notes_of(error: BaseException) -> list[Any]:
    """Return the notes of an error; [] if they cannot be read."""
    notes = attribute_of(error, "__notes__")
    return notes if isinstance(notes, list) else []


def add_note(error: BaseException, note: str, *, in_place_of: str = "") -> None:
    """Add a note to an error, unless its class takes none: it may be frozen, or have notes of its own kind.

    It replaces earlier notes that begin with `in_place_of`.
    """
    with contextlib.suppress(Exception):  # the error itself is raised, and must not be replaced by one about its notes
        if in_place_of:
            error.__notes__ = [one for one in notes_of(error) if not str(one).startswith(in_place_of)]
        error.add_note(note)
