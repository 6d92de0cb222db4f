"""The port of classifiers: they say what went wrong, before a policy says what to do."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, Protocol

from crewlite.errors import CONTROL_FLOW, ConfigError, text_of
from crewlite.recovery.failure import Failure
from crewlite.recovery.types import Evidence, FailureType


class Classifier(Protocol):
    """Names the type of a failure. It may be async."""

    def classify(self, failure: Failure) -> FailureType | Failure | Awaitable[FailureType | Failure]:
        """Return the type, or the failure with its type and the evidence for it."""


def check_classifier(classifier: object, where: str = "FailurePolicy") -> Any:
    """Return the classifier, or None, unchanged. Raises ConfigError, beginning with `where`, if it cannot classify."""
    if classifier is None or (not isinstance(classifier, type) and callable(getattr(classifier, "classify", None))):
        return classifier
    raise ConfigError(
        f"{where}: classifier is {classifier!r}; wanted a RulesClassifier(), or an object with classify(failure)"
    )


async def classified(classifier: Classifier | None, failure: Failure) -> Failure:
    """Return the failure with the type and the evidence that a classifier gives it. Without one, it is unchanged.

    A classifier that raises, or returns no type, makes the type UNKNOWN, with the reason as evidence: a failure in
    telling what failed must not hide what failed. Errors with which the run itself stops are raised.
    """
    if classifier is None:
        return failure
    name = type(classifier).__qualname__
    try:
        told = classifier.classify(failure)
        if inspect.isawaitable(told):
            told = await told
    except CONTROL_FLOW:
        raise
    except Exception as error:  # noqa: BLE001 - the border: a classifier may be code of the user
        return _as(failure, FailureType.UNKNOWN, name, f"{name} raised {type(error).__qualname__}: {text_of(error)}")
    if isinstance(told, Failure):
        return replace(failure, type=told.type, evidence=tuple(told.evidence))
    if isinstance(told, str) and told in list(FailureType):
        return _as(failure, FailureType(told), name, "")
    return _as(failure, FailureType.UNKNOWN, name, f"{name} returned {told!r}, which is no type of failure")


def _as(failure: Failure, known: FailureType, rule: str, text: str) -> Failure:
    return replace(failure, type=known, evidence=(Evidence(rule, text),))
