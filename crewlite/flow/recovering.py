"""`@recoverable`: a function whose failures a policy decides on. Its phases are steps, which answer from the record.

Each attempt is told of the failure of the attempt before it, and may tell the next one what it has done.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import fields
from typing import Any, ClassVar, ParamSpec, Protocol, Unpack, overload

from typing_extensions import TypeVar  # with a default, which Python has from 3.13 on

from crewlite import durable
from crewlite.definitions.keywords import known_keywords, options_of, shows_options
from crewlite.encoding import codec
from crewlite.errors import ConfigError
from crewlite.flow.function import FlowFunction, FlowOptions
from crewlite.flow.options import decorated
from crewlite.recovery import Classifier, FailurePolicy, Policy
from crewlite.recovery.checks import whole
from crewlite.recovery.classify import check_classifier
from crewlite.recovery.types import RecoveryContext
from crewlite.state.runtime import RuntimeState

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V", default=Any)

TOLD = ("hint", "recovery")
"""The parameters of a recoverable function that are no inputs: they tell what went wrong in the attempt before."""


class RecoverableFunction(FlowFunction[P, R, V]):
    """A function whose calls are durable runs, and whose body is tried again as its policy says."""

    made_by = ("@recoverable", "policy")
    _fixed = FlowFunction._fixed | {"classifier", "max_recovery_attempts"}
    may_report: ClassVar[bool] = True

    def __init__(
        self,
        func: Callable[P, R],
        *,
        policy: Policy | None = None,
        classifier: Classifier | None = None,
        max_recovery_attempts: int | None = None,
        **options: Unpack[FlowOptions],
    ) -> None:
        super().__init__(func, failure_policy=policy, **options)
        self.policy = _with(self.policy, classifier, max_recovery_attempts, self.label)
        self.whole_signature = self.signature
        inputs = [one for name, one in self.signature.parameters.items() if name not in TOLD]
        self.signature = self.signature.replace(parameters=inputs)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Kick the function off; inside a run, as a step of that run. An async function returns an awaitable."""
        verb: Any = self.akickoff if self.is_async else self.kickoff
        result: R = verb(*args, **kwargs)
        return result

    def arguments(self, inputs: dict[str, Any]) -> inspect.BoundArguments:
        """Return the arguments of one attempt: the inputs, and the values of the parameters in `TOLD` that it has."""
        context = durable.scope().recovery()
        given = {**inputs, "hint": context.hint if context else "", "recovery": context}
        names = [name for name in self.whole_signature.parameters if name in given]
        return inspect.BoundArguments(self.whole_signature, OrderedDict((name, given[name]) for name in names))


def _with(policy: Policy | None, classifier: Classifier | None, most: int | None, where: str) -> Policy | None:
    """Return the policy with this classifier and this limit, where they are given."""
    if classifier is None and most is None:
        return policy
    check_classifier(classifier, where)
    if most is not None:
        whole(where, 0, max_recovery_attempts=most)
    if policy is None:
        return FailurePolicy(classifier=classifier, max_recovery_attempts=most)
    if not isinstance(policy, FailurePolicy):
        raise ConfigError(
            f"{where}: classifier and max_recovery_attempts are settings of a FailurePolicy, and policy is {policy!r}. "
            f"Leave them out, or pass policy=FailurePolicy(...)"
        )
    settings: dict[str, Any] = {one.name: getattr(policy, one.name) for one in fields(policy)}
    settings |= {kind.name: strategy for kind, strategy in settings.pop("strategies")}
    changed = {"classifier": classifier, "max_recovery_attempts": most}
    return FailurePolicy(**settings | {name: value for name, value in changed.items() if value is not None})


class _Decorator(Protocol):
    @overload
    def __call__(
        self, func: Callable[P, Coroutine[Any, Any, V]], /
    ) -> RecoverableFunction[P, Coroutine[Any, Any, V], V]: ...
    @overload
    def __call__(self, func: Callable[P, V], /) -> RecoverableFunction[P, V, V]: ...


@overload
def recoverable(func: Callable[P, Coroutine[Any, Any, V]], /) -> RecoverableFunction[P, Coroutine[Any, Any, V], V]: ...
@overload
def recoverable(func: Callable[P, V], /) -> RecoverableFunction[P, V, V]: ...
@overload
def recoverable(
    *,
    policy: Policy | None = None,
    classifier: Classifier | None = None,
    max_recovery_attempts: int | None = None,
    **options: Unpack[FlowOptions],
) -> _Decorator: ...
@known_keywords("@recoverable")
@shows_options(
    *options_of(RecoverableFunction.__init__), *options_of(FlowFunction.__init__, FlowOptions.__annotations__)
)
def recoverable(func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Have a policy decide how a function, sync or async, is tried again after a failure.

    Its phases are `@step` calls. Parameters named `hint` and `recovery` are no inputs: they tell an attempt what went
    wrong before; in the first one they are "" and None.
    """
    return decorated(RecoverableFunction, func, options)


def recovery() -> RecoveryContext | None:
    """Return what the running attempt is told about the failure before it; None in a first attempt.

    In a step that has not failed itself, it is what the enclosing attempt is told.
    """
    return durable.scope().recovery(around=True)


def recovery_hint() -> str:
    """Return the hint for the running attempt; "" if there is none."""
    context = recovery()
    return context.hint if context else ""


def record_step(
    action: str = "",
    *,
    tool: str = "",
    input: Any = None,  # noqa: A002 - the name that RecordedStep has
    output: Any = None,
    error: str = "",
    said: str = "",
) -> None:
    """Record a piece of the work as evidence, in the body of a recoverable function.

    A classifier sees it if this attempt fails, and the next attempt gets it back in `recovery().trajectory`.

    Args: action: What was done. It has to be given. tool: The tool that did it. input: What the tool was given. output:
    What the tool returned. error: What went wrong. said: What a model said about it.

    Raises: ConfigError: `action` is missing, or one of the texts is no text. NotCodable: `input` or `output` cannot be
    recorded.
    """
    sayings = _here("record_step")
    given = {"action": action, "tool": tool, "input": input, "output": output, "error": error, "said": said}
    texts = ("action", "tool", "error", "said")
    for name in texts:
        if not isinstance(given[name], str):
            raise ConfigError(f"record_step: {name} is {given[name]!r}; wanted a text")
    if not action:
        raise ConfigError(
            "record_step: action is missing; wanted a text that says what was done, such as record_step('fetch')"
        )
    found = {name: value for name, value in given.items() if (value if name in texts else value is not None)}
    sayings.say({"steps": [_encoded("record_step", found)]})


def update_state(**values: Any) -> None:
    """Set values of the state of the run, in the body of a recoverable function.

    They become part of the state when the function succeeds. If this attempt fails, the next one gets them back as
    `recovery().state`. Raises NotCodable for a value that cannot be recorded.
    """
    sayings, encoded = _here("update_state"), _encoded("update_state", values)
    RuntimeState.current().update(values)
    sayings.say({"state": encoded})


def _here(verb: str) -> Any:
    if (sayings := durable.scope().sayings) is None:
        raise ConfigError(f"{verb}(...) was called outside a recoverable function: decorate its caller @recoverable()")
    return sayings


def _encoded(verb: str, values: dict[str, Any]) -> dict[str, Any]:
    """Encode each value by itself, as each is decoded by itself."""
    return {name: codec.encode_to_keep(value, f"{verb}: {name}") for name, value in values.items()}
