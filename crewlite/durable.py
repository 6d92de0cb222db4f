"""The step port: how code requests recorded work without depending on the engine that records it.

`scope()` returns the scope of the caller. In a run, that is a scope of the engine, which answers recorded steps from
the journal, executes the others, and commits their outcomes. Outside a run it is `PLAIN`, which only executes the work.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from crewlite.budget import Budget
from crewlite.errors import InDoubt
from crewlite.ids import now
from crewlite.kinds import Kind
from crewlite.lazy import asyncio
from crewlite.step_parts import NO_POLICIES, Cached, Call, Drift, Effect, Intent, Limit, ModelCall, Policies, Recorded
from crewlite.usage import NO_USAGE, Usage

if TYPE_CHECKING:
    from crewlite.recovery.guards import Guard, Shared
    from crewlite.recovery.remedy import Remedy
    from crewlite.recovery.types import RecoveryContext

T = TypeVar("T")
Json = Any


Said = tuple[type[Any], Mapping[str, Any]] | None
"""An event of a step: its class, and its fields except those that all events have. None: no event."""


def with_more(said: Said, **more: Any) -> Said:
    """Return the event with more fields. A field that it already has keeps its value."""
    return said and (said[0], {**more, **said[1]})


class StepEvents(Protocol):
    """Says which events a step emits."""

    @property
    def source(self) -> object:
        """The live object that handlers get as their first argument."""

    def started(self) -> Said:
        """Return the event of a start."""

    def completed(self, value: Any) -> Said:
        """Return the event of an outcome that was just recorded."""

    def failed(self, error: str, error_type: str) -> Said:
        """Return the event of a final failure, after which there is no retry."""


def same(value: Any) -> Any:
    """Return the value itself: the encoder and decoder for outcomes that are plain JSON already."""
    return value


@dataclass(slots=True, eq=False)
class Step(Generic[T]):
    """One recorded piece of work: the code that does it, its question, and how its outcome is encoded as JSON.

    Treat it as immutable; it is not frozen because creating a frozen dataclass for each step is slow.
    """

    kind: Kind
    name: str | None
    work: Callable[[], Awaitable[T]]
    question: Json
    """What the step is asked, as plain JSON: the recorded outcome is reused only while this is the same. It must not
    depend on who answers, on the time, or on randomness."""
    events: StepEvents
    given: object = None
    """The arguments themselves, if `question` may hold only stand-ins for some of them."""
    encode: Callable[[T], Json] = same
    """Returns the outcome as plain JSON; raises NotCodable."""
    decode: Callable[[Json], T] = same
    usage: Callable[[T], Json] | None = None
    """Returns the tokens and cost of the outcome, as recorded."""
    with_usage: Callable[[T, Usage], T] | None = None
    """Adds the usage of the step and all steps inside it to an outcome. Only the usage of calls is recorded."""
    address: str | None = None
    """The address that `Scope.reserve_address` returned; None to take the next one when the step is requested."""
    provenance: Mapping[str, str] | None = None
    """What answers (model, prompt template). Recorded so that a change can be reported; a change causes no rerun."""
    chained: bool = False
    """Whether all earlier outcomes that the parent has received are part of the question, as in a model call."""
    effect: Effect = "none"
    timeout: float | None = None
    """The limit in seconds of one attempt."""
    deadline: float | None = None
    """The limit in seconds of all attempts together, from the first start of the step, across resumes."""
    policies: Policies = NO_POLICIES
    may_report: bool = False
    """Whether code in the step, and in all steps inside it, may report on its work to the next attempt (`sayings`)."""
    compensate: Callable[[T], Any] | None = None
    """Undoes the side effects of the step, given its outcome."""
    failure: Callable[[T], Exception | None] | None = None
    """Returns the failure that an outcome reports, or None. A policy may retry it as it would an exception."""
    cache: Cached | None = None
    """The cache entry through which runs of the same store share the outcome; None to share nothing."""
    answer: Callable[[Any], T] | None = None
    """Returns the outcome for the answer that a person gave in place of a call in doubt."""
    intends: Callable[[T], Sequence[Intent]] | None = None
    """Returns the calls that this outcome requests. Their intents are committed with the outcome."""
    placeholder: Callable[[], T] | None = None
    """Returns a stand-in for an unknown outcome, for a preview."""
    texts: Mapping[str, str] | None = None
    """The texts in `question`, such as a task's description; recorded to show later what the outcome answered."""
    drift: Drift = "diverge"
    strict_replay: bool = False
    """Whether `question` alone determines the steps inside it, so that steps other than the recorded are an error."""
    round_trip: bool = False
    """Whether the caller gets the outcome as decoded from the record, in the first execution as on every resume."""
    label: str | None = None
    """The kind of work, as the author of the step names it."""
    limits: tuple[Limit, ...] = ()
    """The limits on concurrent steps that this step counts towards."""
    caller_waits: bool = False
    """Whether the code that requests the step waits until it has ended, and requests nothing meanwhile."""
    inherited_limits: tuple[Limit, ...] = ()
    """The limits that all steps inside this one count towards."""
    budgets: tuple[Budget, ...] = ()
    """The limits on the usage of this step and everything inside it."""
    auto_approve: bool | None = None
    """Whether calls of tools inside this step that require approval are approved; None inherits."""
    streamed: bool = False
    """Whether models inside this step are asked for their replies in pieces, also if those around it are not."""
    checkpoint: Any = None
    """The checkpoint setting for the events of this step and of the steps inside it; None inherits."""
    own_state: bool = False
    """Whether the state inside the step begins empty, and is no part of the enclosing state."""
    after: int | None = None
    """The number of the commit that the step reacts to. An outcome of the step that was committed before it is
    outdated, unless a fork has edited it."""
    decides: Callable[[str], bool] | None = None
    """Of a router: returns whether its label may decide if the step with this address, which has the same parent, is
    requested."""
    rests_on_more: bool = False
    """Whether the outcome depends on more than the question, as a person's answer does: it is then reused only while
    the questions of the enclosing steps, and what their models have heard, are the same."""
    model_call: ModelCall | None = None
    """The call of a model, if the step is one."""

    @property
    def title(self) -> str:
        """What the step is called in error messages, such as "tool search"."""
        return f"{self.kind} {self.name or ''}".strip()


