"""Child processes of tests: the one way to start them.

Every wait for a child has a bound, and what is left of it and of all that it started is killed when its test ends. Signals
do in it what they do in a program that is started at a terminal, also where the tests themselves run in the background.
Programs in Python are forked from a warm process where that makes no difference to them (tests/warm.py).
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import signal
import subprocess
import sys
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import (
    DEVNULL as DEVNULL,
    PIPE as PIPE,
    STDOUT as STDOUT,
    CompletedProcess,
    TimeoutExpired as TimeoutExpired,
)
from typing import Any

import pytest

from tests import warm

posix = pytest.mark.skipif(os.name == "nt", reason="sends POSIX signals to another process, or needs a terminal")
PATIENCE = 120.0  # seconds; a machine that has much else to do needs some
IN_THE_BACKGROUND = ("sh", "-c", 'trap "" HUP INT QUIT; exec "$@"', "sh")
"""What to put before a command, so that it is started as `nohup command &` starts it."""
_ENDING = ("SIGINT", "SIGQUIT", "SIGHUP", "SIGTERM", "SIGTSTP")

_FORKED = {"stdin", "stdout", "stderr", "text", "encoding", "errors", "bufsize", "cwd", "env", "start_new_session"}
"""Options of Popen that a forked program is given too."""

_GIVEN = tuple(inspect.signature(subprocess.Popen._execute_child).parameters)[1:]
_PIPES = {"p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"}
"""Both ends of the pipes, as Popen calls them."""

_begun: list[Child] = []


class Child(subprocess.Popen):
    """A process in a group of its own, begun like any Popen.

    One that is `shared` serves several tests: it is not ended with the one that began it, but by whoever began it. One that
    is `cold` imports all modules itself: for tests of what is imported when, and of the interpreter's end. One that imports
    a module which takes seconds may find it imported: `also` names it.
    """

    def __init__(
        self, command: Any, *, shared: bool = False, cold: bool = False, also: str = "", **options: Any
    ) -> None:
        self._cold, self._also = cold or bool(set(options) - _FORKED), also
        if os.name == "posix" and not options.get("start_new_session"):  # a new session is a group too
            options["process_group"] = 0
        super().__init__(command, **options)
        if not shared:
            _begun.append(self)

    def _execute_child(self, *args: Any) -> None:
        """Of Popen, which has made the pipes of the streams: fork a warm program where that can be done."""
        given = dict(zip(_GIVEN, args, strict=True))
        ends = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams = [own if end == -1 else end for own, end in enumerate(ends)]
        own_session = bool(given["start_new_session"])
        wanted = (given["args"], given["cwd"], given["env"], streams, own_session, self._also)
        pid = None if self._cold else warm.fork(*wanted)
        if pid is None:
            super()._execute_child(*args)
        else:
            self.pid, self._child_created = pid, True
            self._close_pipe_fds(*(given[name] for name in _GIVEN if name in _PIPES))

    def communicate(self, input: Any = None, timeout: float | None = PATIENCE) -> tuple[Any, Any]:
        return super().communicate(input, timeout)

    def wait(self, timeout: float | None = PATIENCE) -> int:
        return super().wait(timeout)

    def end(self) -> None:
        """Kill it and whatever it started, and leave nothing of it open."""
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError, PermissionError):  # all are gone; macOS: all but zombies
                os.killpg(self.pid, signal.SIGKILL)
        self.kill()
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):  # what was to be written has no reader any more
                    stream.close()


def run(command: Any, *, timeout: float | None = PATIENCE, **options: Any) -> CompletedProcess[Any]:
    """As `subprocess.run`, with a bound; a child that does not end within it is killed with whatever it started."""
    if options.pop("capture_output", False):
        options |= {"stdout": PIPE, "stderr": PIPE}
    said, check = options.pop("input", None), options.pop("check", False)
    if said is not None:
        options["stdin"] = PIPE
    child = Child(command, **options)
    try:
        out, err = child.communicate(said, timeout)
    except TimeoutExpired as late:
        child.end()
        raise AssertionError(
            f"{command} has not ended in {timeout} s. So far: {late.output!r} {late.stderr!r}"
        ) from None
    done = CompletedProcess(command, child.returncode, out, err)
    if check:
        done.check_returncode()
    return done


@contextlib.contextmanager
def ended() -> Iterator[None]:
    """Whoever is begun inside is ended with it."""
    before = len(_begun)
    try:
        yield
    finally:
        for child in reversed(_begun[before:]):
            child.end()
        del _begun[before:]


def until(true: Callable[[], object]) -> None:
    """Wait until something is so. Better is whatever tells when it is; not everything does."""
    limit = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < limit, f"it is not so after {PATIENCE} s"
        time.sleep(0.005)


def until_freed(*references: weakref.ref[Any], but: int = 0) -> None:
    """Wait until at most `but` of what is referred to is alive. A thread that has told its result still has to end."""

    def are_freed() -> bool:
        gc.collect()
        return sum(reference() is not None for reference in references) <= but

    until(are_freed)


def rest_of(terminal: int) -> bytes:
    """Read what is still shown at a pseudo-terminal, until its other end is closed. One read may return only a part."""
    shown = b""
    with contextlib.suppress(OSError):  # so Linux says that the other end is closed
        while piece := os.read(terminal, 65536):
            shown += piece
    os.close(terminal)
    return shown


def in_a_fork(act: Callable[[], object]) -> bool:
    """Whether `act` returns something true in a forked child. What it raises is shown; in a minute it is killed."""
    child = os.fork()
    if not child:
        signal.alarm(60)
        done: object = False
        try:
            done = act()
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(0 if done else 1)
    return os.waitpid(child, 0)[1] == 0


def alive(pid: int) -> bool:
    """Whether there is such a process, and more of it than its status."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except ProcessLookupError:  # also if it ends between the two
        return False
    except FileNotFoundError:  # likewise; or there is no such file of any process
        return not Path("/proc/self/stat").exists()


def heed_signals() -> None:
    """Let this process heed SIGINT, and its children all signals, also where it was told to ignore them.

    A process in the background (`nohup make test &`) is started with SIGINT, SIGQUIT or SIGHUP ignored, and so is
    whoever it starts. A handler is not handed down, so those here are the default in a child.
    """
    for name in _ENDING:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if name == "SIGINT" else _do_nothing)


def _do_nothing(number: int, frame: object) -> None:
    pass
