"""The step port: how code on any floor asks for work that is recorded, without knowing who records it.

`scope()` is whatever encloses the caller. In a run that is the engine, which answers recorded steps from the journal
and commits the outcome of the others; outside a run it is `PLAIN`, which simply does the work.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextvars import ContextVar, Token, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, ParamSpec, Protocol, TypeVar

from crewlite import codec
from crewlite.errors import (
    AnswerRefused,
    BranchConflictError,
    ConfigError,
    JournalCorrupt,
    RunCancelled,
    StoreError,
    Suspended,
)
from crewlite.kinds import Kind
from crewlite.lazy import asyncio
from crewlite.usage import Usage

if TYPE_CHECKING:
    from crewlite.recovery.remedy import Policy, Remedy

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Json = Any

Effect = Literal["none", "idempotent", "once"]
"""What a repeated call would do: nothing at all; no harm, given the same idempotency key; harm."""

Drift = Literal["diverge", "keep", "rerun", "configured"]
"""When the recorded outcome of a step answers another question: nothing recorded answers from here on; keep it; do this
step again, its children answering as they may; or as CheckpointConfig.on_drift says."""

Durability = Literal["sync", "async", "degraded", "off"]
"""sync: every outcome was in the store before the run went on. async: all of it is in the store now. degraded:
something could not be saved, or only late. off: no store."""

CONTROL_FLOW = (StoreError, BranchConflictError, JournalCorrupt, RunCancelled, Suspended, AnswerRefused)
"""Errors that are not the doing of the step they come out of: the record failed, or the run was stopped or waits for a
person. They end the attempt, and are no failure of it."""

Stamp = dict[str, Any]
"""The fields every event of a step shares: run_id, branch, seq, address, parent_event_id, ..."""


class StepEvents(Protocol):
    """Builds the events a step emits. Return None to emit nothing."""

    @property
    def source(self) -> object:
        """The live object that handlers get as their first argument."""

    def started(self, stamp: Stamp) -> Any:
        """The event of a start."""

    def completed(self, stamp: Stamp, value: Any) -> Any:
        """The event of a recorded outcome."""

    def failed(self, stamp: Stamp, error: str, error_type: str) -> Any:
        """The event of a failure that no retry mends."""


class Cached(NamedTuple):
    """Where to look for what a step came to in another run, and to leave what it comes to in this one."""

    key: str
    """Digest of the question, who answers and how: whatever has the same key has the same outcome."""
    age: float | None
    """Seconds after which it counts no more."""


class Limit(NamedTuple):
    """At most `width` steps that share `key` run side by side. Steps inside one of them count with it."""

    key: str
    width: int


@dataclass(frozen=True, slots=True)
class Intent:
    """A call that is about to be made: on disk before it happens, so that a cut can be told from a call never made."""

    address: str
    effect: Effect


@dataclass(frozen=True, slots=True)
class Call:
    """A step as the run's record knows it, wherever in the run it is."""

    address: str
    outcome: Json = None
    """As recorded; None while there is none, and where a prune has left it out."""


def same(value: Any) -> Any:
    """The identity: for values that are plain JSON already."""
    return value