class Scope:
    """The scope of the running code: the step that it belongs to.

    An object of this class itself is the scope outside a run: steps are plain calls, nothing is recorded or emitted.
    """

    __slots__ = ()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop on which steps must be requested; None outside a run."""
        return None

    @property
    def dry(self) -> bool:
        """Whether this is a preview, in which steps are requested and not executed."""
        return False

    @property
    def streamed(self) -> bool:
        """Whether models are asked for their replies in pieces, also where they are not set to it."""
        return False

    @property
    def is_cut(self) -> bool:
        """Whether the running step was cut, so that its code, if a thread still runs it, can do nothing more."""
        return False

    @property
    def run_id(self) -> str:
        """The id of the run; "" outside a run."""
        return ""

    @property
    def address(self) -> str:
        """The address of the running step."""
        return ""

    @property
    def idempotency_key(self) -> str:
        """A key for services that the step calls: the same in all attempts, different for each step, run and branch."""
        return ""

    @property
    def past(self) -> Sequence[Remedy]:
        """The remedies for this step's failed attempts so far."""
        return ()

    def recovery(self, *, around: bool = False) -> RecoveryContext | None:
        """Return what this attempt is told about the failed attempt before it; None if it is told nothing.

        If no attempt of this step has failed, that is what the enclosing steps are told, up to the unit of work around
        it; with `around`, up to the run.
        """
        return None

    @property
    def sayings(self) -> Any:
        """What the code of this attempt reports about its work; None unless an enclosing step has `may_report`."""
        return None

    @property
    def guards(self) -> Sequence[Guard]:
        """The guards of all failure policies around this code, which may refuse calls of tools and models."""
        return ()

    @property
    def shared(self) -> Shared | None:
        """The store for data of all runs at the same location; None outside a run, and if the provider has none."""
        return None

    @property
    def state(self) -> Any:
        """The state of the run as this step sees it; None outside a run."""
        return None

    def start_inside(self) -> Any:
        """Return the state with which a step that is requested now starts."""
        return None

    @property
    def began(self) -> datetime:
        """The time at which the run began, with its time zone; outside a run, the current time."""
        return now()

    @property
    def usage(self) -> Usage:
        """The tokens and cost of this step and all steps inside it so far, in all kickoffs of the run."""
        return NO_USAGE

    def reserve_address(self, kind: str, name: str | None = None, once: Json = None) -> str:
        """Return the address of the next child step of this kind and name, in call order.

        `once`: the question of a call with effect="once", which keeps its address if the order of the calls changes.
        """
        return f"{kind}:{name}" if name else kind

    def expect(self, address: str) -> None:
        """Announce that the step of a reserved address will be requested later.

        The step keeps its place in the order of requests. It may still begin when an error stops the run before that.
        """
        return

    def step(self, step: Step[T]) -> Awaitable[T]:
        """Request a step. The step gets its address now, and executes when the result is awaited."""
        return step.work()

    def spawn(
        self, step: Step[T], start: Any = None, ended: Callable[[asyncio.Task[Any]], None] | None = None
    ) -> asyncio.Task[T]:
        """Request a step and start it. The running step ends only after the spawned one. Call it on the run's loop.

        `start`: what `start_inside` returned when a thread requested the step; None takes it now. `ended` is called
        with the task once that has ended, in the context of this call.
        """
        task = asyncio.ensure_future(step.work())
        if ended:
            task.add_done_callback(ended)
        return task

    def result_in_commit_order(self, task: asyncio.Task[T], part: Awaitable[T]) -> Awaitable[T]:
        """Return the result of a spawned step, after those of steps that other tasks await and that ended before.

        `part`: the task of the step, or a shield around it.
        """
        return part

    def waiting_for(self, asker: Scope) -> Callable[[str], contextlib.AbstractContextManager[None]] | None:
        """Return a function that notes a wait of the running code for a step that the code of `asker` has requested.

        The function takes the step's address, on the run's loop, and returns a context manager for the wait, which
        raises StepDeadlock if the wait could never end. Returns None if such a wait needs no note.
        """
        return None

    def hand_over(self, task: asyncio.Task[Any]) -> None:
        """Hand the result of a spawned step to the code, which from now on sees the step's changes of the state."""
        return

    def mark_awaited(self, task: asyncio.Task[Any]) -> None:
        """Mark a spawned step as awaited: its exception reaches the awaiter, so the parent need not raise it again."""
        return

    def in_doubt(self, address: str) -> bool:
        """Return whether an earlier kickoff of the run may have made this call, with a result that nobody knows."""
        return False

    def calls(self, kind: str, names: Collection[str]) -> Sequence[Call]:
        """Return the steps of this kind and one of these names that have begun, anywhere in the run.

        A step has begun once its start or its intent is recorded. Finished ones come first, in the order of their ends.
        """
        return ()

    def doubt(self, what: str, failed: str, arguments: str) -> InDoubt:
        """Build the error of the call that runs here, with effect="once", which failed and may have taken effect."""
        return InDoubt("", what, failed, arguments)

    def recorded(self, address: str) -> Recorded | None:
        """Return where the outcome of a step is recorded; None if no outcome is recorded."""
        return None

    def mask(self, text: str) -> str:
        """Return `text` with every secret that the run knows replaced by a mask."""
        return text

    def shown_of_beginning(self, text: str) -> int:
        """Return how many characters of a text of which more follows can be shown: those before a possible secret."""
        return len(text)

    def hears(self, event: type[Any]) -> bool:
        """Return whether an event of this class would reach a handler, or create a checkpoint."""
        return False

    async def announce(self, source: object, event: type[Any], about: Mapping[str, Any]) -> str:
        """Emit an event that is not the outcome of a step, with the fields `about`. Returns the id of the event."""
        return ""

    def tell(self, event: type[Any], about: Mapping[str, Any]) -> bool:
        """Emit an event that is not recorded and creates no checkpoint. Callable from any thread; does not wait.

        Returns False outside a run, where nothing is emitted.
        """
        return False


PLAIN = Scope()
_scope: ContextVar[Scope] = ContextVar("crewlite_scope", default=PLAIN)

scope: Callable[[], Scope] = _scope.get
"""Returns the scope of the caller: a running step, or PLAIN."""
enter: Callable[[Scope], Token[Scope]] = _scope.set
"""Enters a scope. Pass the token that it returns to `reattach`."""
reattach: Callable[[Token[Scope]], None] = _scope.reset
"""Returns to the scope in which `enter` or `detach` was called."""


def detach() -> Token[Scope]:
    """Leave all scopes, so that the code that follows is outside the run. Pass the token to `reattach`."""
    return enter(PLAIN)


@contextlib.contextmanager
def entered(inner: Scope) -> Iterator[None]:
    """Run the block inside `inner`."""
    token = enter(inner)
    try:
        yield
    finally:
        reattach(token)


def idempotency_key() -> str:
    """Return a key for the running call: the same on every retry and resume, a different one for every other call.

    Pass it to services that accept such a key: a call that was interrupted and is repeated then takes effect once.
    Returns "" outside a run.
    """
    return scope().idempotency_key
