"""Answers in JSON: one document, the names of the Python API, every datetime in UTC, unknown costs null."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

import click

from crewlite.cli.exits import writing
from crewlite.errors import JournalCorrupt
from crewlite.state.journal.lineage import UNREADABLE
from crewlite.usage import Usage

if TYPE_CHECKING:
    from crewlite.state.reading.checkpoint import Checkpoint
    from crewlite.state.run_history import RunHistory

Json = Any
_OF_A_RUN = (
    *("started_at", "base", "tasks", "kicked_off", "because", "stopped_by", "at_work", "waiting", "unused_answers"),
    *("rewinds", "definition", "inputs", "usage", "own_usage", "abandoned_usage"),
)
_OF_A_LISTED_CHECKPOINT = (
    *("id", "branch", "parent_id", "seq", "trigger", "address", "created_at", "label", "metadata"),
    *("tasks", "abandoned"),
)


def answer(document: Mapping[str, object]) -> None:
    """Print a document as JSON in ASCII, so that control characters stay escaped."""
    with writing():
        click.echo(json.dumps(plain(document), indent=2))


def plain(value: object) -> Json:
    """Return any recorded value as plain JSON. A value that JSON cannot express becomes a text."""
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Usage):
        return {**value.model_dump(), "total_tokens": value.total_tokens}
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
    return _plain_whole(value)


def _plain_whole(value: object) -> Json:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if not field.name.startswith("_")]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    dump = getattr(value, "model_dump", None)  # a registered model
    return plain(dump(mode="python")) if callable(dump) else str(value)


def of_checkpoint(checkpoint: Checkpoint) -> dict[str, object]:
    """Return a checkpoint with all its data."""
    whole = {name: getattr(checkpoint, name) for name in ("versions", "tasks")}
    return {**plain(checkpoint), "values": plain(checkpoint.values), **whole}


def of_checkpoints(checkpoints: Iterable[Checkpoint]) -> list[dict[str, object]]:
    """Return checkpoints without the fields that are the same for the complete run."""
    return [{name: getattr(one, name) for name in _OF_A_LISTED_CHECKPOINT} for one in checkpoints]


def of_run(run: RunHistory, **more: object) -> dict[str, object]:
    """Return a branch of a run. One that cannot be read has only its name, its status and a `problem`."""
    name: dict[str, object] = {"run_id": run.run_id, "branch": run.branch}
    name |= {"abandoned_by": run.abandoned_by} if run.abandoned_by else {}
    name |= {"as_of": run.as_of} if run.as_of else {}
    try:
        status = run.status
    except UNREADABLE as problem:
        return {**name, "status": status_of_unreadable(problem), "problem": str(problem)}
    return {**name, "status": status, **{part: getattr(run, part) for part in _OF_A_RUN}, **more}


def status_of_unreadable(problem: Exception) -> str:
    """Return the status of a branch that this error keeps from being read: only the system may be at fault."""
    return "damaged" if isinstance(problem, JournalCorrupt) else "unreadable"
