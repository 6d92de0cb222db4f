"""Modules that load when first used, named at the top of the file like any other import.

Only for libraries that cost more than a run of crewlite may ask of everybody who imports it: jinja2, sqlite-utils,
rich. `import crewlite` is light because of this file.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # inspection must not load what use has not
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


def lazy(name: str) -> Any:
    """A stand-in for module `name`, which is imported at the first use of any of its attributes."""
    return _Lazy(name)
