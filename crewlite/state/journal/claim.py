"""Claims: which process writes a branch. A claim is part of the commit with which a run starts or resumes.

That commit moves the head of the branch, so the store refuses the next commit of an earlier holder, and two processes
never write a branch at once. A claim ends when its holder ends the run, releases the branch, closes its event loop, or
dies. A process on this machine is looked up by its number and start time; one on another machine is presumed dead after
30 seconds without a sign of life. Host names alone prove nothing, as machines and containers may share one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from functools import cache
from pathlib import Path

from crewlite.ids import new_id
from crewlite.state.format.commit import Claim
from crewlite.system.steady_clock import steady

SILENCE = 30.0  # seconds after which a holder on another machine is presumed dead
BEAT = 10.0  # seconds between signs of life


_held: dict[str, asyncio.AbstractEventLoop | None] = {}
"""The claims that this process holds: by id, the loop of the run. A run whose loop was closed never goes on."""

_ahead: dict[str, tuple[float, float]] = {}
"""By the id of a claim: its sign of life that is in the future, as clocks differ, and when this process saw it."""


def claim(loop: asyncio.AbstractEventLoop | None = None) -> Claim:
    """Build a claim of this process. It is held until `release`, or until the `loop` of the run is closed."""
    me, name = os.getpid(), new_id()
    _held[name] = loop
    return {"id": name, "host": socket.gethostname(), "boot": _boot(), "pid": me, "started": _own_start(me)}


def release(claim: Claim) -> None:
    """Mark a claim of this process as no longer held."""
    _held.pop(claim["id"], None)


def is_held(claim: Claim, touched: float) -> bool:
    """Return whether the holder of a claim seems alive. `touched`: its last sign of life, seconds since the epoch."""
    if claim["boot"] == _boot() and (_boot() or claim["host"] == socket.gethostname()) and os.name == "posix":
        if _is_own(claim):
            return not is_left(claim)
        return _runs(claim["pid"], claim["started"], heard=_is_heard(claim, touched))
    if claim["host"] == socket.gethostname() and touched < _booted():
        return False  # this machine was restarted since then
    return _is_heard(claim, touched)


def is_left(claim: Claim) -> bool:
    """Return whether a claim is of this process, which holds it no longer."""
    loop = _held.get(claim["id"])
    return _is_own(claim) and (claim["id"] not in _held or (loop is not None and loop.is_closed()))


def held_by(claim: Claim | None, touched: float) -> str | None:
    """Return the live process that holds a claim, such as "process 7 on lamp" (its host); None if none does."""
    return f"process {claim['pid']} on {claim['host']}" if claim and is_held(claim, touched) else None


def _is_own(claim: Claim) -> bool:
    """Return whether a claim is of this process."""
    me = os.getpid()
    return claim["boot"] == _boot() and claim["pid"] == me and claim["started"] == _own_start(me)


def _is_heard(claim: Claim, touched: float) -> bool:
    """Return whether a holder's last sign of life is recent. One in the future counts from when it was first read."""
    if touched <= time.time():
        return time.time() - touched < SILENCE
    seen = _ahead.get(claim["id"])
    if seen is None or seen[0] != touched:
        seen = _ahead[claim["id"]] = (touched, steady())
    return steady() - seen[1] < SILENCE


def _runs(pid: int, started: int | None, *, heard: bool) -> bool:
    """Return whether the process of a claim runs. Where start times are unknown, a recent sign of life decides."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it runs, as another user
    found = _start(pid)
    return heard if started is None or found is None else found == started


@cache
def _own_start(pid: int) -> int | None:
    """Return `_start(pid)` of this process. The cache is keyed by `pid`, so that a forked child computes its own."""
    return _start(pid)


@cache
def _boot() -> str:
    """Return a name for the current boot of this machine and for its process namespace; "" if there is none."""
    try:
        numbers = os.readlink("/proc/self/ns/pid")
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {numbers}"
    except OSError:
        return ""  # not Linux: there is only the process number


def _booted() -> float:
    """Return the time at which this machine was started, in seconds since the epoch; 0 if unknown."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)  # the only clock that continues while the machine sleeps
    return time.time() - time.clock_gettime(clock) if clock is not None else 0.0


def _start(pid: int) -> int | None:
    """Return the time at which a process was started, in ticks since the boot; None if unknown, -1 if it is dead."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return -1 if state in "ZX" else int(fields[18])
