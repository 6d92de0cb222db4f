"""Event classes by family. A family also finds events that CrewAI has in it, and says what stands for other names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from crewlite.events.registry import find
from crewlite.lazy import first_use


class _Families(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        """Give a family, when it is imported, a way to find what it does not hold itself."""
        if isinstance(value, ModuleType):
            vars(value)["__getattr__"] = _elsewhere(value.__name__)
        super().__setattr__(name, value)


def _elsewhere(family: str) -> Callable[[str], Any]:
    other = first_use(family, {}, complete=False)[1]
    return lambda name: find(name) or other(name)


sys.modules[__name__].__class__ = _Families
