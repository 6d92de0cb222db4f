"""The status lines of a terminal: the steps that run at this moment, below the lines that scroll.

The cursor waits on an empty line above the status lines. Output that does not pass through this module (of another
process, or of a log that holds the original stream) is printed there and stays, and after a change of the window's size
everything to clear is below the cursor. The program's own output is printed above, unchanged. While the program leaves
a line open (a progress bar of its own) the status lines are hidden. A question to a person stays the last line.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import sys
import threading
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, TextIO

from crewlite.console.text import encodable, printable
from crewlite.console.underway import Open, Underway, elapsed, spent, still_open
from crewlite.lazy import lazy
from crewlite.runtime.people.terminal import entered, is_asking
from crewlite.system.forked import in_child, lock

if TYPE_CHECKING:
    from rich import console as rich, text as rich_text
else:
    rich, rich_text = map(lazy, ("rich.console", "rich.text"))

_PERIOD = 0.2  # seconds between two updates of the times
_MOST = 6  # lines for open steps; if more are open, the newest are shown
_BELOW = "\r\x1b[J"  # clears the cursor's line and everything below it

_status_lines: StatusLines | None = None  # a terminal has one, however many runs are shown at once
_lock = lock()


@contextlib.contextmanager
def status_lines_of(console: rich.Console, run: Underway) -> Iterator[StatusLines | None]:
    """Show a run in the terminal's status lines during the block. Yields them, or None if there can be none."""
    status_lines = _join(console, run)
    try:
        if status_lines:
            status_lines.keep_time()  # the system may refuse a thread
        yield status_lines
    finally:
        if status_lines:
            status_lines.leave(run)


@contextlib.contextmanager
def put_away() -> Iterator[None]:
    """Hide the status lines during the block, in which no other thread writes: for a process that is about to stop."""
    status_lines = _status_lines
    if status_lines is None:
        yield
        return
    with status_lines.above():
        yield


def _join(console: rich.Console, run: Underway) -> StatusLines | None:
    global _status_lines
    with _lock:
        file = console.file
        if isinstance(file, _Stream) and file.status_lines is _status_lines:
            status_lines = file.status_lines
        elif _status_lines is None and _has_status_lines(console):
            status_lines = StatusLines(file)
        else:
            return None
        status_lines.enter(run)
        _status_lines = status_lines
        return status_lines


def _has_status_lines(console: rich.Console) -> bool:
    """Return whether this is a terminal whose cursor can be moved. FORCE_COLOR does not make a pipe one."""
    if not console.is_interactive or console.is_dumb_terminal or console.legacy_windows:
        return False
    return _is_terminal(console.file)


