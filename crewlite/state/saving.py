"""An OSError while something is saved becomes a StoreError, which says what to do."""

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
        problem = f"{what} ({error}). Nothing is lost: make sure that it can be written, and repeat this"
        raise StoreError(location, problem) from error
