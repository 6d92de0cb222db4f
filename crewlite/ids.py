"""Identifiers that sort by the time they were made.

A UUID version 7 (RFC 9562) as 32 hexadecimal digits: 48 bits of Unix milliseconds, 12 bits that count within a
millisecond so that ids of one process never sort backwards, 62 random bits. The last eight digits are random, so they
serve as the short form people read and type.
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime

from crewlite.forked import in_child, lock

_lock = lock()
_last = 0
_chance = random.Random()  # noqa: S311 - seeded by the system, which is too slow to be asked each time; no secret


def new_id() -> str:
    """A new id: 32 hexadecimal digits, greater than every id this process made before."""
    global _last
    with _lock:
        _last = stamp = max(_last + 1, (time.time_ns() // 1_000_000) << 12)
        drawn = _chance.getrandbits(62)
    value = (stamp >> 12) << 80 | 7 << 76 | (stamp & 0xFFF) << 64 | 2 << 62 | drawn
    return f"{value:032x}"


@in_child
def _draw_otherwise() -> None:
    _chance.seed()  # a child must not draw what its parent draws


def short(identifier: str) -> str:
    """The last eight characters: what is shown, and accepted wherever an id is."""
    return identifier[-8:]


def now() -> datetime:
    """The time, aware and in UTC."""
    return datetime.now(UTC)
