"""Guards: what may refuse a call of a tool or a model before anything happens. A failure policy has them.

A guard sees the call and the recorded calls before it, so a resumed run refuses what the uninterrupted one would have
refused. Only a circuit breaker knows more: what the runs of the same store have seen of a service.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, SupportsFloat

from crewlite.concurrency import background
from crewlite.definitions.callables import is_async, is_generator
from crewlite.definitions.keywords import constructor_with_known_keywords
from crewlite.errors import CallVetoed, CircuitOpen, ConfigError, text_of
from crewlite.recovery.checks import whole

_log = logging.getLogger("crewlite.recovery")
VETOES = (CallVetoed.__name__, CircuitOpen.__name__)


class Shared(Protocol):
    """What the runs of one store share, in all processes: small data by key (32 hexadecimal digits).

    The run logs a warning if an access fails.
    """

    @property
    def location(self) -> str:
        """The location of the store."""

    async def read(self, key: str) -> bytes | None:
        """Return the data under a key; None if there are none. Raises OSError if they cannot be read."""

    async def change(self, key: str, change: Callable[[bytes | None], bytes]) -> bytes:
        """Replace the data under a key, all or nothing, by what `change(data)` returns, and return the new data.

        `change` may be called several times, in another thread. Raises OSError if it cannot be stored.
        """

    def post(self, key: str, change: Callable[[bytes | None], bytes]) -> None:
        """Request a `change` and return at once. The change is made before any later request."""


@dataclass(frozen=True, slots=True)
class EarlierCall:
    """A call of the same tool that was made and has ended, in the same run."""

    address: str
    is_same: bool
    """Whether the earlier call had the same arguments."""
    text: str = ""
    """What the model was told."""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """A call that is about to be made, as a guard is asked about it."""

    kind: Literal["tool", "model"]
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of a tool."""
    address: str = ""
    effect: str = "none"
    """What a repetition would do: see `BaseTool.effect`."""
    earlier: Callable[[], Sequence[EarlierCall]] = tuple
    """Returns the calls of the same tool that were made, oldest first."""
    shared: Shared | None = None
    """What the runs of one store share; None if the run has no store, or one that cannot share."""

    @property
    def what(self) -> str:
        """The call in words."""
        return f"{self.kind} {self.name}"


class Guard:
    """Base class of guards. Override what you need; raise CallVetoed in `before` to refuse a call.

    >>> class NoMail(Guard):
    ...     def before(self, call):
    ...         if call.name == "send_mail":
    ...             raise CallVetoed("NoMail", call.what, "no mail today")
    """

    def before(self, call: GuardedCall) -> Awaitable[None] | None:
        """Look at a call that is about to be made. Raises CallVetoed to refuse it. It may be async."""

    def after(self, call: GuardedCall, error: BaseException | None) -> Awaitable[None] | None:
        """Learn how a call that this guard let through has ended: `error`, or None if it succeeded. It may be async.

        The call has been made, so an error of this method is logged and changes nothing.
        """

    def asks(self, call: GuardedCall) -> bool:
        """Return whether a person has to approve a call of a tool. It must be pure: a resume asks again."""
        return False

    def is_same(self, other: Guard) -> bool:
        """Return whether this guard need not see calls that `other` sees, because it counts the same calls."""
        return self is other


@constructor_with_known_keywords
@dataclass(frozen=True)
class LoopDetector(Guard):
    """Refuses a call of a tool that has brought the same result for the same arguments `window` times in a row."""

    window: int = 3

    def __post_init__(self) -> None:
        whole("LoopDetector", 2, window=self.window)

    def before(self, call: GuardedCall) -> None:
        """Raise CallVetoed if the last `window` calls of the tool had these arguments and the same result."""
        inside = call.address.rpartition("/")[0]
        last = [one for one in call.earlier() if one.address.rpartition("/")[0] == inside][-self.window :]
        if len(last) == self.window and all(one.is_same and one.text == last[0].text for one in last):
            reason = f"it has brought the same result {self.window} times in a row. Use that, or do something else."
            raise CallVetoed("LoopDetector", call.what, reason, "loop_detected")


@dataclass(frozen=True)
class RequireIdempotency(Guard):
    """Refuses a call with effect="once" that has already succeeded in the run, and tells the model the earlier result.

    A new plan may make such a call again.
    """

    def before(self, call: GuardedCall) -> None:
        """Raise CallVetoed if the same call has succeeded before."""
        if call.effect != "once":
            return
        for one in call.earlier():
            if one.is_same and not one.failed:
                reason = f"it must happen only once, and was made at {one.address}. Its result was: {one.text}"
                raise CallVetoed("RequireIdempotency", call.what, reason)


