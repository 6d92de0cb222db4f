"""A kickoff: what is asked, which store it concerns, and driving the run to its result."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel

from crewlite.codec import JsonObject, digest
from crewlite.definition import check_inputs
from crewlite.durable import Stamp, Step
from crewlite.errors import ConfigError, RunCancelled, Suspended, text_of
from crewlite.events.base import BaseEvent
from crewlite.events.console import shown
from crewlite.events.event_bus import event_bus
from crewlite.refs import as_run_id
from crewlite.runtime.advice import answered_before, note_answered, tell_unused
from crewlite.runtime.frame import Frame
from crewlite.runtime.questions import Comparison
from crewlite.runtime.run import Run
from crewlite.runtime.signals import Listener, named
from crewlite.state.answer import unheard
from crewlite.state.commit import RunStart
from crewlite.state.config import CheckpointConfig
from crewlite.state.journal import Journal
from crewlite.state.record import Record
from crewlite.state.subscriber import Setting
from crewlite.usage import Usage

T = TypeVar("T", bound=BaseModel)
log = logging.getLogger("crewlite.run")
FromCheckpoint = CheckpointConfig | str | UUID | os.PathLike[str] | None
_TO_STOP = 1.0  # seconds that steps have to end when they are cut, before they are left behind


def identity_of(kind: str, name: str, keys: Sequence[str] = ()) -> str:
    """Tells runs of one definition from others: by its kind, its name and what its parts are known by."""
    return digest([kind, name, *keys])


@dataclass(frozen=True, slots=True)
class Root(Generic[T]):
    """The outermost definition of a run, as the engine sees it."""

    kind: str
    name: str
    definition: JsonObject
    """Plain data to know it again by: kind, name, tasks. Never a live object, never a secret."""
    identity: str
    """The same for every run of this definition: see `identity_of`."""
    setting: Setting
    inner: tuple[Setting, ...]
    natural: frozenset[str]
    """The events that `on_events=True` stands for."""
    silent: frozenset[str]
    """Events that a run of this kind never emits."""
    holds: tuple[object, ...]
    """The definition itself, then the other live objects whose fields may hold secrets."""
    step: Callable[[dict[str, Any], Run | None], Step[T]]
    """The root step for these inputs; the run is None when it is a step of somebody else's."""
    check: Callable[[Mapping[str, Any]], None]
    """Raises if these inputs cannot do, before anything is recorded or paid."""
    asks: Callable[[dict[str, Any]], Any]
    """The question of the root step, as plain JSON."""
    compare: Callable[[Record, dict[str, Any]], Comparison] = lambda record, inputs: Comparison()
    """Compares what is asked now, with these inputs, to what the finished run answered."""
    shares: Callable[[Record, dict[str, Any], Callable[[str], str]], bool] = lambda record, inputs, mask: True
    """Whether a record has a name or a question in common with this definition. If not, the run is of another one. The
    last argument masks texts as the record does."""
    follow: Callable[[Record, Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]] = (
        lambda record, recorded, given: {**recorded, **given}
    )
    """Makes the inputs of a fork from its record, the recorded inputs and the given ones."""
    default_name: str = ""
    """The name it has where its author gave it none."""
    asks_people: bool = False
    """Whether it is known beforehand that somebody will be asked."""
    exact: bool = False
    """Whether its steps follow from its inputs alone."""
    paused: Callable[[dict[str, str], Stamp], BaseEvent] | None = None
    """The event of a run that waits for people, given their questions."""
    rebind: Callable[[RunStart, frozenset[str]], JsonObject] | None = None
    """The definition as it stands now, given the facts of the recorded run and which addresses are finished."""

    @property
    def redact(self) -> frozenset[str]:
        """Texts that any of its settings says must never be stored or said."""
        settings = (setting for setting in (self.setting, *self.inner) if isinstance(setting, CheckpointConfig))
        return frozenset(text for setting in settings for text in setting.redact or ())


