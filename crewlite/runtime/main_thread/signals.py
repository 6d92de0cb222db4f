"""Signals of the operating system, recorded and emitted as events by runs whose `on_events` names them.

SIGTERM, SIGHUP and SIGINT end the run as Ctrl-C does, and then the process. SIGTSTP and SIGCONT are recorded; then the
process stops, or continues, as usual.
"""

from __future__ import annotations

import asyncio
import contextvars
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from crewlite import events
from crewlite.concurrency.unawaited import mark_seen
from crewlite.errors import CrewliteError
from crewlite.events.base import BaseEvent
from crewlite.runtime.main_thread import handlers
from crewlite.runtime.main_thread.sync_bridge import print_briefly
from crewlite.runtime.steps.run import Origin, Run
from crewlite.state.config import CheckpointConfig
from crewlite.state.subscriber import Setting
from crewlite.texts.logs import logger
from crewlite.texts.tracebacks import INTERRUPTED

T = TypeVar("T")
log = logger("crewlite.run")

_TO_STOP = 1.0  # seconds of the grace period for cancelled steps
PATIENCE = 30.0  # seconds that async event handlers have to finish when the run has ended
_TO_HEAR = 0.5  # as PATIENCE, for a run that a signal has ended
_MEANING = {
    "SIGTERM": "asked to end",
    "SIGINT": "interrupted",
    "SIGHUP": "the terminal has gone",
    "SIGTSTP": "asked to stand still",
    "SIGCONT": "continued",
}


def listed_signals(settings: Iterable[Setting]) -> dict[str, CheckpointConfig]:
    """Return the signals that settings list by name, each with the first such setting. "*" lists no signal."""
    asked: dict[str, CheckpointConfig] = {}
    for setting in settings:
        if isinstance(setting, CheckpointConfig) and setting.on_events is not True:
            asked |= {name: setting for name in setting.on_events if name in _MEANING and name not in asked}
    return asked


class Listener:
    """Receives signals for one run, records and emits them."""

    def __init__(
        self,
        asked: Mapping[str, CheckpointConfig],
        run: Run,
        origin: Origin,
        source: object,
        how_to_go_on: Callable[[], str],
    ) -> None:
        """`asked` maps signals to checkpoint settings. `origin`, `source`: of their events."""
        self.asked = dict(asked)
        self.loop = asyncio.get_running_loop()
        self.waiting: handlers.BlockingCall | None = None
        """The main thread's wait for this run; None if the run is on the main thread's own loop."""
        self.ended_by = ""
        """The signal that ends the run; "" if there is none."""
        self.over: asyncio.Future[None] = self.loop.create_future()
        """Done when the run has ended and its journal is closed."""
        self._run, self._origin, self._source, self._how_to_go_on = run, origin, source, how_to_go_on
        self._cut: asyncio.Future[None] = self.loop.create_future()
        self._telling: set[asyncio.Task[None]] = set()
        self._context = contextvars.copy_context()  # a signal handler runs in the context of the code it interrupts

    @property
    def patience(self) -> float:
        """Seconds that async event handlers have to finish when the run has ended."""
        return _TO_HEAR if self.ended_by else PATIENCE

    async def __aenter__(self) -> Listener:
        return self

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work of the run and return its result.

        A signal that ends the run cancels the work and is recorded; then CancelledError is raised.
        """
        if not await self._listens():
            return await work
        doing = asyncio.ensure_future(work)
        doing.add_done_callback(mark_seen)
        either: tuple[asyncio.Future[Any], ...] = (doing, self._cut)
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if not self.ended_by:
                doing.cancel()
                return await doing
        if self._telling:
            await asyncio.wait(self._telling)
        if not self.ended_by:
            return await doing
        doing.cancel()
        await asyncio.wait({doing}, timeout=_TO_STOP)
        await self._record(self.ended_by)
        raise asyncio.CancelledError(self.ended_by)

    async def __aexit__(self, *error: object) -> None:
        """Stop listening. On the main thread's own loop, end the process here if a signal ended the run."""
        self.over.set_result(None)
        if not handlers.leave(self) or self.waiting or not self.ended_by:
            return
        print(f"\n{INTERRUPTED}{self._how_to_go_on()}", file=sys.stderr)
        others = [other.over for other in handlers.listeners() if other.ended_by and other.loop is self.loop]
        if others and not (await asyncio.wait(others, timeout=handlers.GRACE))[1]:
            return  # the listener that ended last has ended the process
        end = handlers.end_process(self.ended_by)
        print_briefly(end)
        raise end from None

    def end(self, name: str) -> None:
        """End the run, because of this signal. Callable from any thread."""
        self.ended_by = name
        self.loop.call_soon_threadsafe(self._be_cut)

    def report(self, name: str, then: Callable[[Listener], None]) -> None:
        """Record a signal that does not end the run; then call `then` on the run's loop. Callable from any thread."""

        def begin() -> None:
            task = self.loop.create_task(self._record(name))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)
            task.add_done_callback(lambda _: then(self))

        self.loop.call_soon_threadsafe(begin, context=self._context)

    def on_main_thread(self, act: Callable[[], None]) -> None:
        """Have the main thread call `act`. Call it on the run's loop."""
        if self.waiting:
            self.waiting.ask(act)
        else:
            act()

    async def _listens(self) -> bool:
        """Start to listen. Returns whether any signal can be received; logs a warning about those that cannot."""
        here = handlers.waiting()
        if missing := [name for name in self.asked if not hasattr(signal, name)]:
            self._unheard(missing, "this platform does not have it")
        if threading.current_thread() is threading.main_thread():
            self._join()
        elif here and here.serves:
            self.waiting = here
            await asyncio.wrap_future(here.ask(self._join))
        elif self.asked:
            self._unheard(list(self.asked), "only a kickoff on the main thread can listen")
        return self in handlers.listeners()

    def _join(self) -> None:
        if ignored := [name for name in self.asked if not handlers.may_handle(name)]:
            self._unheard(ignored, "this process ignores it, or code other than Python's handles it")
        if self.asked and not self.over.done():
            handlers.listen(self)

    def _unheard(self, names: list[str], why: str) -> None:
        self.asked = {name: setting for name, setting in self.asked.items() if name not in names}
        said, here = f"on_events: {', '.join(names)} will not be heard: {why}", handlers.waiting()
        if here is None or said not in here.warned:
            log.warning(said)
        if here:
            here.warned.add(said)

    def _be_cut(self) -> None:
        if not self._cut.done():
            self._cut.set_result(None)

    async def _record(self, name: str) -> None:
        """Commit the event of a signal and the checkpoint that it creates, then emit the event."""
        about: dict[str, Any] = {"signal_number": int(signal.Signals[name]), "reason": _MEANING[name]}
        run, rule = self._run, self._run.subscriber.rule(self.asked[name])
        try:
            await run.publish(self._source, (_event(name), about), self._origin._replace(checkpoints=rule))
            await run.journal.flush()
        except CrewliteError as error:  # the process ends, or stops, nevertheless
            run.journal.warn(f"{name} is not recorded: {error}")


def _event(name: str) -> type[BaseEvent]:
    return {
        "SIGTERM": events.SigTermEvent,
        "SIGINT": events.SigIntEvent,
        "SIGHUP": events.SigHupEvent,
        "SIGTSTP": events.SigTStpEvent,
        "SIGCONT": events.SigContEvent,
    }[name]
