"""Raise a StoreError, which says what to do, in place of an OSError while something is saved."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from crewlite.errors import CrewliteError, StoreError


@contextlib.contextmanager
def saving(location: str, what: str) -> Iterator[None]:
    """Raise StoreError for an OSError of the block. `what` says what was not done: "the label was not saved"."""
    try:
        yield
    except OSError as error:
        if isinstance(error, CrewliteError):
            raise
        problem = f"{what} ({error}). Nothing that was saved before is lost: make the location writable, and try again"
        raise StoreError(location, problem) from error
