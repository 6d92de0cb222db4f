"""Listing: how long until a page of checkpoints is there, however many there are.

Stores are filled through their port with runs of 1,000 commits, every one of which names a checkpoint, as runs do. Then
a location is opened with History and asked for its places, newest first: all of 10,000; and, of 100,000, a page of 100
at the beginning, one in the middle, and the first ten in a row. Opening is timed, filling is not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measure import Row, in_turns, median_ms, scratch
from benchmarks.scenes import KINDS, Kind, stored
from crewlite import CheckpointConfig, History
from crewlite.testing.bench import Branch

_ROUNDS = 9
_RUN = 1000
_PAGE = 100
_TARGETS = {"sqlite": 300.0, "json": 1000.0}


def measure() -> Iterator[Row]:
    for kind in KINDS:
        directory = scratch()
        config, _ = _filled(kind, directory, 10_000)
        yield _row(f"{kind}: all of 10,000 places", lambda config=config: _all(config, 10_000), _TARGETS[kind])
    directory = scratch()
    config, ids = _filled("sqlite", directory, 100_000)
    middle = ids[len(ids) // 2]
    yield _row("sqlite: first 100 of 100,000 places", lambda: _pages(config, None, 1), 300)
    yield _row("sqlite: 100 in the middle of 100,000", lambda: _pages(config, middle, 1), 300)
    yield _row("sqlite: ten pages, the first 1,000 of 100,000", lambda: _pages(config, None, 10), 300)


def _filled(kind: Kind, directory: Path, count: int) -> tuple[CheckpointConfig, list[str]]:
    """A location with `count` places, and their ids, oldest first."""
    config, ids = stored(kind, directory), []
    with contextlib.closing(config.provider.open(config.location)) as store:
        for number in range(count // _RUN):
            branch = Branch(f"run-{number}").add()
            ids += [branch.checkpoint()["id"] for _ in range(_RUN)]
            store.append([branch.commit()])
    return config, ids


def _row(title: str, work: Callable[[], None], target: float) -> Row:
    (times,) = in_turns(_ROUNDS, work)
    return Row(title, median_ms(times), "ms", target)


def _all(config: CheckpointConfig, count: int) -> None:
    with History(config.location, config.provider) as history:
        found = history.checkpoints()
    assert len({place.id for place in found}) == count, f"{len(found)} places were listed, of {count:,}"


def _pages(config: CheckpointConfig, before: str | None, pages: int) -> None:
    with History(config.location, config.provider) as history:
        for _ in range(pages):
            found = history.checkpoints(limit=_PAGE, before=before)
            assert len(found) == _PAGE, f"a page of {len(found)}"
            before = found[-1].id
