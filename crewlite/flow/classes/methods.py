"""The methods of a flow, and the decorators that make them from functions of a class."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any, Generic, Never, ParamSpec, TypeVar, Unpack

from crewlite.definitions.keywords import known_keywords, shows_options
from crewlite.errors import ConfigError
from crewlite.flow.classes.conditions import Condition, address_name, condition_of
from crewlite.flow.classes.feedback import Feedback
from crewlite.flow.classes.labels import annotated_labels, listed
from crewlite.flow.options import CALL_OPTIONS, CallOptions, Execution, called, function_name
from crewlite.lazy import lazy
from crewlite.state.config import CheckpointConfig
from crewlite.system.forked import cached_property
from crewlite.texts.wording import what_is

reviewing = lazy("crewlite.flow.classes.reviewing")  # imports the engine

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class FlowMethod(Generic[P, R]):
    """A method of a flow. To call it on a flow is a plain call of its function."""

    func: Callable[P, R]
    execution: Execution
    begins: bool = False
    """Whether it has `@start`."""
    condition: Condition | None = None
    """The condition that starts the method."""
    routes: bool = False
    """Whether the method's result is a label, which starts the methods that listen to the label."""
    emit: frozenset[str] | None = None
    """The labels that the method declares; None if it declares none."""
    feedback: Feedback | None = None
    """What a person is asked about the method's result; None to ask nobody."""
    persisted: CheckpointConfig | bool = False
    """The checkpoint setting that `@persist` gives; False without it."""

    def __repr__(self) -> str:
        return f"<method {self.name}>"

    @classmethod
    def of(cls, func: Any, by: str, options: CallOptions) -> FlowMethod[Any, Any]:
        """Build a method from a function, or from a method that another decorator has built.

        `by`: the decorator as the user has written it, such as "@listen".
        """
        if isinstance(func, FlowMethod):
            if options:
                return replace(func, execution=_execution(by, func.name, func.func, options))
            return func
        if isinstance(func, staticmethod | classmethod | property):
            raise ConfigError(f"{what_is(func)} is no method of a flow; wanted a plain method with self: {func!r}")
        return cls(func, _execution(by, function_name(by, func), func, options))

    def __post_init__(self) -> None:
        about = ("__name__", "__qualname__", "__doc__", "__module__")
        vars(self).update({name: getattr(self.func, name) for name in about if hasattr(self.func, name)})
        vars(self)["__wrapped__"] = self.func
        if self.feedback and self.routes and self.emit != frozenset(self.feedback.emit):
            raise ConfigError(
                f"router {self.name!r} has @human_feedback, whose outcome is its label: give the labels there, as "
                f"@human_feedback(emit=[...]), and not to @router"
            )

    @cached_property
    def name(self) -> str:
        """The name of its function."""
        return called(self.func)

    @cached_property
    def step_name(self) -> str:
        """The name in the address of a step that the condition of the method has started."""
        return address_name(self.name, self.condition)

    @cached_property
    def parameters(self) -> Sequence[inspect.Parameter]:
        """The parameters of the method to which the flow passes arguments: all but `self`, `*args` and `**kwargs`."""
        _, *own = inspect.signature(self.func).parameters.values()
        return [one for one in own if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]

    @cached_property
    def takes(self) -> str | None:
        """The name of the parameter that gets the result of the method before; None if there is none."""
        return next((one.name for one in self.parameters if one.kind is not one.KEYWORD_ONLY), None)

    @cached_property
    def declared(self) -> frozenset[str] | None:
        """The labels that `emit` or the return annotation of the method lists; None if neither lists any."""
        return annotated_labels(self.func) if self.emit is None else self.emit

    def call(self, flow: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Call the method's function on `flow`, within the running step and with the options of its decorator."""
        return self.execution.call(MethodType(self.func, flow), args, kwargs)

    def check_parameters(self, flow: str) -> None:
        """Raise ConfigError if the flow could not call the method."""
        if not inspect.signature(self.func).parameters:
            raise ConfigError(f"{flow}.{self.name} takes no self; wanted a method: def {self.name}(self)")
        needed = [one for one in self.parameters if one.default is one.empty]
        keyword = [one for one in needed if one.kind is one.KEYWORD_ONLY]
        if self.condition and (len(needed) > 1 or keyword):
            names = ", ".join(one.name for one in needed)
            raise ConfigError(
                f"{flow}.{self.name} takes {names}, but a method that another one starts is called with one argument, "
                f"the result of that other method. Write def {self.name}(self, {needed[0].name}), and read the rest "
                f"from self.state"
            )

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the method's function, without a step."""
        return self.func(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return MethodType(functools.partial(reviewing.call, self) if self.feedback else self.func, instance)


@dataclass(frozen=True, slots=True)
class Decorator:
    """The decorator that `start`, `listen` or `router` returns."""

    of: str
    condition: Condition | None
    emit: frozenset[str] | None
    options: CallOptions

    @property
    def __name__(self) -> str:
        """The name of the function given to a decorator without parentheses, so that other methods can name it."""
        return self.condition.name if self.condition else self.of

    def __call__(self, func: Callable[P, R]) -> FlowMethod[P, R]:
        """Build the method of a flow from a function."""
        method = FlowMethod.of(func, f"@{self.of}", self.options)
        condition = self.condition
        if condition is not None and method.condition is not None:
            raise ConfigError(f"method {method.name!r} has two conditions; join them with or_(...) or and_(...)")
        return replace(
            method,
            begins=method.begins or self.of == "start",
            condition=condition or method.condition,
            routes=method.routes or self.of == "router",
            emit=method.emit if self.emit is None else self.emit,
        )


def _execution(by: str, name: str, func: Callable[..., Any], options: CallOptions) -> Execution:
    if options.get("runtime") == "isolated":
        raise ConfigError(
            f"{by} {name!r}: runtime is 'isolated', but a method works with its flow, which another process "
            f"does not have. Put that work into a function with @step(runtime='isolated') at the top level of a "
            f"module, and call it from the method"
        )
    return Execution.of(by, name, func, runtimes=("inline",), **options)


@known_keywords("@start")
@shows_options(*CALL_OPTIONS)
def start(condition: Any = None, *more: Never, **options: Unpack[CallOptions]) -> Decorator:
    """Mark a start method, with which the flow begins: `@start()`.

    A start method with a condition starts whenever that comes true. It also starts at the beginning, if every start
    method of the flow has a condition.
    """
    return Decorator("start", _condition("start", condition, more), None, options)


@known_keywords("@listen")
@shows_options(*CALL_OPTIONS)
def listen(condition: Any = None, *more: Never, **options: Unpack[CallOptions]) -> Decorator:
    """Mark a method that starts when others have finished: `@listen(plan)`, `@listen("label")`, `@listen(or_(a, b))`.

    If the method takes an argument, that is the result of the method that has started it.
    """
    found = _condition("listen", condition, more)
    if found is None:
        raise ConfigError("@listen() has no condition; wanted a method, its name or a label of a router: @listen(plan)")
    return Decorator("listen", found, None, options)


@known_keywords("@router")
@shows_options(*CALL_OPTIONS)
def router(
    condition: Any = None, *more: Never, emit: Iterable[Any] | None = None, **options: Unpack[CallOptions]
) -> Decorator:
    """Mark a method that chooses what comes next: it returns a label, and the methods that listen to that label start.

    `emit`: all labels that the method may return, or an `Enum` of them. None takes them from its return annotation or
    its source.
    """
    return Decorator("router", _condition("router", condition, more), _declared(emit), options)


@known_keywords("@human_feedback")
def human_feedback(
    message: str,
    emit: Iterable[Any] | None = None,
    llm: Any = None,
    default_outcome: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Callable[[Any], FlowMethod[Any, Any]]:
    """Ask a person about what a method returns. What follows the method gets a HumanFeedbackResult.

    At a terminal the question is asked at once. Elsewhere the run waits, as with `ask`: its answer is given to
    `kickoff(answers=...)`, `History.answer` or `crewlite checkpoint answer`.

    Args:
        message: What the person is asked, below what the method has returned.
        emit: The outcomes, as labels: the method is then a router, and the outcome starts what listens to it. An answer
            that is one of them, or begins with one and a colon, means that.
        llm: The model, or its name, that is asked which outcome any other answer means, in a recorded step. None: an
            answer that names no outcome is refused.
        default_outcome: The outcome that an empty answer means. Without it an empty answer is refused.
        metadata: Plain data of your own, for the events and the result.

    Raises ConfigError for arguments that cannot work.
    """
    feedback = Feedback.of(message, emit, llm, default_outcome, metadata)

    def decorate(func: Any) -> FlowMethod[Any, Any]:
        method = FlowMethod.of(func, "@human_feedback", {})
        if method.feedback:
            raise ConfigError(f"method {method.name!r} has @human_feedback twice; a method asks one question")
        labels = frozenset(feedback.emit) or method.emit
        return replace(method, feedback=feedback, routes=method.routes or bool(feedback.emit), emit=labels)

    return decorate


def _condition(decorator: str, given: Any, more: Sequence[object]) -> Condition | None:
    if more:
        raise ConfigError(
            f"@{decorator} takes one condition, not {len(more) + 1}. Join them: or_(...) holds once one of them has "
            f"occurred, and_(...) once all have"
        )
    try:
        return None if given is None else condition_of(given)
    except ConfigError as error:
        raise ConfigError(f"@{decorator}(...): {error}") from None


def _declared(emit: Iterable[Any] | None) -> frozenset[str] | None:
    if emit is None:
        return None
    labels = listed([emit] if isinstance(emit, str) else emit)
    if labels is None:
        raise ConfigError(
            f"@router(emit=...) is {emit!r}; wanted a list of labels, which are texts or members of an Enum"
        )
    return frozenset(labels)