class StatusLines:
    """The status lines of one terminal. May be used from any thread."""

    def __init__(self, file: IO[str]) -> None:
        self.console = rich.Console(file=file, highlight=False)
        """Writes to the terminal itself. Use it only inside `above`."""
        self._file = file
        self.lock = _lock
        """Held while anything is written."""
        self._runs: list[Underway] = []
        self._streams: list[_Stream] = []
        self._last = "", 0
        """What the program has written of its last line, and how many lines a person had typed then."""
        self._drawn = ""
        self._keeps_time, self._over = False, queue.SimpleQueue[None]()

    def enter(self, run: Underway) -> None:
        """Add a run to the status lines. The first one replaces sys.stdout and sys.stderr."""
        with self.lock:
            if not self._runs:
                self._streams = [_Stream(self, at) for at in ("stdout", "stderr") if _is_terminal(getattr(sys, at))]
                for stream in self._streams:
                    stream.stand_in()
                atexit.register(self.end)
            self._runs.append(run)

    def keep_time(self) -> None:
        """Have a thread update the times, until the last run has left."""
        with self.lock:
            begun, self._keeps_time = self._keeps_time, True
        if not begun:
            threading.Thread(target=self._update_times, name="crewlite-status-lines", daemon=True).start()

    def leave(self, run: Underway) -> None:
        """Remove a run from the status lines. After the last one the terminal and the streams are as before."""
        with self.lock:
            if run in self._runs:
                self._runs.remove(run)
            if not self._runs:
                self._end()

    def end(self) -> None:
        """Clear the status lines and restore the streams. May be called twice."""
        with self.lock:
            self._end()

    def _end(self) -> None:
        global _status_lines
        self._over.put(None)
        self._runs.clear()
        with contextlib.suppress(OSError, ValueError):  # the terminal may have gone
            self._clear()
        for stream in self._streams:
            stream.stand_down()
        self._streams = []
        atexit.unregister(self.end)
        if _status_lines is self:
            _status_lines = None

    @contextlib.contextmanager
    def above(self) -> Iterator[None]:
        """Write complete lines to the terminal in the block. They are printed above the status lines.

        They must not continue an open line of the program. That of a question is taken away, and is the last one again.
        """
        with self.lock, contextlib.suppress(OSError, ValueError):  # the terminal may have gone
            self._clear()
            question = self._open_line() if is_asking() else ""
            if self._open_line():
                in_one_row = question and rich_text.Text(question).cell_len < self.console.width
                self._file.write(_BELOW if in_one_row else "\n")
            yield
            self._last = question, entered()
            if question:
                self._file.write(question)
                self._file.flush()
            self._draw()

    def pass_on(self, file: TextIO, text: str) -> None:
        """Write to a stream of the same terminal. An open line at its end hides the status lines until it is closed."""
        with self.lock:
            with contextlib.suppress(OSError, ValueError):
                self._clear()
            file.write(text)
            file.flush()
            self._last = f"{self._open_line()}{text}".rpartition("\n")[2], entered()
            with contextlib.suppress(OSError, ValueError):
                self._draw()

    def _open_line(self) -> str:
        """Return the last line of the program, if neither the program nor a person who answers has ended it."""
        text, before = self._last
        return text if entered() == before else ""

    def _clear(self) -> None:
        if self._drawn:
            self._drawn = ""
            self._file.write(_BELOW)
            self._file.flush()

    def _draw(self) -> None:
        if self._open_line() or not self._runs:
            return
        drawn = self._lines()
        if drawn == self._drawn:
            return
        before, self._drawn = (_BELOW if self._drawn else ""), drawn
        if drawn:
            rows = drawn.count("\n")
            self._file.write(f"{before}{drawn}\x1b[{rows}A\r")
        self._file.flush()

    def _lines(self) -> str:
        """Return all status lines, each after a line break; "" if the terminal has no room for them."""
        width, height = self.console.size
        room = min(_MOST, height - 4)
        if room < 1 or width < 20:
            return ""
        found = still_open(self._runs)
        lines = [self._line(one, since, width) for one, since in found[-room:]]
        hidden = f", {len(found) - room} more open" if len(found) > room else ""
        lines.append(rich_text.Text(f"  {spent(self._runs)}{hidden}", style="dim"))
        with self.console.capture() as captured:
            for line in lines:
                self.console.print(line, no_wrap=True, overflow="crop", width=width - 1)
        return "\n" + captured.get().rstrip("\n")

    def _line(self, one: Open, since: float, width: int) -> rich_text.Text:
        """Build the line of an open step. If it is too long, the end of the title is cut, not the time."""
        sign, dots = ("▸", "…") if encodable("▸…", self.console) else (">", "...")
        streamed = f", {one.streamed:,} characters" if one.streamed else ""
        indent, time = "  " * one.depth, elapsed(since)
        reported = f": {one.reported}" if one.reported else ""
        text = rich_text.Text(printable(f"{one.title}{reported}{streamed}", self.console))
        room = max(len(dots) + 1, width - 1 - len(indent) - len(time) - 4)
        if text.cell_len > room:
            text.truncate(room - len(dots))
            text.append(dots)
        return rich_text.Text.assemble(indent, (sign, "cyan"), " ", text, (f"  {time}", "dim"))

    def _update_times(self) -> None:
        while True:
            with contextlib.suppress(queue.Empty):
                return self._over.get(timeout=_PERIOD)
            with self.lock, contextlib.suppress(OSError, ValueError):
                self._draw()

    def forget(self) -> None:
        """Stop drawing in a forked child, which does not have the thread that draws."""
        self._drawn = ""
        self._runs.clear()
        for stream in self._streams:
            stream.stand_down()


class _Stream:
    """Replaces sys.stdout or sys.stderr, so that output is printed above the status lines."""

    def __init__(self, status_lines: StatusLines, name: str) -> None:
        self.status_lines = status_lines
        self._name, self._real = name, getattr(sys, name)
        self._held, self._standing = "", False
        self._copy: int | None = None

    def stand_in(self) -> None:
        setattr(sys, self._name, self)
        self._standing = True

    def stand_down(self) -> None:
        if getattr(sys, self._name) is self:  # else the program has replaced it with another stream
            setattr(sys, self._name, self._real)
        held, self._held, self._standing = self._held, "", False
        with contextlib.suppress(OSError, ValueError):
            self._real.write(held)
            self._real.flush()
        if self._copy is not None:
            os.close(self._copy)
            self._copy = None

    def write(self, text: str) -> int:
        """Write complete lines, and hold back an incomplete last one: its rest may follow at once."""
        with self.status_lines.lock:
            if not self._standing:  # other code, such as a log, still holds this object
                return int(self._real.write(text))
            whole, end, self._held = f"{self._held}{text}".rpartition("\n")
            if end:
                self.status_lines.pass_on(self._real, whole + end)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with self.status_lines.lock:
            held, self._held = self._held, ""
            if held:
                self.status_lines.pass_on(self._real, held)
            else:
                self._real.flush()

    def fileno(self) -> int:
        """Return a file descriptor of its own for the terminal: with the real one, input() would bypass this stream."""
        if self._copy is None:
            self._copy = os.dup(self._real.fileno())
        return self._copy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


@in_child
def _forget() -> None:
    global _status_lines
    if _status_lines:
        _status_lines.forget()
        _status_lines = None