@dataclass
class Progress:
    """What an interrupted caller needs to know."""

    run_id: str | None = None
    location: str | None = None
    branch: str = "main"
    address: str = ""
    """The step that it is of another's run; "" is a run of its own."""
    how_to_go_on: Callable[[], str] | None = None
    """Says it to people who did not kick off in Python."""
    known: threading.Event = field(default_factory=threading.Event)
    """Set when the run has begun, or goes on."""
    journal: Journal | None = None
    """The run's, from when it begins until it lets go of its branch."""
    paid: Usage = field(default_factory=Usage)
    """What the whole run had paid when it did."""
    durability: str = "off"
    """How far that result was saved."""
    answered: tuple[str, ...] = ()
    """If the run has failed: the last steps that answered from the record of an earlier life."""
    cancelled: bool = False
    """Whoever began it wants it to be stopped."""

    @property
    def usage(self) -> Usage:
        """What the whole run has paid so far."""
        journal = self.journal
        return journal.record.usage if journal else self.paid

    def tell(self, journal: Journal) -> None:
        """The run has begun, or goes on."""
        self.run_id, self.location, self.branch = journal.run_id, journal.location, journal.branch
        self.journal = journal
        self.known.set()

    def tell_part(self, run_id: str, address: str) -> None:
        """It is a step of a run that is at work."""
        self.run_id, self.address = run_id, address

    def end(self) -> None:
        """The run has let go of its branch. Its record is nobody's to keep."""
        self.paid, self.journal = self.usage, None


_followed: contextvars.ContextVar[Progress | None] = contextvars.ContextVar("crewlite_followed", default=None)


@contextlib.contextmanager
def followed(progress: Progress) -> Iterator[None]:
    """Let the next kickoff in the block tell its progress here."""
    token = _followed.set(progress)
    try:
        yield
    finally:
        _followed.reset(token)


def _new_progress() -> Progress:
    """Of the kickoff that is followed, once: those that it leads to are others."""
    progress = _followed.get()
    _followed.set(None)
    return progress or Progress()


@dataclass(frozen=True, slots=True)
class Request:
    """What the caller of a kickoff asks for."""

    inputs: Mapping[str, Any] | None = None
    run_id: str | UUID | None = None
    """Kept as a text."""
    from_checkpoint: FromCheckpoint = None
    answers: Mapping[str, Any] | None = None
    rerun: Iterable[str] = ()
    """One address, or several; kept as a tuple, as it is looked at more than once."""
    resume: bool = False
    """Go on with the newest unfinished run of this definition with these inputs; begin one if there is none."""
    progress: Progress = field(default_factory=_new_progress)

    def __post_init__(self) -> None:
        if not isinstance(self.rerun, Iterable):
            raise ConfigError(f"rerun is {self.rerun!r}; wanted the addresses of calls in doubt")
        if self.answers is not None and not isinstance(self.answers, Mapping):
            raise ConfigError(
                f"answers is {self.answers!r}; wanted a dict from the addresses of calls to their results"
            )
        object.__setattr__(self, "rerun", (self.rerun,) if isinstance(self.rerun, str) else tuple(self.rerun))
        check_inputs(self.inputs)
        if self.run_id is not None:
            object.__setattr__(self, "run_id", as_run_id(self.run_id))
        if not isinstance(self.resume, bool):
            raise ConfigError(f"resume is {self.resume!r}; wanted True or False. A run is named by run_id=")
        if self.resume and (self.run_id is not None or self.from_checkpoint is not None):
            raise ConfigError(
                "resume=True looks for the run to go on with, and run_id or from_checkpoint (or the fork that this is "
                "bound to) names one: wanted one of the two"
            )

    def going_on_from(self, bound: FromCheckpoint) -> Request:
        """The same, from where a definition is bound to unless the caller says otherwise."""
        if bound is None or self.from_checkpoint is not None:
            return self
        return dataclasses.replace(self, from_checkpoint=bound)

    def shown(self, verbose: bool) -> AbstractContextManager[None]:
        """Show on the terminal what this kickoff does in the block, if `verbose`."""
        return shown(verbose, lambda: self.progress.run_id, lambda: self.progress.address)

    def how_to_go_on(self, kind: str) -> str:
        """The line that resumes an interrupted run."""
        if self.progress.how_to_go_on:
            return self.progress.how_to_go_on()
        if self.progress.run_id is None or self.progress.location is None:
            return "Nothing was saved: give it checkpoint=True to be able to go on."
        if self.progress.branch != "main":
            ref = f"{self.progress.run_id}/{self.progress.branch}"
            return f"To go on: {kind}.kickoff(from_checkpoint={ref!r})"
        if self.run_id or self.resume:
            return f"To go on: run the same script again, or {kind}.kickoff(run_id={self.progress.run_id!r})"
        return f"To go on: {kind}.kickoff(run_id={self.progress.run_id!r})"


