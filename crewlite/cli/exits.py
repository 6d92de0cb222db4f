"""How a command ends: its exit code, and errors printed as one line on stderr, never as a traceback."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import IO, Any

import click

from crewlite.errors import CrewliteError
from crewlite.lazy import lazy

rich = lazy("rich.console")
console_text = lazy("crewlite.console.text")

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


class Failed(click.ClickException):
    """An error for the user of the command. Its text is printed without interpreting markup or control characters."""

    exit_code = FAILED

    def show(self, file: IO[Any] | None = None) -> None:
        """Print `Error: <text>` on stderr."""
        notice(f"Error: {self.message}", file)


def notice(text: str, file: IO[Any] | None = None) -> None:
    """Print a text on stderr, without interpreting markup or control characters in it."""
    console = rich.Console(stderr=file is None, file=file)
    click.echo(console_text.printable(text, console), file=file, err=file is None)


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Write the output of a command in the block. Raises Failed if it cannot be written, as to a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:  # see `told`
            raise
        let_go_of_lost_streams()
        raise Failed(f"the output cannot be written: {error}") from error


def let_go_of_lost_streams() -> None:
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
def told() -> Iterator[None]:
    """Convert errors of crewlite and of the system to `Failed`, and Ctrl-C to exit code 130. Other errors are bugs."""
    try:
        yield
    except CrewliteError as error:
        raise Failed(str(error)) from error
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader of the output has closed the pipe: click ends quietly
            raise
        raise Failed(str(error)) from error
    except KeyboardInterrupt as interrupt:
        raise click.exceptions.Exit(INTERRUPTED) from interrupt
    except click.Abort as abort:  # at a question: Ctrl-C, the end of input, or a no
        if isinstance(abort.__context__, KeyboardInterrupt):
            raise click.exceptions.Exit(INTERRUPTED) from abort
        raise
