"""Failures on demand: functions and models that fail at given calls, and what a classifier makes of an error."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from crewlite import background
from crewlite.errors import ConfigError
from crewlite.recovery import Classifier, Failure, FailureType, RulesClassifier
from crewlite.recovery.classify import classified

F = TypeVar("F", bound=Callable[..., Any])
L = TypeVar("L")


def assert_classifies_as(
    failed: BaseException | Failure, expected: FailureType, classifier: Classifier | None = None
) -> None:
    """Raise AssertionError unless the classifier gives this type to an error or a Failure. None: `RulesClassifier()`.

    >>> assert_classifies_as(ConnectionResetError(), FailureType.EXTERNAL_FAULT)
    """
    failure = failed if isinstance(failed, Failure) else Failure.of(failed)
    asked = classified(classifier or RulesClassifier(), failure)
    found = background.run(asked)
    why = "; ".join(f"{one.rule} ({one.confidence:g}): {one.text}" for one in found.evidence) or "no evidence"
    assert found.type == expected, (
        f"{failure.error_type} is classified as {found.type}, not as {FailureType(expected)}: {why}"
    )


@overload
def faults(work: F, *script: BaseException | None) -> F: ...
@overload
def faults(work: Sequence[L], *script: BaseException | None) -> list[L | BaseException]: ...
def faults(work: Any, *script: BaseException | None) -> Any:
    """Return a function that fails as the script says: its n-th call raises the n-th error; None lets it work.

    After the script every call works. Given the replies of a ScriptedLLM instead of a function, return them with the
    errors between them.

    >>> look = faults(lambda: "seen", None, TimeoutError("too slow"))
    >>> look()
    'seen'
    >>> faults(["Nine.", "Ten."], None, TimeoutError("too slow"))
    ['Nine.', TimeoutError('too slow'), 'Ten.']
    """
    for one in script:
        if one is not None and not isinstance(one, BaseException):
            raise ConfigError(f"faults: {one!r} is in the script; wanted errors, and None for calls that work")
    if not callable(work):
        left = iter(work)
        return [*(next(left) if one is None else one for one in script), *left]
    numbers = itertools.count()  # its next() is atomic, as calls may come from several threads

    def fail() -> None:
        number = next(numbers)
        if number < len(script) and (error := script[number]) is not None:
            raise error

    @functools.wraps(work)
    def call(*args: Any, **kwargs: Any) -> Any:
        fail()
        return work(*args, **kwargs)

    @functools.wraps(work)
    async def acall(*args: Any, **kwargs: Any) -> Any:
        fail()
        return await work(*args, **kwargs)

    return acall if inspect.iscoroutinefunction(work) else call
