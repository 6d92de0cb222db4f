"""Modules and names that are imported at their first use, although files and packages list them as if imported.

A library or a module of crewlite is lazy for one of three reasons: most programs need it late or never, so that
`import crewlite` and the commands stay fast; it is on a higher floor; or it imports the module that uses it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from crewlite.system.forked import imports


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # inspecting the stand-in must not import the module
            raise AttributeError(name)
        found = getattr(imported(self.__name__), name)
        setattr(self, name, found)  # so that the next use is as fast as with any other module
        return found


def imported(name: str) -> ModuleType:
    """Import a module and return it. No fork by another thread comes in between: see `forked.imports`."""
    with imports:
        return importlib.import_module(name)


def lazy(name: str) -> Any:
    """Return a stand-in for the module `name`, which imports that module when one of its attributes is first used."""
    return _Lazy(name)


def load(*modules: ModuleType) -> None:
    """Import the modules behind these stand-ins before anything is paid: an import in the middle of a run may fail."""
    for module in modules:
        imported(module.__name__)


coming_from = lazy("crewlite.coming_from")


def first_use(
    package: str, names: Mapping[str, str], *, complete: bool = True
) -> tuple[list[str], Callable[[str], Any]]:
    """Return (the names, the `__getattr__`) of a package or module that imports each name at its first use.

    `names`: for each module of crewlite, the names that it has, separated by spaces. `complete`: whether these are all
    names of the package: the error for any other name then lists them. For a name of CrewAI, it says what to write
    instead.
    """
    homes = {name: f"crewlite.{module}" for module, own in names.items() for name in own.split()}

    def find(name: str) -> Any:
        if home := homes.get(name):
            value = getattr(imported(home), name)
            setattr(sys.modules[package], name, value)
            return value
        is_package = "__path__" in vars(sys.modules[package])
        if is_package and importlib.util.find_spec(f"{package}.{name}"):  # `from package import name` asks first
            raise AttributeError(f"{package}.{name} is a module: import it first")
        hint = importlib.import_module("crewlite.errors").meant(name, homes) or f"it has {', '.join(sorted(homes))}"
        known = f"; {hint}" if complete else ""
        raise coming_from.missing_import(package, name) or AttributeError(f"{package} has no {name!r}{known}")

    return sorted(homes), find


if TYPE_CHECKING:
    import asyncio
    import difflib
    import sqlite3
    from concurrent import futures
else:
    asyncio, difflib, sqlite3, futures = map(lazy, ("asyncio", "difflib", "sqlite3", "concurrent.futures"))

__all__ = ["asyncio", "difflib", "first_use", "futures", "imported", "lazy", "load", "sqlite3"]
