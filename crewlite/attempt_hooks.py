"""Hooks around every attempt at a step: for trace spans, log contexts and context variables of your own.

Hooks are kept in a context variable, so a hook reaches the runs that its block starts, and no others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from crewlite import durable
from crewlite.concurrency.background import ends_task
from crewlite.definitions.keywords import known_keywords
from crewlite.errors import ConfigError, add_note, text_of
from crewlite.texts.logs import logger

T = TypeVar("T")
log = logger("crewlite.around")


@dataclass(frozen=True, slots=True)
class AttemptInfo:
    """An attempt that is about to begin."""

    run_id: str
    branch: str
    address: str
    """The address of the step; "" for the run itself."""
    kind: str
    """The kind of step: "crew", "flow", "task", "step", "llm", "tool", ..."""
    name: str
    """The step's name; its kind if it has no name."""
    attempt: int
    """The number of the attempt, from 1."""


Hook = Callable[[AttemptInfo], AbstractContextManager[Any] | None]
_hooks: ContextVar[tuple[Hook, ...]] = ContextVar("crewlite_hooks", default=())


@known_keywords("around")
@contextlib.contextmanager
def around(hook: Hook) -> Iterator[None]:
    """Call `hook` before every attempt at a step of the runs that are started in this block.

    The hook may return a context manager, which is open while the attempt runs. A step that is answered from the
    record has no attempt. An error of the hook before the attempt fails the attempt; a later one is logged, because
    the work is done by then. The hook cannot swallow the attempt's own error. Of nested blocks the outer hook comes
    first. Hooks run on the event loop, so they should not block. Raises ConfigError if `hook` is not callable.

    ```python
    import contextlib
    from crewlite import Agent, around

    @contextlib.contextmanager
    def timed(attempt):
        print("begin", attempt.kind, attempt.attempt)
        yield  # the attempt runs here
        print("end", attempt.kind)

    with around(timed):
        Agent(role="Pilot", goal="answer", llm="offline").kickoff("Who is there?")
    ```
    """
    if not callable(hook):
        raise ConfigError(f"around({hook!r}): wanted a function that takes an AttemptInfo")
    token = _hooks.set((*_hooks.get(), hook))
    try:
        yield
    finally:
        _hooks.reset(token)


hooks_here: Callable[[], tuple[Hook, ...]] = _hooks.get
"""Returns the hooks of the run that calls this, the outer ones first."""


async def hooked(
    attempt: Callable[[], Awaitable[T]], hooks: tuple[Hook, ...], info: AttemptInfo, mask: Callable[[str], str]
) -> T:
    """Make an attempt with hooks around it. `mask` masks the secrets that the run knows."""
    with _Hooked(hooks, info, mask):
        return await attempt()


class _Hooked:
    def __init__(self, hooks: tuple[Hook, ...], info: AttemptInfo, mask: Callable[[str], str]) -> None:
        self._hooks, self._info, self._mask = hooks, info, mask
        self._open: list[tuple[Hook, AbstractContextManager[Any]]] = []

    def __enter__(self) -> None:
        for hook in self._hooks:
            try:
                self._enter(hook)
            except BaseException as error:
                add_note(error, f"Raised by the hook {_name(hook)} before {self._what}")
                self.__exit__(type(error), error, error.__traceback__)
                if isinstance(error, Exception) or ends_task(error):
                    raise
                raise RuntimeError(f"the hook {_name(hook)} raised {type(error).__name__}") from error

    def _enter(self, hook: Hook) -> None:
        token = durable.detach()  # a hook does not belong to the enclosing step
        try:
            context = hook(self._info)
            if context is None:
                return
            if not isinstance(context, AbstractContextManager):
                raise ConfigError(f"around: {_name(hook)} returned {context!r}; wanted a context manager, or None")
            context.__enter__()
            self._open.append((hook, context))
        finally:
            durable.reattach(token)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        token, ending = durable.detach(), None
        try:
            for hook, context in reversed(self._open):
                try:
                    context.__exit__(kind, error, trace)
                except BaseException as problem:  # the border: the attempt itself has ended already
                    if problem is not error and ends_task(problem):
                        ending = problem
                    elif problem is not error:
                        about = f"{type(problem).__name__}: {text_of(problem)}"
                        log.warning("the hook %s raised after %s: %s", _name(hook), self._what, self._mask(about))
        finally:
            durable.reattach(token)
        if ending:
            raise ending

    @property
    def _what(self) -> str:
        return f"attempt {self._info.attempt} of {self._info.address or self._info.name}"


def _name(hook: Hook) -> str:
    return getattr(hook, "__name__", type(hook).__name__)