async def drive(
    root: Root[T],
    run: Run,
    inputs: dict[str, Any],
    setting: Setting,
    progress: Progress,
    going_on: Callable[[Run], Run],
) -> T:
    """Drive a run to its result and leave its journal in order, whatever happens.

    A run that would wait for people who have answered meanwhile goes on, as the run that `going_on` makes of it.
    """
    async with _listener(root, run, setting) as listener:
        try:
            heard = frozenset[str]()
            while True:
                try:
                    result = await _driven(root, run, inputs, setting, listener, progress)
                except Suspended as waits:
                    if waits.run_id != run.run_id:  # a run of its own, inside this one
                        raise
                    answered = unheard(run.record)
                    if answered <= heard:
                        raise await _paused(root, run, setting) from None
                    heard, run = heard | answered, going_on(run)
                else:
                    tell_unused(run)
                    await run.journal.flush()
                    return result.model_copy(update={"durability": run.durability})  # the last save may have failed
        finally:
            try:
                await event_bus.aflush(listener.patience)
            finally:
                await run.journal.aclose(cancelled=progress.cancelled)
                progress.end()


async def _driven(
    root: Root[T], run: Run, inputs: dict[str, Any], setting: Setting, listener: Listener, progress: Progress
) -> T:
    step = dataclasses.replace(root.step(inputs, run), address="")
    frame = Frame(run, "", root.name, settings=(setting,))
    try:
        return await listener.during(lambda: _while_ours(run.journal, frame.step(step)))
    except Suspended:
        raise
    except RunCancelled as error:
        if event := step.voice.failed(frame.stamp("", root.name), text_of(error), type(error).__qualname__):
            run.emit(step.voice.source, event)
        raise
    except Exception as error:
        progress.answered = answered_before(root.kind, run)
        note_answered(error, root.kind, run, progress.answered)
        raise


async def _while_ours(journal: Journal, work: Awaitable[T]) -> T:
    """The work of a run. It is cut where somebody else has the branch, or has stopped the run; then that is raised."""
    doing = asyncio.ensure_future(work)
    doing.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may be left behind
    either: tuple[asyncio.Future[Any], ...] = (doing, journal.lost)
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        doing.cancel()
        return await doing
    if not doing.done():
        doing.cancel()
        await asyncio.wait({doing}, timeout=_TO_STOP)
        raise journal.lost.result()
    return await doing


async def _paused(root: Root[Any], run: Run, setting: Setting) -> Suspended:
    """The run waits for people. What to raise, with all their questions."""
    frame = Frame(run, "", root.name, settings=(setting,))
    waiting = {asked["address"]: asked["question"] for asked in run.record.waiting}
    if root.paused:
        await frame.announce(root.holds[0], partial(root.paused, waiting))
    tell_unused(run)
    await run.journal.flush()
    return Suspended(run.run_id, run.journal.location or "", waiting, run.branch)


async def inside(scope: Frame, root: Root[T], request: Request, step: Step[T], *, own: bool = False) -> T:
    """A kickoff in the middle of another run is a step of that run, on that run's loop.

    `own`: the step drives a run of its own.
    """
    if not own and (request.run_id or request.from_checkpoint or request.resume):
        raise ConfigError(
            f"{root.kind} {root.name!r} is part of a run already: run_id, from_checkpoint and resume are the run's"
        )
    if not own and (signals := named((root.setting, *root.inner))):
        log.warning("on_events: %s is the outermost run's to listen to, not that of %r", ", ".join(signals), root.name)

    async def work() -> T:
        part_of = scope.addressed(dataclasses.replace(step, says=(root.setting, *step.says)))
        if not own:
            request.progress.tell_part(scope.run.run_id, part_of.address or "")
        part = scope.spawn(part_of)  # cut with what encloses it
        try:
            return await part
        finally:
            scope.heed(part)

    journal = scope.run.journal
    journal.secrets = journal.secrets.knowing(*root.holds, extra=root.redact)
    home = journal.loop
    if home is asyncio.get_running_loop():
        return await work()
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), home))  # from a blocking tool's thread


def _listener(root: Root[Any], run: Run, setting: Setting) -> Listener:
    """Hears the signals that definitions of this run name. One that has its result already needs none."""
    asked = {} if run.subscriber.asleep else named((setting, *root.inner))
    again = Request(progress=Progress(run.run_id, run.journal.location, run.branch))
    frame = Frame(run, "", root.name, settings=(setting,))
    return Listener(asked, frame, root.holds[0], lambda: again.how_to_go_on(root.kind))