@constructor_with_known_keywords
@dataclass(frozen=True)
class RiskThreshold(Guard):
    """Has a person approve each call of a tool whose risk is above `ask_above`, as `requires_approval` does for all.

    `scorer` takes the GuardedCall and returns its risk from 0 to 1. It must be pure: a resumed run asks it again.
    """

    scorer: Callable[[GuardedCall], float]
    ask_above: float = 0.9

    def __post_init__(self) -> None:
        if not callable(self.scorer):
            raise ConfigError(f"RiskThreshold: scorer is {self.scorer!r}; wanted a function of a call")
        if is_async(self.scorer):
            raise ConfigError("RiskThreshold: scorer is async; wanted a plain function that returns a number")
        if type(self.ask_above) not in (int, float) or not 0 <= self.ask_above <= 1:
            raise ConfigError(f"RiskThreshold: ask_above is {self.ask_above!r}; wanted a number from 0 to 1")

    def asks(self, call: GuardedCall) -> bool:
        """Return whether the call is risky. Raises ConfigError if the scorer fails, or returns no risk."""
        try:
            risk = self.scorer(call)
        except Exception as error:  # the border: the scorer is code of the user
            raise ConfigError(f"RiskThreshold: scorer raised {type(error).__name__}: {text_of(error)}") from error
        if not isinstance(risk, SupportsFloat) or not 0 <= float(risk) <= 1:
            raise ConfigError(f"RiskThreshold: scorer returned {risk!r} for {call.what}; wanted a number from 0 to 1")
        return float(risk) > self.ask_above


def guards_inside(outer: Sequence[Guard], *policies: object) -> tuple[Guard, ...]:
    """Return the guards that hold inside a definition: those around it, then those of its failure policies, each once.

    `policies` may contain None, and strategies that have no guards.
    """
    found = [*outer]
    for policy in policies:
        for guard in getattr(policy, "guards", ()):
            if not any(map(guard.is_same, found)):
                found.append(guard)
    return tuple(found)


UNGUARDED = nullcontext()
"""What `guarding` is for no guards."""


@asynccontextmanager
async def guarding(guards: Sequence[Guard], call: GuardedCall, mask: Callable[[str], str] = str) -> AsyncIterator[None]:
    """Let the guards refuse the call that the block makes, and tell those that let it pass how it ended.

    `mask` hides secrets in what is logged.
    """
    passed: list[Guard] = []
    error: BaseException | None = None
    try:
        for guard in guards:
            if (said := await _awaited(guard.before(call))) is not None:
                wanted = "None, or CallVetoed raised to refuse the call"
                raise ConfigError(f"{type(guard).__name__}.before returned {said!r}; wanted {wanted}")
            passed.append(guard)
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        for guard in passed:
            await _tell(guard, call, error, mask)


async def _tell(guard: Guard, call: GuardedCall, error: BaseException | None, mask: Callable[[str], str]) -> None:
    async def after() -> None:
        await _awaited(guard.after(call, error))

    try:
        await background.guarded(after())
    except Exception as problem:  # the border: the call has been made, whatever this raises
        said = f"{type(guard).__name__}.after raised {type(problem).__name__}: {text_of(problem)}"
        _log.warning("%s, after the call of %s", mask(said), call.what)


async def _awaited(made: Any) -> Any:
    return await made if inspect.isawaitable(made) else made


_METHODS = ("asks", "before", "after")


def check_guards(guards: object) -> tuple[Guard, ...]:
    """Return guards as a tuple. Raises ConfigError if one is no guard, or has a method whose code could not run."""
    if not isinstance(guards, list | tuple) or not all(isinstance(one, Guard) for one in guards):
        raise ConfigError(f"FailurePolicy: guards is {guards!r}; wanted a list of guards, such as [LoopDetector()]")
    for one in guards:
        called = type(one).__name__
        if all(getattr(type(one), name) is getattr(Guard, name) for name in _METHODS):
            raise ConfigError(f"{called} does nothing: define before(self, call), or after(self, call, error)")
        if is_async(one.asks):
            raise ConfigError(f"{called}.asks is async; wanted a plain method that returns True or False")
        for name in _METHODS:
            if is_generator(getattr(one, name)):
                raise ConfigError(f"{called}.{name} is a generator, none of whose code would run: do not yield")
    return tuple(guards)
