"""The modules whose functions this program has made steps or flows of: there, classes are found by their names.

Nothing is imported: only what such a module has defined already is found.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel

_homes = set[str]()


def is_named_tuple(kind: type) -> bool:
    """Return whether this is a class of named tuples."""
    return issubclass(kind, tuple) and kind.__bases__ == (tuple,) and hasattr(kind, "_fields")


_FITS: dict[str, Callable[[type], bool]] = {
    "enum": lambda kind: issubclass(kind, Enum),
    "model": lambda kind: issubclass(kind, BaseModel),
    "dataclass": dataclasses.is_dataclass,
    "namedtuple": is_named_tuple,
}


def note(func: Any) -> None:
    """Note the module of a function as one in which classes may be found."""
    _homes.add(getattr(func, "__module__", None) or "")


def namesakes(module: str) -> list[str]:
    """Return the names under which this program may have the module of that name: a script, run or imported."""
    if module == "__main__":
        return list(_homes)
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return ["__main__"] if script and Path(script).stem == module.rpartition(".")[2] else []


def find(tag: str, name: str) -> type | None:
    """Return the class of this name, `module:Qualified.Name`, if one of these modules defines it.

    `tag`: what it has to be: an enum, model, dataclass or namedtuple.
    """
    module, _, qualified = name.partition(":")
    found: Any = sys.modules.get(module) if module in _homes else None
    for part in qualified.split("."):
        found = getattr(found, "__dict__", {}).get(part)  # no getattr: a module may import what it is asked for
    right = isinstance(found, type) and (found.__module__, found.__qualname__) == (module, qualified)
    return found if right and _FITS[tag](found) else None
