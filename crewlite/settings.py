"""Settings that are inherited: `None` asks the next one out, `True` takes the defaults, `False` is off and stops there.

An object is a setting of one's own. One mechanism for every inherited setting, resolved outward, once, at kickoff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

T = TypeVar("T")


def resolve(outward: Iterable[T | bool | None], default: Callable[[], T]) -> T | Literal[False] | None:
    """The first setting, from the inside out, that says something.

    Returns the object, the default for `True`, `False` for off, or `None` when nobody said anything.
    """
    for own in outward:
        if own is None:
            continue
        if own is True:
            return default()
        return own
    return None
