"""What `@flow` and `@step` take alike, checked when a function is decorated."""

from __future__ import annotations

import inspect
import math
from datetime import timedelta

from crewlite.errors import ConfigError
from crewlite.recovery import FailureKind, FailurePolicy, Rule

_AGAIN: frozenset[FailureKind] = frozenset({"unavailable", "timeout", "empty", "bug"})
"""What a retry may mend: not what crewlite itself refuses."""
_MAY_BE_NONE = ("retries", "max_concurrency")


def again(retries: int, delay: float) -> FailurePolicy | None:
    """Up to `retries` more tries, the first after about `delay` seconds, each later one after twice as many."""
    return FailurePolicy((Rule(_AGAIN, retries, base=delay),)) if retries else None


def integers(kind: str, name: str, **options: tuple[object, int]) -> None:
    """Raises ConfigError for an option, given as (value, least), that is no whole number or is below its least."""
    for option, (value, least) in options.items():
        if value is None and option in _MAY_BE_NONE:
            continue
        if type(value) is not int or value < least:
            raise ConfigError(f"@{kind} {name!r}: {option} is {value!r}; wanted a whole number, {least} or more")


def seconds(kind: str, name: str, **options: object) -> None:
    """Raises ConfigError for an option that is no number of seconds, or is below 0."""
    for option, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise ConfigError(f"@{kind} {name!r}: {option} is {value!r}; wanted seconds, 0 or more")


def returning(kind: str, name: str, func: object) -> None:
    """Raises ConfigError for what is no function, or one that yields: a result is recorded when it is whole."""
    if not callable(func):
        raise ConfigError(f"@{kind} {name!r} is {func!r}; wanted a function")
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise ConfigError(f"@{kind} {name!r} yields, and only a whole result can be recorded: have it return a list")


def time_limit(kind: str, name: str, timeout: float | timedelta | None) -> float | None:
    """A `timeout` in seconds. Raises ConfigError for one that is none, or not more than 0."""
    found = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if found is not None and (isinstance(found, bool) or not isinstance(found, int | float) or not found > 0):
        raise ConfigError(f"@{kind} {name!r}: timeout is {timeout!r}; wanted seconds or a timedelta, more than 0")
    return found


def named(kind: str, name: str) -> str:
    """The name, if an address can hold it. Raises ConfigError."""
    if not isinstance(name, str):
        raise ConfigError(f"@{kind} is named {name!r}; wanted text")
    if not name or any(mark in name for mark in "/#!"):
        raise ConfigError(f"@{kind} is named {name!r}; wanted a name without / # !, which mean something in addresses")
    return name


def called(func: object) -> str:
    """The name of a function, or of the class of a callable without one."""
    return str(getattr(func, "__name__", type(func).__name__))
