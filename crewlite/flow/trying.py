"""`@recoverable`: a function whose failures a policy decides on. Its phases are steps, which answer from the record."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from typing import Any, ClassVar, ParamSpec, TypeVar, overload

from crewlite.errors import ConfigError
from crewlite.flow.function import FlowFunction, root
from crewlite.keywords import refuse_unknown
from crewlite.recovery import Classifier, FailurePolicy, Policy
from crewlite.recovery.checks import whole
from crewlite.recovery.classify import check_classifier
from crewlite.runtime.kickoffs.request import Request
from crewlite.runtime.kickoffs.root import Root
from crewlite.state.config import CheckpointConfig

P = ParamSpec("P")
R = TypeVar("R")

TOLD = ("hint", "recovery")
"""The parameters of a recoverable function that are no inputs: they tell an attempt what went wrong in the last one."""


class RecoverableFunction(FlowFunction[P, R]):
    """A function whose calls are durable runs, and whose body is tried again as its policy says."""

    made_by: ClassVar[tuple[str, str]] = ("@recoverable", "policy")

    def __init__(
        self,
        func: Callable[P, R],
        *,
        policy: Policy | None = None,
        classifier: Classifier | None = None,
        checkpoint: CheckpointConfig | bool | None = None,
        max_recovery_attempts: int | None = None,
        name: str | None = None,
        timeout: float | timedelta | None = None,
        max_concurrency: int | None = None,
        verbose: bool = False,
    ) -> None:
        more: dict[str, Any] = {"timeout": timeout, "max_concurrency": max_concurrency, "verbose": verbose}
        super().__init__(func, name=name, checkpoint=checkpoint, failure_policy=policy, **more)
        self.policy = _with(self.policy, classifier, max_recovery_attempts, self.label)
        self.whole_signature = self.signature
        inputs = [one for name, one in self.signature.parameters.items() if name not in TOLD]
        self.signature = self.signature.replace(parameters=inputs)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Kick it off: inside a run, as a step of that run. An async function returns an awaitable."""
        verb: Any = self.akickoff if self.is_async else self.kickoff
        result: R = verb(*args, **kwargs)
        return result

    def as_root(self, request: Request) -> Root[Any]:
        """Build the Root that the engine runs."""
        made: Root[Any] = root.RecoverableRoot(self)
        return made

    def told(self, inputs: dict[str, Any], hint: str, recovery: object) -> inspect.BoundArguments:
        """Return the arguments of one attempt: the inputs, and what it is told if it has parameters for that."""
        given = {**inputs, "hint": hint, "recovery": recovery}
        names = [name for name in self.whole_signature.parameters if name in given]
        return inspect.BoundArguments(self.whole_signature, OrderedDict((name, given[name]) for name in names))


def _with(policy: Policy | None, classifier: Classifier | None, most: int | None, where: str) -> Policy | None:
    """Return the policy with this classifier and this limit, if they are given."""
    if classifier is None and most is None:
        return policy
    check_classifier(classifier, where)
    if most is not None:
        whole(where, 0, max_recovery_attempts=most)
    if policy is None:
        return FailurePolicy(classifier=classifier, max_recovery_attempts=most)
    if not isinstance(policy, FailurePolicy):
        raise ConfigError(
            f"{where}: classifier and max_recovery_attempts are settings of a FailurePolicy, and policy is {policy!r}"
        )
    settings: dict[str, Any] = {one.name: getattr(policy, one.name) for one in fields(policy)}
    settings |= {kind.name: strategy for kind, strategy in settings.pop("strategies")}
    changed = {"classifier": classifier, "max_recovery_attempts": most}
    return FailurePolicy(**settings | {name: value for name, value in changed.items() if value is not None})


@overload
def recoverable(func: Callable[P, R], /) -> RecoverableFunction[P, R]: ...
@overload
def recoverable(
    *,
    policy: Policy | None = None,
    classifier: Classifier | None = None,
    checkpoint: CheckpointConfig | bool | None = None,
    max_recovery_attempts: int | None = None,
    name: str | None = None,
    timeout: float | timedelta | None = None,
    max_concurrency: int | None = None,
    verbose: bool = False,
) -> Callable[[Callable[P, R]], RecoverableFunction[P, R]]: ...
def recoverable(func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function, sync or async, one that is tried again as a policy says.

    Its phases are `@step` calls. Parameters named `hint` and `recovery` are no inputs: each attempt gets in them what
    went wrong before, "" and None in the first one.
    """
    refuse_unknown("@recoverable", [*inspect.signature(RecoverableFunction).parameters][1:], options)
    if func is not None:
        return RecoverableFunction(func, **options)
    return lambda fn: RecoverableFunction(fn, **options)
