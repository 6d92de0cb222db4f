"""Identifiers that sort by the time of their creation.

An id is a UUID version 7 (RFC 9562) as 32 hexadecimal digits: 48 bits of Unix milliseconds, a counter of 12 bits, so
that ids of one process always increase, and 62 random bits. The last eight digits are random, and serve as the short
form that people read and type.
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta

from crewlite.system.forked import in_child, lock

_CENTURY = 3_155_760_000.0  # seconds
_LARGEST = 2**60 - 1  # the greatest number of an id: 48 bits of milliseconds, 12 bits of a counter
_lock = lock()
_last = 0
_second = 0, ""
"""The second that `now_text` rendered last, and its text."""
_chance = random.Random()  # noqa: S311 - ids are no secrets, and the system's own generator is slow


def new_id(behind: str | None = None) -> str:
    """Return a new id: 32 hexadecimal digits, greater than every earlier id that this process made without `behind`.

    `behind`: an id that the new one is to be greater than, even if the clock was set back after that was made.
    """
    global _last
    with _lock:
        stamp = time.time_ns() // 1_000_000 << 12
        _last = stamp = stamp if stamp > _last else _last + 1
        drawn = _chance.getrandbits(62)
    if behind:
        stamp = min(max(stamp, int(behind[:12] + behind[13:16], 16) + 1), _LARGEST)
    whole = (stamp >> 12) << 80 | 7 << 76 | (stamp & 0xFFF) << 64 | 2 << 62 | drawn
    return whole.to_bytes(16, "big").hex()  # formatting the number itself takes twice as long


@in_child
def _draw_otherwise() -> None:
    _chance.seed()  # so that a child does not draw the same numbers as its parent


SHORT = 8
"""The number of characters of an id that are shown, and the fewest that a ref may consist of."""


def short(identifier: str) -> str:
    """Return the last eight characters of an id: the form that is shown, and accepted wherever an id is."""
    return identifier[-SHORT:]


def now() -> datetime:
    """Return the current time in UTC, as an aware datetime."""
    return datetime.now(UTC)


def after(moment: datetime, seconds: float) -> datetime:
    """Return the moment so many seconds later. More than a century counts as one: years end at 9999."""
    return moment + timedelta(seconds=min(seconds, _CENTURY))


def now_text() -> str:
    """Return `now().isoformat()`, always with microseconds. Three times as fast."""
    global _second
    second, micro = divmod(time.time_ns() // 1000, 1_000_000)
    known, text = _second
    if known != second:
        text = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}"
        _second = second, text
    return f"{text}.{micro:06d}+00:00"
