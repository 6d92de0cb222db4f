"""How the work of a crew is organised."""

from __future__ import annotations

from enum import EnumType, StrEnum
from typing import Any


class _Known(EnumType):
    """An enum whose error for an unknown value lists the known ones."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_") or name in cls._member_map_:
            return super().__getattribute__(name)
        known = ", ".join(f"{cls.__name__}.{member}" for member in cls._member_map_)
        raise AttributeError(f"{cls.__name__} has no {name!r}; this release knows {known} only")


class Process(StrEnum, metaclass=_Known):
    """How the work of a crew is organised."""

    sequential = "sequential"
    """Each task is done by its agent."""
    hierarchical = "hierarchical"
    """A manager does each task, and has the agents work for it."""
