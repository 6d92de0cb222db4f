"""Who writes a branch: a claim is part of the commit with which a run begins or goes on.

A claim moves the head of the branch, so two processes cannot hold it: the store refuses the next commit of the earlier
holder. A claim ends when its holder ends the run, releases the branch, or dies. On this machine the process is looked
up; elsewhere it is presumed dead after 30 seconds without a sign of life. A host name proves nothing: machines and
containers may share one.
"""

from __future__ import annotations

import os
import socket
import time
from functools import cache
from pathlib import Path

from crewlite.ids import new_id
from crewlite.state.format.commit import Claim

SILENCE = 30.0  # seconds after which a holder on another machine is presumed dead
BEAT = 10.0  # seconds between signs of life


_held: set[str] = set()  # the claims of this process that it has not let go of


def claim() -> Claim:
    """A claim of this process, until `release`."""
    me, name = os.getpid(), new_id()
    _held.add(name)
    return {"id": name, "host": socket.gethostname(), "boot": _boot(), "pid": me, "started": _own_start(me)}


def release(claim: Claim) -> None:
    """What held a claim of this process is no longer at work."""
    _held.discard(claim["id"])


def holds(claim: Claim, touched: float) -> bool:
    """Whether the holder of a claim is alive, for all that can be known; `touched` is its last sign of life."""
    heard = time.time() - touched < SILENCE
    if claim["boot"] == _boot() and (_boot() or claim["host"] == socket.gethostname()) and os.name == "posix":
        if claim["pid"] == os.getpid() and claim["started"] == _start(os.getpid()):
            return claim["id"] in _held
        return _runs(claim["pid"], claim["started"], heard=heard)
    if claim["host"] == socket.gethostname() and touched < _booted():
        return False  # the machine was started again since
    return heard


def held_by(claim: Claim | None, touched: float) -> str | None:
    """Who, alive, holds a claim, such as "process 7 on lamp"; None if nobody does."""
    return f"process {claim['pid']} on {claim['host']}" if claim and holds(claim, touched) else None


def _runs(pid: int, started: int | None, *, heard: bool) -> bool:
    """Whether that very process runs: another start means that its number was given to a new one."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is somebody else's
    found = _start(pid)
    return heard if started is None or found is None else found == started


@cache
def _own_start(pid: int) -> int | None:
    """`_start` of this process, which never changes; a forked child asks with another number."""
    return _start(pid)


@cache
def _boot() -> str:
    """Names the time since the machine was started, and the room in which its process numbers mean something."""
    try:
        numbers = os.readlink("/proc/self/ns/pid")
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {numbers}"
    except OSError:
        return ""  # no such thing here: a process number is all there is


@cache
def _booted() -> float:
    """When this machine was started, in seconds since the epoch; 0 if that cannot be known."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)  # the only one that goes on while the machine sleeps
    return time.time() - time.clock_gettime(clock) if clock is not None else 0.0


def _start(pid: int) -> int | None:
    """When a process was started, in ticks since the machine was; None if that cannot be known, -1 if it is dead."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return -1 if state in "ZX" else int(fields[18])
