"""`@flow`: a function whose runs survive. Its steps answer from the record; the code between them runs again."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, Self, TypeVar, get_type_hints, overload

from crewlite import durable, kinds
from crewlite.errors import ConfigError, OnLoopThread, meant
from crewlite.flow.options import again, called, integers, known, named, returning, seconds, time_limit
from crewlite.kinds import Kind
from crewlite.lazy import lazy
from crewlite.recovery.remedy import Policy, check_policy
from crewlite.runtime.future import on
from crewlite.runtime.request import Bind, Finished, FromCheckpoint, KickoffOptions, Request
from crewlite.runtime.runnable import Runnable
from crewlite.state.config import CheckpointConfig
from crewlite.tools.base import is_async

if TYPE_CHECKING:
    from crewlite.runtime.root import Root

root = lazy("crewlite.flow.root")  # the engine and what is made with it: who only defines a flow need not wait

P = ParamSpec("P")
R = TypeVar("R")


class FlowFunction(Runnable[Any], Generic[P, R]):
    """A function as a durable run; made by `@flow`."""

    run_kind: ClassVar[Kind] = kinds.FLOW

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
        self.name = named("flow", called(func) if name is None else name)
        returning("flow", self.name, func)
        functools.update_wrapper(self, func)
        self.func = func
        if not isinstance(checkpoint, CheckpointConfig | bool | None):
            raise ConfigError(
                f"@flow {self.name!r}: checkpoint is {checkpoint!r}; wanted True, or CheckpointConfig(location=...)"
            )
        self.checkpoint = checkpoint
        if not isinstance(verbose, bool):
            raise ConfigError(f"@flow {self.name!r}: verbose is {verbose!r}; wanted True or False")
        self.verbose = verbose
        self.signature = inspect.signature(func)
        self.is_async = is_async(func)
        self._bound = None
        integers("flow", self.name, retries=(retries, 0), max_concurrency=(max_concurrency, 1))
        seconds("flow", self.name, retry_delay=retry_delay)
        self.remedies = again(retries, retry_delay)
        self.deadline = time_limit("flow", self.name, timeout)
        self.policy: Policy | None = check_policy(failure_policy, f"@flow {self.name!r}")
        self.width = max_concurrency
        if taken := KickoffOptions.__annotations__.keys() & self.signature.parameters.keys():
            raise ConfigError(f"@flow {self.name!r} takes {', '.join(taken)}, which kickoff takes itself: rename it")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, without a run of its own: its steps are plain calls, or belong to the enclosing run."""
        loop = durable.scope().loop
        if loop is None or on(loop) == self.is_async:
            return self.func(*args, **kwargs)
        if self.is_async:
            raise ConfigError(
                f"{self.name}(...) is a coroutine, and was called in a function, which cannot await it: call "
                f"{self.name}.kickoff(...)"
            )
        try:
            return self.func(*args, **kwargs)
        except OnLoopThread as error:
            raise OnLoopThread(self.name, f"await {self.name}.akickoff(...)") from error

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:  # a class may be a place to keep flows in
            return self
        raise ConfigError(f"@flow {self.name!r} is a method; a flow is a function: what it works on comes as arguments")

    @property
    def run_name(self) -> str:
        """Its name."""
        return self.name

    def as_request(self, *args: Any, **kwargs: Any) -> Request:
        """What a kickoff with these arguments asks for: options of every kickoff, and arguments of the function."""
        options = {name: kwargs.pop(name) for name in KickoffOptions.__annotations__ if name in kwargs}
        return Request(self._given(args, kwargs) or None, **options)

    def as_root(self, request: Request) -> Root[Any]:
        """What it is to the engine."""
        made: Root[Any] = root.FlowRoot(self)
        return made

    def as_result(self, finished: Finished[Any]) -> Any:
        """What the function returned."""
        return finished.value.value

    @classmethod
    def rebuilt(cls, source: FromCheckpoint, bind: Bind) -> Self:
        """No record holds a function. Raises ConfigError."""
        raise ConfigError(
            "A flow is a function, which no record holds: kick off the function itself, from_checkpoint=..."
        )

    def as_inputs(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Arguments by name as its runs record them. Raises ConfigError for one that the function does not take."""
        return self._given((), inputs)

    def input_names(self) -> list[str]:
        """The names of its parameters."""
        return list(self.signature.parameters)

    def required_inputs(self) -> list[str]:
        """The parameters without a default."""
        spread = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        parameters = self.signature.parameters.items()
        return [name for name, one in parameters if one.default is one.empty and one.kind not in spread]

    def input_types(self) -> Mapping[str, Any]:
        """The type hints of its parameters; none where only a type checker can read them."""
        try:
            return get_type_hints(self.func)
        except (NameError, TypeError):
            return {}

    def with_model(self, llm: object) -> Self:
        """Raises ConfigError: its code says which models it asks."""
        raise ConfigError(f"--model is for crews and agents: what flow {self.name!r} asks is chosen in its code")

    def secret_sources(self) -> tuple[object, ...]:
        """The live objects in whose fields secrets are looked for: of a function none but itself."""
        return (self,)

    def _given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return self.signature.bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            close = [hint for name in kwargs if (hint := meant(name, self.input_names()))]
            raise ConfigError(
                f"flow {self.name!r}: {'; '.join((str(error), *close[:1]))}; it takes {self.signature}"
            ) from None


@overload
def flow(func: Callable[P, R], /) -> FlowFunction[P, R]: ...
@overload
def flow(
    *,
    name: str | None = None,
    checkpoint: CheckpointConfig | bool | None = None,
    retries: int = 0,
    retry_delay: float = 0.0,
    timeout: float | timedelta | None = None,
    failure_policy: Policy | None = None,
    max_concurrency: int | None = None,
    verbose: bool = False,
) -> Callable[[Callable[P, R]], FlowFunction[P, R]]: ...
def flow(func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a flow of a function, sync or async."""
    known("flow", FlowFunction, options)
    if func is not None:
        return FlowFunction(func, **options)
    return lambda fn: FlowFunction(fn, **options)
