"""Inherited settings: `None` inherits from the enclosing definition, `True` means the defaults, `False` means off.

Any other value is the setting itself. Every inherited setting is resolved by this function, from the innermost
definition outwards, once at kickoff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

T = TypeVar("T")


def resolve(outward: Iterable[T | bool | None], default: Callable[[], T]) -> T | Literal[False] | None:
    """Return the first setting that is not None, `default()` if that is True; None if all are None.

    `outward` are the settings of the definitions, innermost first.
    """
    for own in outward:
        if own is None:
            continue
        if own is True:
            return default()
        return own
    return None
