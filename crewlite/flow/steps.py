"""`@step`: a function whose result is recorded, so that no resume of the run calls it again."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Generic, ParamSpec, Protocol, Unpack, get_args, get_type_hints, overload

from pydantic import ValidationError
from typing_extensions import TypeVar  # with a default, which Python has from 3.13 on

from crewlite import durable, kinds
from crewlite.definitions.keywords import known_keywords, options_of, shows_options
from crewlite.durable import Scope, Step
from crewlite.encoding import codec, homes
from crewlite.encoding.codec import Json
from crewlite.encoding.comparable import copied_apart
from crewlite.encoding.instances import copied
from crewlite.errors import ConfigError, OnLoopThread
from crewlite.events.family import FamilyEvents
from crewlite.flow.options import (
    CALL_OPTIONS,
    CallOptions,
    Decorated,
    Execution,
    decorated,
    function_name,
    misfit,
    question_of,
    signature_of,
    warn_of_refused,
)
from crewlite.flow.reuse import CacheKeys, Inside, code_of, dependencies, lifetime, version_of
from crewlite.recovery import checks
from crewlite.runtime.people.question import Question
from crewlite.runtime.steps.future import StepFuture, StepFutures, requested, runs_here, settled
from crewlite.state.reading.fitting import Typed, converted
from crewlite.step_parts import Effect, Limit, Policies

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V", default=Any)


class StepFunction(Decorated, Generic[P, R, V]):
    """A function as a durable step, made by `@step`. Outside a run, a call of it simply calls the function.

    The function takes `P` and returns an `R`. The recorded result is a `V`: the `R`, awaited if the function is async.
    """

    made_by = ("@step", "failure_policy")
    _fixed = frozenset({*CallOptions.__annotations__, "effect", "max_concurrency", "cache", "version", "deps"})
    _decode: Callable[[Json], Any] | None = None
    """Decodes a result to the classes in the type hints. None until the first call."""

    def __init__(
        self,
        func: Callable[P, R],
        *,
        name: str | None = None,
        type: str | None = None,  # noqa: A002 - the field's word for it
        effect: Effect = "idempotent",
        max_concurrency: int | None = None,
        cache: bool | timedelta = False,
        version: str | int | None = None,
        deps: Sequence[object] = (),
        **how: Unpack[CallOptions],
    ) -> None:
        self.name = function_name("@step", func, name)
        label = self.label
        functools.update_wrapper(self, func)
        self.func = func
        self._how = Execution.of("@step", self.name, func, **how)
        checks.whole_or_none(label, 1, max_concurrency=max_concurrency)
        if not isinstance(type, str | None):
            raise ConfigError(f"{label}: type is {type!r}; wanted text")
        if effect not in get_args(Effect):
            raise ConfigError(f"{label}: effect is {effect!r}; wanted one of {', '.join(get_args(Effect))}")
        self.type = type
        self._events = FamilyEvents.plain(self, kinds.STEP, self.name, type)
        homes.note(func)
        self._signature = signature_of(label, func)
        parameters = self._signature.parameters
        plain = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values())
        self._plain = tuple(parameters) if plain else None
        self._effect = effect
        self._limits = (Limit(f"step:{self.name}", max_concurrency),) if max_concurrency else ()
        self._version = version_of(label, version)
        self._deps = dependencies(label, deps)
        self._provenance = {} if version is None else {"version": str(version)}
        age = lifetime(label, cache)
        if cache and effect == "once":
            raise ConfigError(
                f"{label} has effect='once', so that each call is made, and cache={cache!r}, which answers calls with "
                f"results of other runs: leave one of them out"
            )
        self._reuse = CacheKeys(self.name, func, age, self.step_code) if cache else None

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, or return its result from the record of the run."""
        scope = durable.scope()
        if scope.loop is None:
            return self.func(*args, **kwargs)
        step = self._made(args, kwargs, caller_waits=not self._how.is_async)
        if self._how.is_async:
            return requested(scope, step, f"{self.name}(...)")  # type: ignore[no-any-return]  # R is awaitable
        if runs_here(scope.loop):
            raise OnLoopThread(self.name, f"await {self.name}.submit(...)")
        return StepFuture[R](scope, step).result()

    def submit(self, /, *args: P.args, **kwargs: P.kwargs) -> StepFuture[V]:
        """Begin the step and return a future of its result at once. Raises ConfigError outside a flow."""
        return StepFuture(self._scope("submit"), self._made(args, kwargs))

    def map(self, *iterables: Iterable[Any]) -> StepFutures[V]:
        """Begin one step for each item and return the futures. Each iterable gives one argument, as with `map`."""
        return self._for_each("map", iterables, functools.partial(zip, strict=True))

    def product(self, *iterables: Iterable[Any]) -> StepFutures[V]:
        """Begin one step for each combination of the items, ordered as by `itertools.product`; return the futures."""
        return self._for_each("product", iterables, itertools.product)

    def step_code(self, inside: Inside = frozenset()) -> Any:
        """Return all that the step's results depend on besides arguments, for steps whose code uses this step."""
        return code_of(self.name, self.func, self._version, self._deps, inside)

    def __get__(self, instance: None, owner: type | None = None) -> Any:  # so type checkers refuse a step as a method
        raise ConfigError(f"{self.label} is a method; wanted a function: pass the object as an argument")

    def __repr__(self) -> str:
        return f"<step {self.name}>"

    def _scope(self, verb: str) -> Scope:
        scope = durable.scope()
        if scope.loop is None:
            raise ConfigError(
                f"{self.name}.{verb}(...) was called outside a run, so nothing would record it. Call it inside a "
                f"kickoff of a @flow; or call {self.name}(...), which needs no run"
            )
        return scope

    def _for_each(
        self, verb: str, given: tuple[Any, ...], combined: Callable[..., Iterable[tuple[Any, ...]]]
    ) -> StepFutures[V]:
        scope, odd = self._scope(verb), [value for value in given if not isinstance(value, Iterable)]
        if odd or not given:
            raise ConfigError(
                f"{self.name}.{verb}({repr(odd[0]) if odd else ''}): wanted an iterable of values for each argument "
                f"of the step"
            )
        try:
            together = list(combined(*given))
        except ValueError as error:
            if not str(error).startswith("zip()"):
                raise
            raise ConfigError(f"{self.name}.map(...): {str(error)[6:]}; wanted iterables of the same length") from None
        return StepFutures([StepFuture(scope, self._made(items, {})) for items in together])

    def _made(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, caller_waits: bool = False) -> Step[Any]:
        if self._decode is None:  # only now, as type hints may name classes defined after the step
            self._decode = functools.partial(codec.decode, classes=codec.declare_hints(self.func))
        given = self._given(args, kwargs)
        changeable = [name for name, value in given.items() if type(value) not in codec.IMMUTABLE]
        for name in changeable:
            settled(given[name], f"argument {name} of {self.name}")
        question, refused = question_of(given)
        if refused:
            warn_of_refused(self, f"@step {self.name}", refused, ", and no result is cached" if self._reuse else "")
        if (
            changeable
        ):  # the step must work on the arguments as its question records them, even if the caller changes them
            apart = copied_apart if refused else copied
            args, kwargs = tuple(map(apart, args)), {name: apart(value) for name, value in kwargs.items()}
        return Step(
            kind=kinds.STEP,
            name=self.name,
            work=lambda: self._how.call(self.func, args, kwargs),
            question=question,
            events=self._events,
            given=given if refused else None,
            encode=codec.encode_to_keep,
            decode=self._decode,
            answer=functools.partial(_given_result, self.func),
            provenance=self._provenance,
            cache=None if refused or not self._reuse else self._reuse.at(question),
            effect=self._effect,
            timeout=self._how.timeout,
            policies=Policies(self._how.remedies, inherits=True, inside=self._how.policy),
            compensate=self._how.compensate,
            strict_replay=True,
            round_trip=True,
            label=self.type,
            limits=self._limits,
            caller_waits=caller_waits,
        )

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self._plain is not None and not kwargs and len(args) == len(self._plain):  # for speed
            return dict(zip(self._plain, args, strict=True))
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise misfit(f"step {self.name!r}", self._signature, kwargs, error) from None


