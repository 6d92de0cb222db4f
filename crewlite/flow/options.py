"""The options of `@flow`, `@step` and the methods of flows, checked when a function is decorated."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar, TypedDict, TypeVar
from weakref import WeakSet

from crewlite import durable
from crewlite.concurrency.own_threads import blocks
from crewlite.definitions.callables import is_async, is_generator
from crewlite.definitions.definition import check_takes
from crewlite.definitions.keywords import options_of
from crewlite.encoding import codec
from crewlite.encoding.comparable import comparable
from crewlite.errors import ConfigError, NotCodable, meant
from crewlite.recovery import FailureKind, FailurePolicy, Policy, Rule, checks
from crewlite.recovery.port import check_policy
from crewlite.runtime.steps.executors import EXECUTORS, Executor, Job, Runtime, executor_of
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.addresses import NAME_RULE, can_be_name
from crewlite.texts.logs import logger

T = TypeVar("T")
log = logger("crewlite.flow")

_RETRIED: frozenset[FailureKind] = frozenset({"unavailable", "timeout", "empty", "bug"})
"""The failures that `retries=` retries. Errors by which crewlite itself refuses something are not among them."""

_warned_of = WeakSet[object]()


class CallOptions(TypedDict, total=False):
    """The options that steps and methods of flows have in common."""

    retries: int | None
    retry_delay: float
    timeout: float | timedelta | None
    failure_policy: Policy | None
    runtime: Runtime | Executor
    compensate: Callable[[Any], Any] | None


@dataclass(frozen=True, slots=True)
class Execution:
    """How a step or a method calls its function, from its options."""

    name: str
    executor: Executor
    timeout: float | None
    """The limit in seconds of one attempt."""
    remedies: FailurePolicy | None
    """The policy that `retries` stands for; None without `retries`."""
    policy: Policy | None
    is_async: bool
    blocks: bool
    """See Job."""
    compensate: Callable[[Any], Any] | None
    """What undoes the work, given its result."""

    @classmethod
    def of(
        cls,
        kind: str,
        name: str,
        func: Callable[..., Any],
        *,
        runtimes: Collection[str] = tuple(EXECUTORS),
        retries: int | None = None,
        retry_delay: float = 0.0,
        timeout: float | timedelta | None = None,
        failure_policy: Policy | None = None,
        runtime: Runtime | Executor = "inline",
        compensate: Callable[[Any], Any] | None = None,
    ) -> Execution:
        """Build the Execution from the options of the decorator `kind`. Raises ConfigError for an unusable option.

        `runtimes`: the names that `runtime` may have.
        """
        label = f"{kind} {name!r}"
        checks.whole_or_none(label, 0, retries=retries)
        checks.seconds(label, retry_delay=retry_delay)
        if compensate is not None:
            check_takes(compensate, f"{label}: compensate", "the result")
        executor = executor_of(name, runtime, kind, runtimes)
        executor.check(name, func)
        return cls(
            name,
            executor,
            time_limit(label, timeout),
            None if retries is None else retry_policy(retries, retry_delay) or FailurePolicy(),
            check_policy(failure_policy, label),
            is_async(func),
            blocks(func),
            compensate,
        )

    def of_another(self, func: Callable[..., Any]) -> Execution:
        """Return these options for another function."""
        return replace(self, is_async=is_async(func), blocks=blocks(func))

    def call(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Call the function in the step that runs here."""
        inline = self.executor is EXECUTORS["inline"]  # needs no idempotency key, which takes time to compute
        key = "" if inline else durable.scope().idempotency_key
        return self.executor.run(Job(self.name, func, self.is_async, args, kwargs, key, blocks=self.blocks))


class Decorated:
    """What a decorator makes of a function. It refuses attributes that look like options and would have no effect."""

    name: str
    made_by: ClassVar[tuple[str, str]]
    """The decorator, and its option for a failure policy, as errors name them."""
    _fixed: ClassVar[Collection[str]]
    """The options of the decorator that are no attributes."""

    @property
    def label(self) -> str:
        """How error messages name this function: its decorator, then its name."""
        return f"{self.made_by[0]} {self.name!r}"

    def __setattr__(self, name: str, value: object) -> None:
        known, hint = (*self._fixed, "checkpoint", "verbose"), ""
        if name in self._fixed:
            hint = f"give it to the decorator: {self.made_by[0]}({name}=...)"
        elif name not in known and not name.startswith("_") and not hasattr(self, name):
            hint = meant(name, known)
        if hint:
            raise ConfigError(f"{self.label} has no attribute {name!r} to set; {hint}")
        if name == "checkpoint":
            check_checkpoint(self.label, value)
        super().__setattr__(name, value)


