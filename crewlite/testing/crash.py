"""Crashes on demand: kill the process, or fail a write, at an exact operation on the disk."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import TracebackType

from crewlite import disk
from crewlite.disk import Operation


class CrashInjector:
    """Kills this process just before its n-th operation on the disk (a write, a sync, a rename, an SQL statement).

    ```python
    from crewlite import Agent
    from crewlite.testing import CrashInjector

    agent = Agent(role="Clerk", goal="answer", llm="offline", checkpoint=True)
    agent.kickoff("What is recorded?", run_id="first")
    with CrashInjector() as clean:  # what does a run do to the disk?
        agent.kickoff("What is recorded?", run_id="clean")
    reply = next(n for n, done in enumerate(clean.log, 1) if b"llm#1" in done.data)
    with CrashInjector(at=reply, error=OSError(28, "disk full")):  # without error= it kills: use a child process
        assert agent.kickoff("What is recorded?", run_id="full").durability == "degraded"
    ```

    With `error=OSError(errno.ENOSPC, "disk full")` the operation fails instead. With `torn=True` a killed write
    leaves its first half on the disk, as a power cut may.
    """

    def __init__(self, at: int | None = None, *, error: OSError | None = None, torn: bool = False) -> None:
        self.at, self.error, self.torn = at, error, torn
        self.count = 0
        """Operations so far."""
        self.log: list[Operation] = []
        """The operations so far, in order."""
        self._watching = disk.watched(self._hear)

    def __enter__(self) -> CrashInjector:
        self._watching.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watching.__exit__(kind, error, trace)

    def _hear(self, operation: Operation) -> None:
        self.count += 1
        self.log.append(operation)
        if self.count != self.at:
            return
        if self.error is not None:
            raise self.error
        if self.torn and operation.verb == "write" and operation.data:
            _write_half(operation)
        kill()


def kill() -> None:
    """Kill this process at once, without cleanup or flush."""
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def _write_half(operation: Operation) -> None:
    with Path(operation.path).open("r+b") as file:
        file.seek(operation.offset)
        file.write(operation.data[: len(operation.data) // 2])
