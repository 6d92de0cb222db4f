"""How a command ends: its exit code, errors as lines on stderr and never as a traceback, and signals."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import IO, Any

import click

from crewlite.console import text as console_text
from crewlite.errors import CrewliteError
from crewlite.lazy import lazy
from crewlite.texts.wording import escaped

rich = lazy("rich.console")
status_lines = lazy("crewlite.console.status_lines")

OK = 0
"""The command succeeded."""
FAILED = 1
"""The command failed and printed the reason."""
USAGE = 2
"""The command was called with wrong arguments."""
WAITS = 3
"""The run waits for an answer that only a person can give."""
INTERRUPTED = 130
"""Ctrl-C."""

_GONE = "the working directory was deleted: change to another one, and call the command again"


class Failed(click.ClickException):
    """What ends a command. Its lines are printed without interpreting markup or control characters.

    `code` is the exit code of the command; `head` stands before the first line.
    """

    def __init__(self, *lines: str, code: int = FAILED, head: str = "Error: ") -> None:
        super().__init__("\n".join(lines))
        self.exit_code = code  # type: ignore[misc]  # of all instances for click, of one here
        self._lines = f"{head}{lines[0]}", *lines[1:]

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the lines on stderr."""
        for line in self._lines:
            notice(line, file)


def notice(text: str, file: IO[Any] | None = None) -> None:
    """Print a text on stderr, without interpreting markup or control characters in it."""
    console = rich.Console(stderr=file is None, file=file)
    click.echo(console_text.printable(text, console), file=file, err=file is None)


def open_closed_streams() -> None:
    """Let a stream that whoever began the command has closed (`>&-`) be empty, or take what is written to nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the process ends


def sees_terminal() -> bool:
    """Return whether stdin and stderr are a terminal, so that a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Write the output of a command in the block. Raises Failed if it cannot be written, as to a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:  # see `told`
            raise
        _let_go_of_lost_streams()
        raise Failed(f"the output cannot be written: {error}") from error


def _let_go_of_lost_streams() -> None:
    """Redirect output streams that cannot be written any more to nowhere.

    Otherwise Python would try to write the rest of their buffers at exit, and turn the exit code into 120.
    """
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream is None or stream.closed:
            continue
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


@contextlib.contextmanager
def errors_shown() -> Iterator[None]:
    """Convert errors of crewlite and of the system to `Failed`, and Ctrl-C to exit code 130. Other errors are bugs."""
    try:
        yield
    except click.UsageError as error:  # it may quote what a run has recorded
        error.message = escaped(error.message, kept="\n")  # type: ignore[misc]  # final to click alone
        raise
    except CrewliteError as error:
        raise Failed(str(error)) from error
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader of the output has closed the pipe: click ends quietly
            raise
        raise Failed(_GONE if _is_gone() else str(error)) from error
    except KeyboardInterrupt as interrupt:
        raise click.exceptions.Exit(INTERRUPTED) from interrupt
    except click.Abort as abort:  # at a question: Ctrl-C, the end of input, or a no
        if isinstance(abort.__context__, KeyboardInterrupt):
            raise click.exceptions.Exit(INTERRUPTED) from abort
        raise


def _is_gone() -> bool:
    """Return whether the working directory was deleted."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP in the block end the run as Ctrl-C does, with the status that shells give to them.

    Their handlers only raise SystemExit: the code that waits for a run then closes it. Ctrl-Z stops the process.
    """
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for name, act in (("SIGTERM", _end), ("SIGHUP", _end), ("SIGTSTP", _stand_still)):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # not if it is to be ignored
                before[number] = signal.signal(number, act)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _let_go_of_lost_streams()


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _stand_still(number: int, frame: FrameType | None) -> None:
    """Clear the status lines, then stop the process as Ctrl-Z does."""
    with status_lines.put_away():
        handler = signal.signal(number, signal.SIG_DFL)  # the previous one may be that of a run that listens
        signal.raise_signal(number)  # returns when the process is continued
        signal.signal(number, handler)
