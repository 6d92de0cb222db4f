"""The standard input, on which a person answers: a terminal, or a pipe or file that feeds the program."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator

from crewlite.forked import lock

_asking = lock()
_GLANCE = 0.1  # seconds between two checks whether the answer is still wanted


def terminal() -> bool:
    """Return whether stdin and stderr are a terminal, so that a person can be asked and can answer here."""
    return bool(sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty())


def piped() -> bool:
    """Return whether stdin is a pipe or a file, from which answers can be read as `input()` does."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode if sys.stdin else 0
    except (OSError, ValueError):  # replaced by an object without a file, or closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


@contextlib.contextmanager
def turn(over: Callable[[], bool]) -> Iterator[None]:
    """Reserve stdin for one question during the block, so that an answer goes to the question on the screen.

    Raises EOFError if `over`, which says whether the answer is no longer wanted, returns True before its turn comes.
    """
    while not _asking.acquire(timeout=_GLANCE):
        if over():
            raise EOFError
    try:
        yield
    finally:
        _asking.release()


def line(over: Callable[[], bool]) -> str:
    """Return the next line that a person types. Raises EOFError if the input has ended or `over` returns True.

    On POSIX the stream is polled until there is something to read. A thread blocked in a read would crash the
    interpreter as it exits, and an abandoned thread would read the next question's answer.
    """
    found = _piped_line(over) if os.name == "posix" and not sys.stdin.isatty() else _typed_line(over)
    if not found:
        raise EOFError
    return found.rstrip("\r\n")


def _typed_line(over: Callable[[], bool]) -> str:
    if os.name == "posix":
        _await_input(over)
    return sys.stdin.readline()


def _piped_line(over: Callable[[], bool]) -> str:
    """Read up to the end of a line and not further: a buffer that holds the next line would hide it from the poll."""
    found = b""
    while not found.endswith(b"\n"):
        _await_input(over)
        one = os.read(sys.stdin.fileno(), 1)
        if not one:
            return found.decode(sys.stdin.encoding, "replace") or sys.stdin.readline()  # what `input()` read ahead
        found += one
    return found.decode(sys.stdin.encoding, "replace")


def _await_input(over: Callable[[], bool]) -> None:
    while not select.select([sys.stdin], [], [], _GLANCE)[0]:
        if over():
            raise EOFError
