"""Failures on demand: a killed process, a failed write, functions and models that fail at given calls.

And what a classifier makes of an error.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

from crewlite.concurrency import background
from crewlite.errors import ConfigError
from crewlite.recovery import Classifier, Failure, FailureType, RulesClassifier
from crewlite.recovery.classify import classified
from crewlite.system import disk
from crewlite.system.disk import Operation

F = TypeVar("F", bound=Callable[..., Any])
L = TypeVar("L")


def assert_classifies_as(
    failed: BaseException | Failure, expected: FailureType | str, classifier: Classifier | None = None
) -> None:
    """Raise AssertionError unless the classifier gives this type to an error or a Failure. None: `RulesClassifier()`.

    >>> assert_classifies_as(ConnectionResetError(), FailureType.EXTERNAL_FAULT)
    """
    failure = failed if isinstance(failed, Failure) else Failure.of(failed)
    asked = classified(classifier or RulesClassifier(), failure)
    found = background.run(asked)
    why = "; ".join(f"{one.rule} ({one.confidence:g}): {one.text}" for one in found.evidence) or "no evidence"
    assert found.type == expected, (
        f"{failure.error_type} is classified as {found.type}, not as {FailureType(expected)}: {why}"
    )


@overload
def faults(work: F, *script: BaseException | None) -> F: ...
@overload
def faults(work: Sequence[L], *script: BaseException | None) -> list[L | BaseException]: ...
def faults(work: Any, *script: BaseException | None) -> Any:
    """Return a function that fails as the script says: its n-th call raises the n-th error; None lets it work.

    After the script every call works. Given the replies of a ScriptedLLM instead of a function, return them with the
    errors between them.

    >>> look = faults(lambda: "seen", None, TimeoutError("too slow"))
    >>> look()
    'seen'
    >>> faults(["Nine.", "Ten."], None, TimeoutError("too slow"))
    ['Nine.', TimeoutError('too slow'), 'Ten.']
    """
    for one in script:
        if one is not None and not isinstance(one, BaseException):
            raise ConfigError(f"faults: {one!r} is no error; wanted errors, and None for calls that work")
    if not callable(work):
        left = iter(work)
        return [*(next(left) if one is None else one for one in script), *left]
    numbers = itertools.count()  # its next() is atomic, as calls may come from several threads

    def fail() -> None:
        number = next(numbers)
        if number < len(script) and (error := script[number]) is not None:
            raise error

    @functools.wraps(work)
    def call(*args: Any, **kwargs: Any) -> Any:
        fail()
        return work(*args, **kwargs)

    @functools.wraps(work)
    async def acall(*args: Any, **kwargs: Any) -> Any:
        fail()
        return await work(*args, **kwargs)

    return acall if inspect.iscoroutinefunction(work) else call


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

    def __exit__(self, *exc: object) -> None:
        self._watching.__exit__(None, None, None)

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
