"""What `@flow` and `@step` take alike, checked when a function is decorated."""

from __future__ import annotations

from datetime import timedelta

from crewlite.errors import ConfigError
from crewlite.recovery import FailureKind, FailurePolicy, Rule

_AGAIN: frozenset[FailureKind] = frozenset({"unavailable", "timeout", "empty", "bug"})
"""What a retry may mend: not what crewlite itself refuses."""


def again(retries: int, delay: float) -> FailurePolicy | None:
    """Up to `retries` more tries, the first after about `delay` seconds, each later one after twice as many."""
    return FailurePolicy((Rule(_AGAIN, retries, base=delay),)) if retries else None


def at_least(kind: str, name: str, **options: tuple[float | None, int]) -> None:
    """Raises ConfigError for an option, given as (value, least), that is below its least."""
    for option, (value, least) in options.items():
        if value is not None and value < least:
            raise ConfigError(f"@{kind} {name!r}: {option} is {value}; wanted {least} or more")


def seconds(kind: str, name: str, timeout: float | timedelta | None) -> float | None:
    """A time limit in seconds. Raises ConfigError for one that is none, or not more than 0."""
    found = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if found is not None and (isinstance(found, bool) or not isinstance(found, int | float) or not found > 0):
        raise ConfigError(f"@{kind} {name!r}: timeout is {timeout!r}; wanted seconds or a timedelta, more than 0")
    return found


def named(kind: str, name: str) -> str:
    """The name, if an address can hold it. Raises ConfigError."""
    if not name or any(mark in name for mark in "/#!"):
        raise ConfigError(f"@{kind} is named {name!r}; wanted a name without / # !, which mean something in addresses")
    return name


def called(func: object) -> str:
    """The name of a function, or of the class of a callable without one."""
    return str(getattr(func, "__name__", type(func).__name__))
