"""Pruning: how much of a store is left when only the newest checkpoints are kept.

Runs of 400 tasks that each ask a model once. Kept are the ten newest checkpoints: by `max_checkpoints` while the run is
at work, and by `History.prune` afterwards. Values are the bytes of all files, over those of the same run with all its
checkpoints: outcomes, usage and events stay whatever is pruned, so this is no small part. A database keeps what it has
freed for its next entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import Row, scratch
from benchmarks.scenes import KINDS, Kind, answering, crew_of, size, stored
from crewlite import CheckpointConfig, History

_TASKS = 400
_KEPT = 10


def measure() -> Iterator[Row]:
    for kind in KINDS:
        directory = scratch()
        limited = size(_ran(kind, directory / "limited", max_checkpoints=_KEPT)[0])
        where, config = _ran(kind, directory / "whole")
        before = size(where)
        with History(config.location, config.provider) as history:
            history.prune(keep_last=_KEPT, dry_run=True)
            assert size(where) == before, "a dry run wrote"
            freed = history.prune(keep_last=_KEPT).freed
        after = size(where)
        told = f"{_of(after, before)}; it told of {freed:,} B freed in journals"
        yield Row(f"{kind}: bytes left with max_checkpoints={_KEPT}", limited / before, "x", None, _of(limited, before))
        yield Row(f"{kind}: bytes left after prune(keep_last={_KEPT})", after / before, "x", None, told)


def _ran(kind: Kind, directory: Path, **limits: Any) -> tuple[Path, CheckpointConfig]:
    directory.mkdir()
    config = stored(kind, directory, **limits)
    crew_of(_TASKS, answering(), checkpoint=config).kickoff(run_id="report")
    return directory, config


def _of(left: int, before: int) -> str:
    return f"{left:,} B of {before:,} B, {_TASKS} tasks"
