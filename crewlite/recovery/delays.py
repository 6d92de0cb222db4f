"""How long to wait before the next attempt. Pure: the jitter follows from the address of the step, not from chance."""

from __future__ import annotations

import hashlib

from crewlite.recovery.failure import Failure


def delay(failure: Failure, tries: int, base: float, cap: float) -> float:
    """Return the seconds to wait after `tries` earlier retries: `base`, doubled by each of them, up to `cap`.

    A service that asks for a longer wait gets it, up to `cap`. An empty reply is asked for again at once.
    """
    if failure.kind == "empty":
        return 0.0
    seed = int.from_bytes(hashlib.blake2b(f"{failure.address}/{tries}".encode(), digest_size=4).digest(), "big")
    chance = seed / 2**32  # spreads the retries of runs that failed at the same time
    if failure.retry_after is not None:
        return min(failure.retry_after * (1 + chance / 10), cap)  # not sooner than the service asked, up to `cap`
    return min(base * 2.0 ** min(tries, 60), cap) * (1 + chance) / 2
