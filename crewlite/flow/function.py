"""`@flow`: a function whose runs survive. Its steps answer from the record; the code between them runs again."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload
from uuid import UUID

from crewlite import background, codec, durable, events, kinds
from crewlite.durable import Limit, Stamp, Step
from crewlite.errors import ConfigError, OnLoopThread, meant
from crewlite.flow.asking import asks_people
from crewlite.flow.handle import FlowHandle, Returned
from crewlite.flow.options import again, called, integers, known, named, returning, seconds, time_limit
from crewlite.recovery import FailurePolicy
from crewlite.runtime.door import run_sync
from crewlite.runtime.engine import kickoff
from crewlite.runtime.executors import EXECUTORS, Job
from crewlite.runtime.fork import Fork
from crewlite.runtime.future import on
from crewlite.runtime.kickoff import FromCheckpoint, Request, Root, identity_of
from crewlite.runtime.preview import Preview, preview
from crewlite.runtime.rebuild import Bind
from crewlite.runtime.run import Run
from crewlite.state.config import CheckpointConfig
from crewlite.tools.base import is_async

P = ParamSpec("P")
R = TypeVar("R")


class FlowFunction(Generic[P, R]):
    """A function as a durable run; made by `@flow`."""

    def __init__(
        self,
        func: Callable[P, R],
        *,
        name: str | None = None,
        checkpoint: CheckpointConfig | bool | None = None,
        retries: int = 0,
        retry_delay: float = 0.0,
        timeout: float | timedelta | None = None,
        failure_policy: FailurePolicy | None = None,
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
        self._signature = inspect.signature(func)
        self._async = is_async(func)
        self._bound: Any = None
        integers("flow", self.name, retries=(retries, 0), max_concurrency=(max_concurrency, 1))
        seconds("flow", self.name, retry_delay=retry_delay)
        self._remedies = again(retries, retry_delay)
        self._deadline = time_limit("flow", self.name, timeout)
        if not isinstance(failure_policy, FailurePolicy | None):
            raise ConfigError(f"@flow {self.name!r}: failure_policy is {failure_policy!r}; wanted a FailurePolicy")
        self._policy = failure_policy
        self._width = max_concurrency
        if taken := {"run_id", "from_checkpoint", "answers", "rerun", "resume"} & self._signature.parameters.keys():
            raise ConfigError(f"@flow {self.name!r} takes {', '.join(taken)}, which kickoff takes itself: rename it")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, without a run of its own: its steps are plain calls, or belong to the enclosing run."""
        loop = durable.scope().loop
        if loop is None or on(loop) == self._async:
            return self.func(*args, **kwargs)
        if self._async:
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

    def kickoff(
        self,
        *args: Any,
        run_id: str | UUID | None = None,
        from_checkpoint: FromCheckpoint = None,
        answers: Mapping[str, Any] | None = None,
        rerun: Iterable[str] = (),
        resume: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Run the flow and return what the function returns.

        `run_id`, `from_checkpoint`, `answers`, `rerun` and `resume` are those of `Crew.kickoff`; all else is for the
        function.
        """
        request = self._request(args, kwargs, run_id, from_checkpoint, answers, rerun, resume)
        return run_sync("kickoff", lambda: self._kickoff(request), lambda: request.how_to_go_on("flow")).value

    async def akickoff(
        self,
        *args: Any,
        run_id: str | UUID | None = None,
        from_checkpoint: FromCheckpoint = None,
        answers: Mapping[str, Any] | None = None,
        rerun: Iterable[str] = (),
        resume: bool = False,
        **kwargs: Any,
    ) -> Any:
        """`kickoff`, to await on a loop of your own."""
        return (await self._kickoff(self._request(args, kwargs, run_id, from_checkpoint, answers, rerun, resume))).value

    def submit(
        self,
        *args: Any,
        run_id: str | UUID | None = None,
        from_checkpoint: FromCheckpoint = None,
        answers: Mapping[str, Any] | None = None,
        rerun: Iterable[str] = (),
        resume: bool = False,
        **kwargs: Any,
    ) -> FlowHandle:
        """Begin a run and go on. Raises what kickoff raises before a run begins."""
        if isinstance(durable.scope().loop, asyncio.AbstractEventLoop):
            raise ConfigError(
                f"{self.name}.submit(...) was called inside a run, and begins another: call {self.name}(...), whose "
                f"steps are then steps of this run"
            )
        if background.on_loop_thread():
            raise OnLoopThread("submit", "await akickoff()")
        request = self._request(args, kwargs, run_id, from_checkpoint, answers, rerun, resume)
        return FlowHandle(self._kickoff(request), request.progress)

    def preview(self, *args: Any, from_checkpoint: FromCheckpoint = None, **kwargs: Any) -> Preview:
        """What `kickoff` would do with these arguments: see `Crew.preview`. Code between the steps runs."""
        request = self._request(args, kwargs, None, from_checkpoint, None, (), False)
        return run_sync("preview", lambda: self._preview(request), lambda: "Nothing was changed.")

    async def apreview(self, *args: Any, from_checkpoint: FromCheckpoint = None, **kwargs: Any) -> Preview:
        """`preview`, to await on a loop of your own."""
        return await self._preview(self._request(args, kwargs, None, from_checkpoint, None, (), False))

    def fork(
        self,
        ref: FromCheckpoint,
        *,
        branch: str | None = None,
        operation_id: str | None = None,
        edits: Mapping[str, Any] | None = None,
        rerun: Iterable[str] = (),
        inputs: Mapping[str, Any] | None = None,
    ) -> FlowFunction[P, R]:
        """Begin a branch and return this flow, bound to it: see `Crew.fork`. `inputs` are arguments by name."""
        verb: Fork[FlowFunction[P, R]] = Fork(self, type(self))
        return verb(ref, branch=branch, operation_id=operation_id, edits=edits, rerun=rerun, inputs=inputs)

    def bound_to(self, config: object) -> FlowFunction[P, R]:
        """A copy whose kickoff goes on from `config` (a CheckpointConfig with `restore_from`); None: from nothing."""
        bound = copy.copy(self)
        bound._bound = config
        return bound

    def as_inputs(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Arguments by name as its runs record them. Raises ConfigError for one that the function does not take."""
        return self._given((), inputs)

    def input_names(self) -> list[str]:
        """The names of its parameters."""
        return list(self._signature.parameters)

    def secret_sources(self) -> tuple[object, ...]:
        """The live objects in whose fields secrets are looked for: of a function none but itself."""
        return (self,)

    def identity(self) -> str:
        """The same for every flow of this name."""
        return identity_of("flow", self.name)

    @classmethod
    def from_checkpoint(cls, config: FromCheckpoint, *, bind: Bind = None) -> Self:
        """No record holds a function. Raises ConfigError."""
        raise ConfigError(
            "A flow is a function, which no record holds: kick off the function itself, from_checkpoint=..."
        )

    def _request(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run_id: str | UUID | None,
        from_checkpoint: FromCheckpoint,
        answers: Mapping[str, Any] | None,
        rerun: Iterable[str],
        resume: bool,
    ) -> Request:
        return Request(self._given(args, kwargs) or None, run_id, from_checkpoint, answers, rerun, resume)

    def _given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return self._signature.bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            close = [hint for name in kwargs if (hint := meant(name, self.input_names()))]
            raise ConfigError(
                f"flow {self.name!r}: {'; '.join((str(error), *close[:1]))}; it takes {self._signature}"
            ) from None

    async def _preview(self, request: Request) -> Preview:
        return await preview(self._root(), request.going_on_from(self._bound))

    async def _kickoff(self, request: Request) -> Returned:
        with request.shown(self.verbose):
            return await kickoff(self._root(), request.going_on_from(self._bound))

    def _root(self) -> Root[Returned]:
        codec.declare_hints(self.func)
        return Root(
            kind="flow",
            name=self.name,
            definition={"kind": "flow", "name": self.name, "takes": self.input_names()},
            identity=self.identity(),
            setting=self.checkpoint,
            inner=(),
            natural=frozenset({"step_completed", "task_completed"}),
            silent=frozenset(),
            holds=self.secret_sources(),
            check=self._check,
            asks=codec.encode,
            step=self._step,
            asks_people=asks_people(self.func),
            exact=True,
            paused=lambda waiting, stamp: events.FlowPausedEvent(**stamp, flow_name=self.name, waiting=waiting),
        )

    def _check(self, inputs: Mapping[str, Any]) -> None:
        if unknown := [name for name in inputs if name not in self._signature.parameters]:
            raise ConfigError(f"flow {self.name!r} is given {', '.join(unknown)}; it takes {self._signature}")
        missing = [
            name
            for name, parameter in self._signature.parameters.items()
            if name not in inputs
            and parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        if missing:
            raise ConfigError(f"flow {self.name!r} is missing {', '.join(missing)}; it takes {self._signature}")

    def _step(self, inputs: dict[str, Any], run: Run | None) -> Step[Returned]:
        bound = inspect.BoundArguments(self._signature, OrderedDict(inputs))

        async def work() -> Returned:
            job = Job(self.name, self.func, self._async, bound.args, bound.kwargs, counts=False)
            return Returned(value=await EXECUTORS["inline"].run(job))

        return Step(
            kind=kinds.FLOW,
            name=self.name,
            work=work,
            question=codec.encode(inputs),
            voice=_Voice(self, inputs),
            encode=lambda result: codec.encode(result.value),
            decode=lambda data: Returned(value=codec.decode(data)),
            with_usage=lambda result, usage: result.model_copy(update={"usage": usage}),
            around=(Limit(f"flow:{self.name}", self._width),) if self._width else (),
            exact=True,
            copied=True,
            drift="again",
            remedies=self._remedies,
            deadline=self._deadline,
            inside=self._policy,
        )


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
    failure_policy: FailurePolicy | None = None,
    max_concurrency: int | None = None,
    verbose: bool = False,
) -> Callable[[Callable[P, R]], FlowFunction[P, R]]: ...
def flow(func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a flow of a function, sync or async."""
    known("flow", FlowFunction, options)
    if func is not None:
        return FlowFunction(func, **options)
    return lambda fn: FlowFunction(fn, **options)


@dataclass(frozen=True, slots=True)
class _Voice:
    source: FlowFunction[Any, Any]
    inputs: dict[str, Any]

    def started(self, stamp: Stamp) -> events.FlowStartedEvent:
        return events.FlowStartedEvent(**stamp, flow_name=self.source.name, inputs=self.inputs)

    def completed(self, stamp: Stamp, value: Returned) -> events.FlowFinishedEvent:
        return events.FlowFinishedEvent(**stamp, flow_name=self.source.name, result=value.value, usage=value.usage)

    def failed(self, stamp: Stamp, error: str, error_type: str) -> events.FlowFailedEvent:
        return events.FlowFailedEvent(**stamp, flow_name=self.source.name, error=error, error_type=error_type)
