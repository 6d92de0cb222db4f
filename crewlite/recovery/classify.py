"""The port of classifiers: they say what went wrong, before a policy says what to do."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Protocol

from crewlite import background
from crewlite.errors import CONTROL_FLOW, text_of
from crewlite.recovery.checks import having
from crewlite.recovery.failure import Failure
from crewlite.recovery.types import Evidence, FailureType

log = logging.getLogger("crewlite.recovery")


class Classifier(Protocol):
    """Names the type of a failure. It may be async."""

    def classify(self, failure: Failure) -> FailureType | str | Failure | Awaitable[FailureType | str | Failure]:
        """Return the type or its name in either case, or the failure with its type and the evidence for it."""


def check_classifier(classifier: object, where: str = "FailurePolicy") -> Any:
    """Return the classifier, or None, unchanged. Raises ConfigError, beginning with `where`, if it cannot classify."""
    wanted = "a RulesClassifier(), or an object with classify(failure)"
    return None if classifier is None else having("classify", f"{where}: classifier", classifier, wanted)


async def classified(
    classifier: Classifier | None, failure: Failure, mask: Callable[[str], str] = lambda text: text
) -> Failure:
    """Return the failure with the type and the evidence that a classifier gives it. Without one, it is unchanged.

    A classifier that raises, or returns no type, makes the type UNKNOWN, with the reason as evidence and a warning in
    the log, where `mask` hides secrets: a failure in telling what failed must not hide what failed. Errors with which
    the run itself stops are raised.
    """
    if classifier is None:
        return failure
    name = type(classifier).__qualname__
    try:
        told = await background.guarded(_asked(classifier, failure))
        if found := _told(failure, told, name):
            return found
        reason = f"{name} returned {told!r}, which is no type of failure"
    except CONTROL_FLOW:
        raise
    except Exception as error:  # noqa: BLE001 - the border: a classifier may be code of the user
        reason = f"{name} raised {type(error).__qualname__}: {text_of(error)}"
    wanted = f"wanted one of {', '.join(FailureType)}, or the failure with `type` and `evidence`"
    log.warning("%s; %s. The failure counts as unknown.", mask(reason), wanted)
    return failure.of_type(FailureType.UNKNOWN, Evidence(name, reason))


async def _asked(classifier: Classifier, failure: Failure) -> object:
    told = classifier.classify(failure)
    return await told if inspect.isawaitable(told) else told


def _told(failure: Failure, told: object, name: str) -> Failure | None:
    """Return the failure as a classifier has told it; None if it has told no type."""
    if isinstance(told, Failure) and told.type in list(FailureType):
        return replace(failure, type=FailureType(told.type), evidence=tuple(told.evidence))
    known = told.lower() if isinstance(told, str) else None
    return failure.of_type(FailureType(known), Evidence(name, "")) if known in list(FailureType) else None
