"""Signals that end a command, or stop it for a while, without losing anything."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from crewlite.cli.exits import let_go_of_lost_streams
from crewlite.console.status_lines import put_away


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
        let_go_of_lost_streams()


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _stand_still(number: int, frame: FrameType | None) -> None:
    """Clear the status lines, then stop the process as Ctrl-Z does."""
    with put_away():
        handler = signal.signal(number, signal.SIG_DFL)  # the previous one may be that of a run that listens
        signal.raise_signal(number)  # returns when the process is continued
        signal.signal(number, handler)
