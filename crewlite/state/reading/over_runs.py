"""Walk over many runs: one that cannot be read is skipped with a warning, and the others are done all the same.

Every verb about all runs of a location goes through `each`, so that one damaged run never ends a job for all others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from crewlite.errors import CrewliteError, RefError, StoreBusy, StoreUnusable
from crewlite.state.journal.lineage import UNREADABLE
from crewlite.state.providers import BranchInfo

T = TypeVar("T")
log = logging.getLogger("crewlite.run")


def each(
    branches: Iterable[BranchInfo],
    read: Callable[[BranchInfo], T],
    errors: type[CrewliteError] | tuple[type[CrewliteError], ...] = UNREADABLE,
    *,
    skipped: list[str] | None = None,
) -> Iterator[T]:
    """Yield what `read` returns for each branch of a listing. Skip one for which it raises one of these errors.

    A warning names the run and says what to do, and the run's id is added to `skipped`. A branch that was deleted since
    it was listed is left out. Raises StoreBusy and StoreUnusable, which are about a complete location.
    """
    for info in branches:
        try:
            found = read(info)
        except (StoreBusy, StoreUnusable):
            raise
        except errors as problem:
            about = {"run_id": info.run_id}
            log.warning("run %s cannot be read and is skipped: %s", info.run_id, problem, extra=about)
            if skipped is not None:
                skipped.append(info.run_id)
        except RefError:
            continue
        else:
            yield found
