"""`@flow`: a function whose runs can be resumed. Its steps answer from the record; the code between them runs again."""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Never, ParamSpec, Protocol, Self, TypedDict, Unpack, overload

from typing_extensions import TypeVar  # with a default, which Python has from 3.13 on

from crewlite import durable, kinds
from crewlite.coming_from import Hinting
from crewlite.concurrency import background
from crewlite.concurrency.own_threads import blocks
from crewlite.definitions.callables import is_async, types_of
from crewlite.definitions.keywords import known_keywords, options_of, shows_options
from crewlite.encoding import homes
from crewlite.errors import ConfigError, OnLoopThread
from crewlite.flow.options import (
    Decorated,
    decorated,
    function_name,
    misfit,
    retry_policy,
    signature_of,
    time_limit,
)
from crewlite.kinds import Kind
from crewlite.lazy import lazy
from crewlite.recovery import checks
from crewlite.recovery.port import Policy, check_policy
from crewlite.runtime.kickoffs.request import Bind, Finished, FromCheckpoint, KickoffOptions, Request
from crewlite.runtime.kickoffs.runnable import Runnable
from crewlite.state.config import AS_SETTINGS, CheckpointConfig

if TYPE_CHECKING:
    from crewlite.runtime.kickoffs.root import Root

root = lazy("crewlite.flow.root")  # imports the engine, which a program that only defines a flow does not need

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V", default=Any)
_YIELDING = {"wait"}  # options of kickoff that give way to a parameter of the same name, as older flows may have one


class FlowOptions(TypedDict, total=False):
    """The options that `@flow` and `@recoverable` share."""

    name: str | None
    checkpoint: CheckpointConfig | bool | None
    timeout: float | timedelta | None
    max_concurrency: int | None
    verbose: bool