CALL_OPTIONS = options_of(Execution.of, CallOptions.__annotations__)


def decorated(of: Callable[..., T], func: Callable[..., Any] | None, options: dict[str, Any]) -> Any:
    """Return `of(func)`; without a function, return a decorator that has these options and gets the function later."""
    return (lambda fn: of(fn, **options)) if func is None else of(func, **options)


def retry_policy(retries: int, delay: float) -> FailurePolicy | None:
    """Build the policy that retries up to `retries` times; None for 0.

    The first retry comes after about `delay` seconds, each later one after twice as long.
    """
    return FailurePolicy((Rule(_RETRIED, retries, base=delay),)) if retries else None


def check_checkpoint(label: str, checkpoint: object) -> None:
    """Raise ConfigError unless a flow may have this value as its setting `checkpoint`."""
    if not isinstance(checkpoint, CheckpointConfig | bool | None):
        raise ConfigError(f"{label}: checkpoint is {checkpoint!r}; wanted True, or CheckpointConfig(location=...)")


def function_name(by: str, func: object, name: str | None = None) -> str:
    """Return the name of a function that `by` decorates, by default its own.

    Raises ConfigError for anything but a function, for an unusable name, and for a generator, as only complete results
    are recorded.
    """
    if isinstance(func, str):
        raise ConfigError(f"{by} was given {func!r}; wanted a function, or {by}(name={func!r})")
    found = named(by, called(func) if name is None else name)
    if not callable(func):
        raise ConfigError(f"{by} {found!r} is {func!r}; wanted a function")
    if is_generator(func):
        problem = "is a generator, but only a complete result can be recorded: have it return a list"
        raise ConfigError(f"{by} {found!r} {problem}")
    return found


def signature_of(label: str, func: Callable[..., Any]) -> inspect.Signature:
    """Return a function's signature. Raises ConfigError if Python does not know it, as for `max`."""
    try:
        return inspect.signature(func)
    except ValueError:
        raise ConfigError(
            f"{label} does not tell which arguments it takes, as it is no function of Python code: call it in a "
            f"function of your own, and decorate that"
        ) from None


def time_limit(label: str, timeout: float | timedelta | None) -> float | None:
    """Return a `timeout` in seconds. Raises ConfigError unless it is a number or a timedelta, more than 0."""
    found = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if found is not None and (isinstance(found, bool) or not isinstance(found, int | float) or not found > 0):
        raise ConfigError(f"{label}: timeout is {timeout!r}; wanted seconds or a timedelta, more than 0")
    return found


def named(kind: str, name: str) -> str:
    """Return the name. Raises ConfigError unless it is text that an address can hold."""
    if not isinstance(name, str):
        raise ConfigError(f"{kind} is named {name!r}; wanted text")
    if not can_be_name(name):
        raise ConfigError(f"{kind} is named {name!r}; {NAME_RULE}: choose another with name=")
    return name


def misfit(what: str, signature: inspect.Signature, given: Iterable[str], error: TypeError) -> ConfigError:
    """Return the error of a call whose arguments do not fit a signature. `given`: the names of keyword arguments."""
    known = [*signature.parameters]
    unknown = [name for name in given if name not in known]
    close = [hint for name in unknown if (hint := meant(name, known))]
    close += ["pass what is in inputs by its own names, without inputs="] if "inputs" in unknown else []
    return ConfigError(f"{what}: {'; '.join((str(error), *close[:1]))}; it takes {signature}")


def question_of(arguments: Mapping[str, Any]) -> tuple[Any, NotCodable | None]:
    """Return arguments as plain JSON with their types, and the error of one that cannot be recorded.

    An argument that cannot be recorded, such as a client, is represented by its class alone.
    """
    try:
        return codec.encode(arguments), None
    except NotCodable as error:
        return {name: comparable(value) for name, value in arguments.items()}, error


def warn_of_refused(asked: object, label: str, refused: NotCodable, also: str = "") -> None:
    """Warn, once for each step or flow that is `asked`, that it has an argument which cannot be recorded."""
    if asked not in _warned_of:
        _warned_of.add(asked)
        so = "Without that, a resume cannot tell whether the argument has changed"
        log.warning("%s: %s %s%s", label, refused, so, also)


def called(func: object) -> str:
    """Return the name of a function, or the class name of a callable without a name."""
    return str(getattr(func, "__name__", type(func).__name__))