@dataclass(frozen=True, slots=True)
class Step(Generic[T]):
    """One durable piece of work: how to do it, what it answers, and how its outcome is recorded."""

    kind: Kind
    name: str | None
    work: Callable[[], Awaitable[T]]
    question: Json
    """Plain JSON of what is asked. Never who answers, never time or chance."""
    voice: StepEvents
    encode: Callable[[T], Json] = same
    """The outcome as plain JSON; raises NotCodable."""
    decode: Callable[[Json], T] = same
    usage: Callable[[T], Json] | None = None
    """Tokens and cost of the outcome, as recorded."""
    with_usage: Callable[[T, Usage], T] | None = None
    """Adds the usage of the step and everything inside it to an outcome. Not recorded: the record has the calls."""
    address: str | None = None
    """Reserved before by `Scope.reserve_address`; else taken when the step is asked for."""
    provenance: dict[str, str] = field(default_factory=dict)
    """What answers (model, template): recorded, so that a change is told, but no reason to ask again."""
    chained: bool = False
    """The question includes everything its parent has heard so far (a model call)."""
    effect: Effect = "none"
    timeout: float | None = None
    """Seconds for one attempt."""
    deadline: float | None = None
    """Seconds for all attempts together, in all lives of the run, counted from the first beginning."""
    failure_policy: Policy | None = None
    """Decides whenever it fails, whatever failed inside it."""
    inherits: bool = False
    """Without a `failure_policy`, the nearest `child_policy` decides, unless one inside has decided on that failure."""
    child_policy: Policy | None = None
    """For this step and those inside it, where they inherit."""
    default_policy: Policy | None = None
    """Decides where it inherits, and no policy is set on it or around it."""
    failure: Callable[[T], Exception | None] | None = None
    """The failure that an outcome tells of, if it does: tried again like one that is raised, while a policy says so."""
    fallbacks: int = 0
    """How many other ways of doing it there are: its work takes the next after each `Fallback` in `Scope.past`."""
    cache: Cached | None = None
    """Its outcome may be taken from another run of the same store, and is left there for others."""
    answer: Callable[[Any], T] | None = None
    """The outcome that a person's word for it stands for (a call in doubt)."""
    intends: Callable[[T], Sequence[Intent]] | None = None
    """The calls that this outcome will lead to at once; committed with it."""
    placeholder: Callable[[], T] | None = None
    """Stands for an outcome that nobody knows, in a preview."""
    texts: dict[str, str] = field(default_factory=dict)
    """Texts of the question, recorded with the outcome: they show what a kept answer answered."""
    drift: Drift = "diverge"
    strict_replay: bool = False
    """What it asks for inside follows from its question alone: other steps than those recorded are an error."""
    round_trip: bool = False
    """Whoever asks gets the outcome as it is read back from the record, in its first life as in every other."""
    label: str | None = None
    """What sort of work it is, in its author's words."""
    limits: tuple[Limit, ...] = ()
    """Of how many steps it may be one that run side by side."""
    inherited_limits: tuple[Limit, ...] = ()
    """The same for all steps inside it."""
    checkpoint_settings: tuple[Any, ...] = ()
    """Checkpoint settings to ask about this step's events, from the inside out, before the enclosing ones."""

    @property
    def title(self) -> str:
        """What it is called where an address would be too long."""
        return self.name or self.kind.name


class Scope(Protocol):
    """What encloses the running code."""

    __slots__ = ()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that steps are asked for on; None outside a run."""

    @property
    def dry(self) -> bool:
        """Whether this is only a preview: steps are asked for, and not done."""

    @property
    def address(self) -> str:
        """The step that is running."""

    @property
    def idempotency_key(self) -> str:
        """The same for every try of this step, another for every other step."""

    @property
    def past(self) -> Sequence[Remedy]:
        """The remedies for this step's failed attempts so far."""

    def reserve_address(self, kind: str, name: str | None = None) -> str:
        """The address of the next child step of this kind and name, in call order."""

    def step(self, step: Step[T]) -> Awaitable[T]:
        """Ask for a step. The address is taken now; the work happens when awaited."""

    def spawn(self, step: Step[T]) -> asyncio.Task[T]:
        """Ask for a step and have it begin. The running step ends only when it has. On the run's loop."""

    def mark_awaited(self, task: asyncio.Task[Any]) -> None:
        """Mark a spawned step as awaited: its exception reaches the awaiter, so the parent need not raise it again."""

    def in_doubt(self, address: str) -> bool:
        """Whether an earlier life of the run may have made this call already."""

    def calls(self, kind: str, names: Collection[str]) -> Sequence[Call]:
        """The steps of this kind and one of these names that were begun anywhere in the run, in the order they ended.

        Begun: it happened, happens, or is sure to, as its intent or its start is recorded. Those that have not ended
        come last.
        """

    def mask(self, text: str) -> str:
        """`text` without the secrets the run knows."""

    def hears(self, event: type[Any]) -> bool:
        """Whether an event of this class would be heard by anybody, or name a checkpoint."""

    def announce(
        self, source: object, make: Callable[[Stamp], Any], checkpoint_settings: tuple[Any, ...] = ()
    ) -> Awaitable[str]:
        """Say something that is no step's outcome. Returns the event's id."""


