"""The standard input, on which a person answers: a terminal, or a pipe or file that feeds the program."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

from crewlite.errors import AnswerRefused
from crewlite.system.forked import lock
from crewlite.texts.wording import escaped_lines

T = TypeVar("T")
Over = Callable[[], str | None]
"""Says why an answer is no longer wanted, "" if there is nothing to say; None while it is wanted."""
_asking = lock()
_on_screen = False
_entered = 0
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


def is_asking() -> bool:
    """Return whether a question is on the screen that nobody has answered. Its line is then the last one."""
    return _on_screen


def entered() -> int:
    """Return how many lines a person has typed here. Each line break ended the line of a question on the screen."""
    return _entered


def answer(question: str, read: Callable[[str], T], over: Over) -> T:
    """Show a question until `read` accepts what a person types, and return what `read` makes of it. Blocks.

    `read` raises AnswerRefused for what does not fit. Raises EOFError if the input has ended, or if `over` says that
    the answer is no longer wanted.
    """
    with _turn(over):
        while True:
            said = _line_after(question, over)
            try:
                return read(_readable(said))
            except AnswerRefused as refusal:
                print(f"{escaped_lines(refusal.problem)}: answer again", file=sys.stderr)


@contextlib.contextmanager
def _turn(over: Over) -> Iterator[None]:
    """Reserve stdin for one question during the block, so that an answer goes to the question on the screen.

    Raises EOFError if the answer is no longer wanted by the time its turn comes.
    """
    while not _asking.acquire(timeout=_GLANCE):
        if over() is not None:
            raise EOFError
    try:
        if over() is not None:
            raise EOFError
        yield
    finally:
        _asking.release()


def _line_after(question: str, over: Over) -> str:
    """Show a question and return the line that a person types behind it. Raises EOFError if none comes."""
    global _on_screen, _entered
    _on_screen = True
    try:
        print(escaped_lines(question), end="", file=sys.stderr, flush=True)
        said = _line(over)
    except EOFError:
        if (why := over()) != "":
            print(why or "", file=sys.stderr)
        raise
    else:
        _entered += sys.stdin.isatty()
        return said
    finally:
        _on_screen = False


def _line(over: Over) -> str:
    """Return the next line that a person types. Raises EOFError if the input has ended or the answer is not wanted.

    On POSIX the stream is polled until there is something to read. A thread blocked in a read would crash the
    interpreter as it exits, and an abandoned thread would read the next question's answer.
    """
    found = _piped_line(over) if os.name == "posix" and not sys.stdin.isatty() else _typed_line(over)
    if not found:
        raise EOFError
    return found.rstrip("\r\n")


def _readable(said: str) -> str:
    """Return what a person typed. Raises AnswerRefused for bytes that the encoding of stdin does not have."""
    if any("\udc80" <= one <= "\udcff" for one in said):
        raise AnswerRefused("", f"{said!r} is not text in the encoding {sys.stdin.encoding}")
    return said


def _typed_line(over: Over) -> str:
    if os.name == "posix":
        _await_input(over)
    try:
        return sys.stdin.readline()
    except UnicodeDecodeError as error:
        return _decoded(error.object)


def _decoded(line: bytes) -> str:
    return line.decode(sys.stdin.encoding, "surrogateescape")


def _piped_line(over: Over) -> str:
    """Read up to the end of a line and not further: a buffer that holds the next line would hide it from the poll."""
    found = b""
    while not found.endswith(b"\n"):
        _await_input(over)
        one = os.read(sys.stdin.fileno(), 1)
        if not one:
            return _decoded(found) or sys.stdin.readline()  # what `input()` read ahead
        found += one
    return _decoded(found)


def _await_input(over: Over) -> None:
    while not select.select([sys.stdin], [], [], _GLANCE)[0]:
        if over() is not None:
            raise EOFError
