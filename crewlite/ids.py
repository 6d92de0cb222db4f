"""Identifiers that sort by the time they were made.

A UUID version 7 (RFC 9562) as 32 hexadecimal digits: 48 bits of Unix milliseconds, 12 bits that count within a
millisecond so that ids of one process never sort backwards, 62 random bits. The last eight digits are random, so they
serve as the short form people read and type.
"""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime

_lock = threading.Lock()
_last = 0


def new_id() -> str:
    """A new id: 32 hexadecimal digits, greater than every id this process made before."""
    global _last
    with _lock:
        _last = max(_last + 1, (time.time_ns() // 1_000_000) << 12)
        stamp = _last
    random = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    value = (stamp >> 12) << 80 | 7 << 76 | (stamp & 0xFFF) << 64 | 2 << 62 | random
    return f"{value:032x}"


def short(identifier: str) -> str:
    """The last eight characters: what is shown, and accepted wherever an id is."""
    return identifier[-8:]


def now() -> datetime:
    """The time, aware and in UTC."""
    return datetime.now(UTC)
