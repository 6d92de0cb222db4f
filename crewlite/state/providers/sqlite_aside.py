"""SQL of a repair: what is damaged moves to the table `aside`, which nothing else looks at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from crewlite.ids import now
from crewlite.state.entry import Entry
from crewlite.state.providers.sqlite import PUT_PLACE

Statement = tuple[str, tuple[Any, ...]]

PLACES = "SELECT id, seq, parent_id, trigger, address, label, created_at, sum FROM place WHERE branch_id=?"
STRANGERS = (
    "SELECT branch_id, id, seq, parent_id, trigger, address, label, created_at, sum FROM place "
    "WHERE branch_id NOT IN (SELECT id FROM branch)"
)
_MAKE: Statement = (
    "CREATE TABLE IF NOT EXISTS aside (at TEXT, why TEXT, run_id TEXT, branch TEXT, seq INTEGER, sum TEXT, body BLOB)",
    (),
)
_PUT = "INSERT INTO aside (at, why, run_id, branch, seq, sum, body) VALUES (?,?,?,?,?,?,?)"
_MOVE = "INSERT INTO aside (at, why, run_id, branch, seq, sum, body) SELECT ?, ?, ?, ?, seq, sum, body FROM entry "


def make_place(number: int, row: tuple[Any, ...]) -> Statement:
    """Make the row of a checkpoint again."""
    return PUT_PLACE, (number, *row)


def entry_without_place(number: int, entry: Entry, why: str, run_id: str, branch: str) -> list[Statement]:
    """Set aside a copy of an entry, and put one in its place that drops the checkpoint it named."""
    told = (now().isoformat(), why, run_id, branch)
    return [
        _MAKE,
        (f"{_MOVE} WHERE branch_id=? AND seq=?", (*told, number, entry.seq)),
        ("UPDATE entry SET sum=?, body=? WHERE branch_id=? AND seq=?", (entry.seal, entry.body, number, entry.seq)),
        *(("DELETE FROM place WHERE id=?", (gone,)) for gone, _ in entry.facts["drops"]),
    ]


def entries_aside(number: int, after: int, why: str, run_id: str, branch: str, head: Sequence[Any]) -> list[Statement]:
    """Set aside the entries of a branch whose number is greater than `after`, and where its head was."""
    told = (now().isoformat(), why, run_id, branch)
    return [
        _MAKE,
        (_PUT, (*told, *head, None)),
        (f"{_MOVE} WHERE branch_id=? AND seq > ?", (*told, number, after)),
        ("DELETE FROM entry WHERE branch_id=? AND seq > ?", (number, after)),
    ]


def branch_aside(number: int, why: str, run_id: str, branch: str, head: Sequence[Any]) -> list[Statement]:
    """Set aside a branch as a whole."""
    told = (now().isoformat(), why, run_id, branch)
    return [
        _MAKE,
        (_PUT, (*told, *head, None)),
        (f"{_MOVE} WHERE branch_id IS ?", (*told, number)),
        ("DELETE FROM entry WHERE branch_id IS ?", (number,)),
        ("DELETE FROM place WHERE branch_id=?", (number,)),
        ("DELETE FROM branch WHERE id=?", (number,)),
    ]


def place_aside(run_id: str, branch: str, row: Sequence[Any]) -> list[Statement]:
    """Set aside the row of a checkpoint."""
    told = (now().isoformat(), "no such checkpoint", run_id, branch)
    return [
        _MAKE,
        (_PUT, (*told, row[1], row[0], json.dumps(row, default=repr).encode())),
        ("DELETE FROM place WHERE id=?", (row[0],)),
    ]
