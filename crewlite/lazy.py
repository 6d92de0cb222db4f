"""Modules that load when first used, named at the top of the file like any other import.

Only for modules that cost more than everybody who imports crewlite should pay: jinja2, sqlite-utils, rich; and those
of the standard library below, which no definition needs before it is kicked off.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # inspection must not load what use has not
            raise AttributeError(name)
        found = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, found)  # the next use costs no more than with any other module
        return found


def lazy(name: str) -> Any:
    """A stand-in for module `name`, which is imported at the first use of any of its attributes."""
    return _Lazy(name)


if TYPE_CHECKING:
    import asyncio
    import difflib
    from concurrent import futures
else:
    asyncio, difflib, futures = lazy("asyncio"), lazy("difflib"), lazy("concurrent.futures")

__all__ = ["asyncio", "difflib", "futures", "lazy"]