class FlowFunction(Decorated, Hinting, Runnable[V], Generic[P, R, V]):
    """A function whose calls are durable runs, made by `@flow`.

    The function takes `P` and returns an `R`. The result of a run is a `V`: the `R`, awaited if the function is async.
    """

    run_kind: ClassVar[Kind] = kinds.FLOW
    made_by = ("@flow", "failure_policy")
    may_report: ClassVar[bool] = False
    """Whether the function, and the steps inside it, may report about their work for the next attempt."""

    _fixed = frozenset({"retries", "retry_delay", "timeout", "failure_policy", "max_concurrency"})

    def __init__(
        self,
        func: Callable[P, R],
        *,
        name: str | None = None,
        checkpoint: CheckpointConfig | bool | None = None,
        retries: int = 0,
        retry_delay: float = 0.0,
        timeout: float | timedelta | None = None,
        failure_policy: Policy | None = None,
        max_concurrency: int | None = None,
        verbose: bool = False,
    ) -> None:
        kind, policy = self.made_by
        self.name = function_name(kind, func, name)
        if inspect.isclass(func):
            raise ConfigError(f"{self.label} is a class; wanted a function. A flow of methods: class {self.name}(Flow)")
        functools.update_wrapper(self, func)
        self.func = func
        homes.note(func)
        self.checkpoint = checkpoint
        if not isinstance(verbose, bool):
            raise ConfigError(f"{self.label}: verbose is {verbose!r}; wanted True or False")
        self.verbose = verbose
        self.signature = signature_of(self.label, func)
        self.is_async, self.blocks = is_async(func), blocks(func)
        self._bound = None
        checks.whole_or_none(self.label, 0, retries=retries)
        checks.whole_or_none(self.label, 1, max_concurrency=max_concurrency)
        checks.seconds(self.label, retry_delay=retry_delay)
        self.remedies = retry_policy(retries, retry_delay)
        self.deadline = time_limit(self.label, timeout)
        self.policy: Policy | None = check_policy(failure_policy, self.label, policy)
        self.width = max_concurrency
        parameters = self.signature.parameters.keys()
        self._options = KickoffOptions.__annotations__.keys() - (_YIELDING & parameters)
        if taken := self._options & parameters:
            names = ", ".join(taken)
            raise ConfigError(f"{self.label} has a parameter {names}, which is an option of kickoff: rename it")

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function without a run of its own: its steps belong to the enclosing run, or are plain calls."""
        loop, here = durable.scope().loop, background.running_loop()
        if loop is None or (here is not None if self.is_async else here is not loop):
            return self.func(*args, **kwargs)
        if self.is_async:
            raise ConfigError(
                f"{self.name}(...) returns a coroutine, but was called in a plain function, which cannot await it: "
                f"call {self.name}.kickoff(...)"
            )
        try:
            return self.func(*args, **kwargs)
        except OnLoopThread as error:
            raise OnLoopThread(self.name, f"await {self.name}.akickoff(...)") from error

    def __get__(self, instance: None, owner: type | None = None) -> Self:  # so type checkers refuse a flow as a method
        if instance is None:  # a class may serve as a namespace of flows
            return self
        raise ConfigError(f"{self.label} is a method; wanted a function: pass the object as an argument")

    @property
    def run_name(self) -> str:
        """The name of the flow."""
        return self.name

    def as_request(self, *args: Any, **kwargs: Any) -> Request:
        """Build the request of a kickoff with these arguments: options of kickoff, and arguments of the function."""
        options: Any = {name: kwargs.pop(name) for name in self._options if name in kwargs}
        return Request(self._given(args, kwargs) or None, **options)

    def as_root(self, request: Request) -> Root[Any]:
        """Build the Root that the engine runs."""
        made: Root[Any] = root.FlowRoot(self)
        return made

    def arguments(self, inputs: dict[str, Any]) -> inspect.BoundArguments:
        """Return the arguments of the function for one attempt."""
        return inspect.BoundArguments(self.signature, OrderedDict(inputs))

    def as_result(self, finished: Finished[Any]) -> V:
        """Return the return value of the function."""
        value: V = finished.value.value
        return value

    @classmethod
    def rebuilt(cls, source: FromCheckpoint, bind: Bind) -> Never:
        """Raise ConfigError, as `check_rebuilds` does."""
        cls.check_rebuilds(bind)

    @classmethod
    def check_rebuilds(cls, bind: Bind) -> Never:
        """Raise ConfigError: a flow cannot be rebuilt, as no record holds a function."""
        raise ConfigError(
            "A flow is a function, which no record holds: call kickoff(from_checkpoint=...) of the function itself"
        )

    def as_inputs(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return arguments by name, as runs record them. Raises ConfigError for one that the function does not take."""
        return self._given((), inputs)

    def input_names(self) -> list[str]:
        """Return the names of the function's parameters."""
        return list(self.signature.parameters)

    def required_inputs(self) -> list[str]:
        """Return the names of the parameters without a default."""
        spread = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        parameters = self.signature.parameters.items()
        return [name for name, one in parameters if one.default is one.empty and one.kind not in spread]

    def input_types(self) -> Mapping[str, Any]:
        """Return the type hints of the function's parameters; {} if they cannot be evaluated."""
        return types_of(self.func)

    def _given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return self.signature.bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            raise misfit(f"flow {self.name!r}", self.signature, kwargs, error) from None


class _Decorator(Protocol):
    @overload
    def __call__(self, func: Callable[P, Coroutine[Any, Any, V]], /) -> FlowFunction[P, Coroutine[Any, Any, V], V]: ...
    @overload
    def __call__(self, func: Callable[P, V], /) -> FlowFunction[P, V, V]: ...


@overload
def flow(func: Callable[P, Coroutine[Any, Any, V]], /) -> FlowFunction[P, Coroutine[Any, Any, V], V]: ...
@overload
def flow(func: Callable[P, V], /) -> FlowFunction[P, V, V]: ...
@overload
def flow(
    *, retries: int = 0, retry_delay: float = 0.0, failure_policy: Policy | None = None, **options: Unpack[FlowOptions]
) -> _Decorator: ...
@known_keywords("@flow", instead=AS_SETTINGS)
@shows_options(*options_of(FlowFunction.__init__))
def flow(func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a flow from a function, sync or async."""
    return decorated(FlowFunction, func, options)