def _given_result(func: Callable[..., Any], value: Any) -> Any:
    """Return the result that a person gives for a call of `func`, converted to the return type of the function.

    A value of that type stays as it is; so does any value if the function declares no return type that can be checked.
    Raises AnswerRefused for a value that does not fit.
    """
    plain = str(value) if isinstance(value, Typed) else value
    hints = dict[str, Any]()
    with contextlib.suppress(NameError, TypeError):  # a name in the hints cannot be found, or there are no hints
        hints = get_type_hints(func, include_extras=True)
    try:
        wanted = Question("result", hints.get("return", Any))
    except ConfigError:
        return plain
    try:
        made = wanted.adapter.validate_python(plain, strict=True)
    except ValidationError:
        made = wanted.read(converted(value, wanted.json_schema), "")
    return plain if isinstance(made, Iterator) else made  # an Iterable would be validated only when it is read


class _Decorator(Protocol):
    @overload
    def __call__(self, func: Callable[P, Coroutine[Any, Any, V]], /) -> StepFunction[P, Coroutine[Any, Any, V], V]: ...
    @overload
    def __call__(self, func: Callable[P, V], /) -> StepFunction[P, V, V]: ...


@overload
def step(func: Callable[P, Coroutine[Any, Any, V]], /) -> StepFunction[P, Coroutine[Any, Any, V], V]: ...
@overload
def step(func: Callable[P, V], /) -> StepFunction[P, V, V]: ...
@overload
def step(
    *,
    name: str | None = None,
    type: str | None = None,
    effect: Effect = "idempotent",
    max_concurrency: int | None = None,
    cache: bool | timedelta = False,
    version: str | int | None = None,
    deps: Sequence[object] = (),
    **how: Unpack[CallOptions],
) -> _Decorator: ...
@known_keywords("@step")
@shows_options(*options_of(StepFunction.__init__), *CALL_OPTIONS)
def step(func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a step from a function, sync or async."""
    return decorated(StepFunction, func, options)
