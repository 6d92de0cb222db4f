"""Conditions that start a method: another has finished, a router has returned a label, or `or_` and `and_` of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from crewlite.encoding.codec import digest
from crewlite.errors import ConfigError
from crewlite.flow.classes.labels import label_of
from crewlite.state.format.addresses import leaf

_LONGEST = 48  # characters of a condition that an address shows
_DEEPEST = 50  # conditions inside each other
_TOLD_APART = 8  # hexadecimal digits of the digest that replaces the rest


@dataclass(frozen=True, slots=True)
class Condition:
    """A name, or conditions joined by `or_` or `and_`. A name occurs when a method ends or a router returns a label."""

    how: Literal["name", "or", "and"]
    name: str = ""
    parts: tuple[Condition, ...] = ()
    depth: int = field(default=0, compare=False)
    """How deep conditions are nested inside this one."""

    def __str__(self) -> str:
        """Return the condition as text: `a|b`, `a&(b|c)`."""
        if self.how == "name":
            return self.name
        mark = "|" if self.how == "or" else "&"
        return mark.join(str(part) if part.how == "name" else f"({part})" for part in self.parts)

    @property
    def brief(self) -> str:
        """How the condition joins its names: `or`, `and`; a nested one in full, as text; "" for a single name."""
        nested = any(part.how != "name" for part in self.parts)
        return "" if self.how == "name" else str(self) if nested else self.how

    def names(self) -> Iterator[str]:
        """Yield the names in the condition, in their order; a name may occur twice."""
        if self.how == "name":
            yield self.name
        for part in self.parts:
            yield from part.names()

    def holds(self, occurs: Callable[[str], bool]) -> bool:
        """Return whether the condition holds if exactly those names occur for which `occurs` returns True."""
        if self.how == "name":
            return occurs(self.name)
        return (any if self.how == "or" else all)(part.holds(occurs) for part in self.parts)


def or_(*conditions: Any) -> Condition:
    """Return the condition that holds once any of these holds: methods, names of methods, labels, or conditions."""
    return _joined("or", conditions)


def and_(*conditions: Any) -> Condition:
    """Return the condition that holds once all of these hold: methods, names of methods, labels, or conditions."""
    return _joined("and", conditions)


def condition_of(given: Any) -> Condition:
    """Return a method, a name or a condition as a condition. Raises ConfigError for anything else."""
    if isinstance(given, Condition):
        return given
    if isinstance(given, Enum):
        name = label_of(given, "")
    else:
        name = given if isinstance(given, str) else getattr(given, "__name__", None)
    if not isinstance(name, str) or not name or isinstance(given, type):
        raise ConfigError(
            f"{given!r} is no condition; wanted a method of the flow, its name, a label of a router, or several of "
            f"these in or_(...) or and_(...)"
        )
    return Condition("name", name)


def address_name(method: str, condition: Condition | None) -> str:
    """Return the name of a method's step in addresses: `draft@plan` for a `draft` that `plan` starts; else `draft`."""
    if condition is None:
        return method
    text = "".join("_" if mark in "/#!" else mark for mark in str(condition))
    if text != str(condition) or len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}~{digest(str(condition))[:_TOLD_APART]}"
    return f"{method}@{text}"


def method_at(address: str) -> str:
    """Return the name of the method whose step has this address."""
    return leaf(address).partition(":")[2].partition("@")[0].partition("#")[0]


def _joined(how: Literal["or", "and"], given: tuple[Any, ...]) -> Condition:
    if not given:
        raise ConfigError(f"{how}_() has no conditions; wanted methods, names of methods or labels")
    parts = tuple(map(condition_of, given))
    depth = 1 + max(part.depth for part in parts)
    if depth > _DEEPEST:
        raise ConfigError(
            f"{how}_(...) has more than {_DEEPEST} conditions inside each other; wanted a flat list: {how}_(a, b, c)"
        )
    return parts[0] if len(parts) == 1 else Condition(how, parts=parts, depth=depth)