class _Plain:
    """No run: steps are plain calls, and nothing is recorded or announced."""

    address = ""
    dry = False
    loop = None
    idempotency_key = ""
    past: Sequence[Remedy] = ()

    def reserve_address(self, kind: str, name: str | None = None) -> str:
        return f"{kind}:{name}" if name else kind

    def step(self, step: Step[T]) -> Awaitable[T]:
        return step.work()

    def spawn(self, step: Step[T]) -> asyncio.Task[T]:
        return asyncio.ensure_future(step.work())

    def mark_awaited(self, task: asyncio.Task[Any]) -> None:
        return None

    def in_doubt(self, address: str) -> bool:
        return False

    def calls(self, kind: str, names: Collection[str]) -> Sequence[Call]:
        return ()

    def mask(self, text: str) -> str:
        return text

    def hears(self, event: type[Any]) -> bool:
        return False

    async def announce(
        self, source: object, make: Callable[[Stamp], Any], checkpoint_settings: tuple[Any, ...] = ()
    ) -> str:
        return ""


PLAIN: Scope = _Plain()
_scope: ContextVar[Scope] = ContextVar("crewlite_scope", default=PLAIN)
_bound_scope: ContextVar[Scope | None] = ContextVar("crewlite_bound_scope", default=None)
_call_key: ContextVar[Json] = ContextVar("crewlite_call_key", default=None)


def scope() -> Scope:
    """What encloses the caller: a running step, or PLAIN."""
    return _scope.get()


def bound_scope() -> Scope | None:
    """The step whose code has carried itself into the calling thread with `bound`."""
    return _bound_scope.get()


def call_key() -> Json:
    """What a thread was given to do with `bound`: the function and its arguments; None elsewhere."""
    return _call_key.get()


def bound(fn: Callable[P, R]) -> Callable[P, R]:
    """`fn` as part of the run it is bound in, for threads of your own: `pool.map(bound(fetch), pages)`.

    A thread knows nothing of the run that started it: steps called there would be plain calls, and not recorded. The
    step that binds must outlast the calls. Outside a run it changes nothing. Raises ConfigError for an async function.
    """
    if inspect.iscoroutinefunction(fn):
        raise ConfigError(
            f"bound({getattr(fn, '__name__', fn)}): a coroutine carries the run itself; await it as it is"
        )
    context = copy_context()
    context.run(_bound_scope.set, _scope.get())

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        own = context.copy()  # as a context is entered by one thread at a time
        own.run(_call_key.set, [_call_key.get(), getattr(fn, "__qualname__", ""), *map(codec.known, [args, kwargs])])
        return own.run(fn, *args, **kwargs)

    return call


def detach() -> Token[Scope]:
    """Step out of every scope; `reattach` returns."""
    return _scope.set(PLAIN)


def reattach(token: Token[Scope]) -> None:
    """Return to where `detach` was called."""
    _scope.reset(token)


@contextlib.contextmanager
def entered(inner: Scope) -> Iterator[None]:
    """Run the block inside `inner`."""
    token = _scope.set(inner)
    try:
        yield
    finally:
        _scope.reset(token)


async def together(work: Sequence[Awaitable[T]]) -> list[T]:
    """Await all. If one fails, the others still end and are recorded before the failure travels."""
    if len(work) == 1:
        return [await work[0]]
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]


def idempotency_key() -> str:
    """A key for the call being made: the same on every retry and resume, another for every other call.

    Pass it to services that accept one, so that a call cut in the middle and made again takes effect once. Empty
    outside a run.
    """
    return _scope.get().idempotency_key
