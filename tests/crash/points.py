"""The points of a process: whatever it is about to do to its location on the disk, and a process that stops at one.

What it opens, lists, renames and removes is heard of by the interpreter's audit hook; what it writes, from the door to
the disk; what it looks for, and the statements of a database, by a profiler, which hears of every call into C.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import os
import platform
import select
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interleavings.judge import Outcome
from interleavings.scenes import Trace

from crewlite.system import disk
from crewlite.system.disk import Operation

LONGEST = 20.0  # seconds after which a process never ends
PATIENT = 1.0  # seconds that an act is waited for which may need what the one it interrupts holds
AUDITED = {"open", "os.scandir", "os.listdir", "os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.utime"}
WAITS = {"x86_64": ("73", "230", "35"), "aarch64": ("32", "115", "101")}  # flock and the two sleeps
ALONE = (".tmp", ".gitignore", "-wal", "-shm")  # ends of names that no other process looks at


class Points:
    """Counts what this process does to a location; right before the `at`-th it calls `stop`."""

    def __init__(self, location: str, at: int | None, stop: Callable[[], None]) -> None:
        self.at, self.count, self.labels = at, 0, list[str]()
        self._location, self._stop = location, stop
        self._local, self._lock = threading.local(), threading.Lock()
        self._inside = dict[int, int]()  # statements in the transaction that a connection has begun
        self.on = False
        self._only: int | None = None

    def install(self, *, only_here: bool = False) -> None:
        """From now on, as long as the process lives; of this thread and those that it begins, or of this one only."""
        self.on = True
        self._only = threading.get_ident() if only_here else None
        sys.addaudithook(self._audited)
        disk.watched(self._written).__enter__()
        if not only_here:
            threading.setprofile(self._called)
        sys.setprofile(self._called)

    def _point(self, what: str) -> None:
        if not self.on or getattr(self._local, "busy", False) or self._only not in (None, threading.get_ident()):
            return
        with self._lock:
            self.count += 1
            mine = self.count
            self.labels.append(what)
        if mine == self.at:
            self._local.busy = True
            self._stop()
            self._local.busy = False

    def _short(self, path: object) -> str | None:
        """A path within the location, if others look at it too."""
        if not isinstance(path, str | bytes | os.PathLike):
            return None
        text = os.fsdecode(path)
        if not text.startswith(self._location) or text.endswith(ALONE):
            return None
        return text[len(self._location) :].lstrip("/") or "."

    def _audited(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in AUDITED or not self.on:
            return
        paths = args[:2] if event in ("os.rename", "os.link") else args[:1]
        if (found := next(filter(None, map(self._short, paths)), None)) and not self._is_database:
            self._point(f"{event} {found}")

    def _written(self, operation: Operation) -> None:
        if operation.verb in ("write", "truncate") and (found := self._short(operation.path)):
            if not self._is_database:
                self._point(f"{operation.verb} {found}")

    def _called(self, frame: Any, event: str, called: Any) -> None:
        if event == "return" and self._only and _leaves_the_door(frame):
            self._point(f"after {frame.f_code.co_name}")  # a thread has yet to note what it was given
        if event != "c_call" or not self.on:
            return
        name, whose = called.__name__, getattr(called, "__self__", None)
        if name == "stat" and not self._is_database:
            if found := self._short(frame.f_locals.get("self")):
                self._point(f"stat {found}")
        elif name == "execute" and isinstance(whose, sqlite3.Connection):
            self._statement(whose, str(frame.f_locals.get("sql", "?")))

    def _statement(self, db: sqlite3.Connection, sql: str) -> None:
        """One point in a transaction is enough: until it ends, nobody else comes."""
        inside = self._inside.get(id(db), 0)
        if not db.in_transaction:
            self._inside.pop(id(db), None)
        else:
            self._inside[id(db)] = inside + 1
            if inside and not sql.startswith("COMMIT"):
                return
        self._point(f"sql {sql[:50]}")

    @property
    def _is_database(self) -> bool:
        return bool(Path(self._location).suffix)


def _leaves_the_door(frame: Any) -> bool:
    return frame.f_code.co_filename == disk.__file__ != frame.f_back.f_code.co_filename


class FileTrace(Trace):
    """What happened, noted by several processes. Each line is one write, so nothing is torn or mixed up."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def note(self, *words: str) -> None:
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(handle, (" ".join(words) + "\n").encode())
        os.close(handle)

    def lines(self) -> list[list[str]]:
        return [line.split(" ") for line in self._path.read_text().splitlines()] if self._path.exists() else []


class Child:
    """A process that does one thing. It may stop, and then waits to be told to go on."""

    def __init__(self, directory: Path, name: str, act: Callable[[Child], Any]) -> None:
        hear, tell = os.pipe()
        heard, say = os.pipe()
        self._said = directory / f"{name}.json"
        self._log = directory / f"{name}.log"
        self._status: int | None = None
        self.pid = os.fork()
        if self.pid:
            os.close(tell), os.close(heard)
            self._hear, self._say = hear, say
            return
        os.close(hear), os.close(say)
        self._tell, self._heard = tell, heard
        try:
            self._be(act)
        finally:
            os._exit(0)

    def stop(self) -> None:
        """Called in the child: tell that it has stopped, and wait."""
        os.write(self._tell, b"S")
        os.read(self._heard, 1)

    def _be(self, act: Callable[[Child], Any]) -> None:
        said = self._log.open("w")
        logging.disable()
        os.dup2(said.fileno(), 2)
        faulthandler.dump_traceback_later(LONGEST - 2, file=said)
        try:
            outcome = Outcome.of(act(self))
        except BaseException as error:
            outcome = Outcome.of(error)
        sys.setprofile(None)
        self._said.write_text(json.dumps(asdict(outcome), default=str))

    def stopped(self, within: float = LONGEST, *, unless_it_waits: bool = False) -> bool | None:
        """Whether it stops; False once it has ended, None if it does neither, or waits for what another holds."""
        until, looked = time.monotonic() + within, time.monotonic() + 0.05
        while (left := until - time.monotonic()) > 0:
            if select.select([self._hear], [], [], min(left, 0.02))[0]:
                if os.read(self._hear, 1):
                    return True
                self._reap()
                return False
            if unless_it_waits and time.monotonic() > looked and _waits(self.pid):
                return None
        return None

    def go(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._say, b"G")

    def end(self) -> Outcome:
        """How it went. It is told to go on wherever it stops; what never ends is killed."""
        until = time.monotonic() + LONGEST
        while self._status is None:
            found = self.stopped(max(0.01, until - time.monotonic()))
            if found:
                self.go()
            elif found is None:
                os.kill(self.pid, signal.SIGKILL)
                self._reap()
                return Outcome(stuck=True, text=self._log.read_text()[-3000:])
        for handle in (self._hear, self._say):
            os.close(handle)
        if not self._said.exists():
            return Outcome(error="died", typed=False, text=f"status {self._status}: {self._log.read_text()[-2000:]}")
        return Outcome(**json.loads(self._said.read_text()))

    def _reap(self) -> None:
        self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _waits(pid: int) -> bool:
    """Whether a thread of a process waits for a lock of a file, or sleeps until a database is free."""
    found = False
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            call = (task / "syscall").read_text().split()[0]
            if call == "running":
                return False
            found |= call in WAITS.get(platform.machine(), ())
    except OSError:
        return False
    return found
