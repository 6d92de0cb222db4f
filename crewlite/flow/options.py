"""The options of `@flow` and `@step`, checked when a function is decorated."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from datetime import timedelta
from types import BuiltinFunctionType, FunctionType, ModuleType

from crewlite.errors import ConfigError
from crewlite.flow.code import Version
from crewlite.recovery import FailureKind, FailurePolicy, Rule, checks
from crewlite.state.format.addresses import NAME_RULE, can_be_name

_AGAIN: frozenset[FailureKind] = frozenset({"unavailable", "timeout", "empty", "bug"})
"""The failures that `retries=` retries. Errors by which crewlite itself refuses something are not among them."""
_MAY_BE_NONE = ("retries", "max_concurrency")


def again(retries: int, delay: float) -> FailurePolicy | None:
    """Build the policy of up to `retries` more attempts; None without retries.

    The first comes after about `delay` seconds, each later one after twice as many as the one before.
    """
    return FailurePolicy((Rule(_AGAIN, retries, base=delay),)) if retries else None


def integers(kind: str, name: str, **options: tuple[object, int]) -> None:
    """Raise ConfigError for an option, given as (value, least), that is not a whole number of `least` or more."""
    for option, (value, least) in options.items():
        if value is None and option in _MAY_BE_NONE:
            continue
        checks.whole(f"{kind} {name!r}", least, **{option: value})


def seconds(kind: str, name: str, **options: object) -> None:
    """Raise ConfigError for an option that is not a number of seconds, 0 or more."""
    checks.seconds(f"{kind} {name!r}", **options)


def returning(kind: str, name: str, func: object) -> None:
    """Raise ConfigError for an object that is no function, or for a generator: only complete results are recorded."""
    if not callable(func):
        raise ConfigError(f"{kind} {name!r} is {func!r}; wanted a function")
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise ConfigError(
            f"{kind} {name!r} is a generator, but only a complete result can be recorded: have it return a list"
        )


def time_limit(kind: str, name: str, timeout: float | timedelta | None) -> float | None:
    """Return a `timeout` in seconds. Raises ConfigError unless it is a number or a timedelta, more than 0."""
    found = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if found is not None and (isinstance(found, bool) or not isinstance(found, int | float) or not found > 0):
        raise ConfigError(f"{kind} {name!r}: timeout is {timeout!r}; wanted seconds or a timedelta, more than 0")
    return found


def one_of(kind: str, name: str, **options: tuple[object, Collection[str]]) -> None:
    """Raise ConfigError for an option, given as (value, choices), that is none of its choices."""
    for option, (value, choices) in options.items():
        if value not in choices:
            raise ConfigError(f"{kind} {name!r}: {option} is {value!r}; wanted one of {', '.join(choices)}")


def lifetime(name: str, cache: object) -> float | None:
    """Return the seconds that a cached result is valid; None for ever. Raises ConfigError for an unusable `cache`."""
    if isinstance(cache, bool):
        return None
    if not isinstance(cache, timedelta) or cache <= timedelta(0):
        raise ConfigError(f"@step {name!r}: cache is {cache!r}; wanted True, False, or a timedelta of more than 0")
    return cache.total_seconds()


def version_of(name: str, version: object) -> Version:
    """Return the version of a step. Raises ConfigError unless it is text or a whole number."""
    if version is not None and type(version) not in (str, int):
        raise ConfigError(f"@step {name!r}: version is {version!r}; wanted text or a whole number")
    return version  # type: ignore[return-value]


def dependencies(name: str, deps: object) -> tuple[object, ...]:
    """Return the deps of a step. Raises ConfigError unless each is a function, a step, a class or a module."""
    if not isinstance(deps, tuple | list):
        raise ConfigError(f"@step {name!r}: deps is {deps!r}; wanted a tuple of functions, classes or modules")
    for dep in deps:
        known = isinstance(dep, FunctionType | BuiltinFunctionType | type | ModuleType)
        if not known and not hasattr(dep, "__wrapped__"):
            raise ConfigError(f"@step {name!r}: deps holds {dep!r}; wanted functions, classes or modules")
    return tuple(deps)


def named(kind: str, name: str) -> str:
    """Return the name. Raises ConfigError unless it is text that an address can hold."""
    if not isinstance(name, str):
        raise ConfigError(f"{kind} is named {name!r}; wanted text")
    if not can_be_name(name):
        raise ConfigError(f"{kind} is named {name!r}; {NAME_RULE}: choose another with name=")
    return name


def called(func: object) -> str:
    """Return the name of a function, or the class name of a callable without a name."""
    return str(getattr(func, "__name__", type(func).__name__))
