"""Classes by their names in a record: those that the program has declared, and those in its own modules.

The program's own modules are those whose functions are steps or flows, and modules of the same package, or of the same
folder of `sys.path` unless that is Python's or packages are installed there. Only what a loaded module has defined
already is found; nothing is imported, except the classes of results of crewlite's own verbs. A script is the module
`__main__` when it is run, and another one when it is imported, so its classes have two names.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from crewlite.lazy import imported

MAIN = "__main__"
registered: dict[str, type] = {}
"""The classes that the program has declared, by their names in a record."""
_homes = set[str]()
"""The modules whose functions the program has made steps or flows of."""
_INSTALLED = ("site-packages", "dist-packages")
_OF_PYTHON = Path(dataclasses.__file__).absolute().parent
_OF_CREWLITE = frozenset(
    {
        "crewlite.agent.output:LiteAgentOutput",
        "crewlite.crew.learned:CrewTrainingResult",
        "crewlite.crew.learned:Lesson",
        "crewlite.crew.learned:TrainedAgent",
        "crewlite.crew.output:CrewOutput",
        "crewlite.crew.scores:CrewTestResult",
        "crewlite.crew.scores:TaskScore",
        "crewlite.flow.classes.feedback:HumanFeedbackResult",
        "crewlite.task.output:TaskOutput",
        "crewlite.usage:Usage",
    }
)
"""The results that programs record, which a program that only reads records has not imported."""


def class_name(cls: type) -> str:
    """Return the name of a class in a record: `module:Qualified.Name`."""
    module = MAIN if cls.__module__ == "__mp_main__" else cls.__module__  # the script, in a process it started
    return f"{module}:{cls.__qualname__}"


def is_named_tuple(kind: type) -> bool:
    """Return whether this is a class of named tuples."""
    return issubclass(kind, tuple) and kind.__bases__ == (tuple,) and hasattr(kind, "_fields")


_FITS: dict[str, Callable[[type], bool]] = {
    "enum": lambda kind: issubclass(kind, Enum),
    "model": lambda kind: issubclass(kind, BaseModel),
    "dataclass": dataclasses.is_dataclass,
    "namedtuple": is_named_tuple,
}


def fits(tag: str, kind: type) -> bool:
    """Return whether a class is of the kind that a tag of a record names: an enum, model, dataclass or namedtuple."""
    return _FITS[tag](kind)


def note(func: Any) -> None:
    """Note the module of a function as one in which classes may be found."""
    _homes.add(getattr(func, "__module__", None) or "")


def namesakes(module: str) -> list[str]:
    """Return the names under which this program may have the module of that name: a script, run or imported."""
    if module == MAIN:
        return list(_homes)
    script = getattr(sys.modules.get(MAIN), "__file__", None)
    return [MAIN] if script and Path(script).stem == module.rpartition(".")[2] else []


def find(tag: str, name: str) -> type | None:
    """Return the class of this name, `module:Qualified.Name`, if a module of the program defines it.

    `tag`: what it has to be: an enum, model, dataclass or namedtuple.
    """
    module, _, qualified = name.partition(":")
    if name in _OF_CREWLITE:
        imported(module)
    found: Any = sys.modules.get(module)
    if not (found and (name in _OF_CREWLITE or _is_own(module, len(_homes)))):
        return None
    for part in qualified.split("."):
        found = getattr(found, "__dict__", {}).get(part)  # no getattr: a module may import what it is asked for
    right = isinstance(found, type) and (found.__module__, found.__qualname__) == (module, qualified)
    return found if right and fits(tag, found) else None


@lru_cache(maxsize=1024)  # a record may hold thousands of objects of a class
def _is_own(module: str, homes: int) -> bool:
    """Return whether a loaded module belongs to the program. `homes`: the number of known homes, for the cache."""
    if module in _homes:
        return True
    package, folder = _origin(module)
    origins = [_origin(home) for home in list(_homes)]  # another thread may note one
    beside = folder is not None and folder.name not in _INSTALLED and folder != _OF_PYTHON
    return any(package == own or (beside and folder == origin) for own, origin in origins)


def _origin(module: str) -> tuple[str, Path | None]:
    """Return the outermost package of a loaded module, and the folder where that was found; None if it has no file."""
    loaded = sys.modules.get(module)
    if module == MAIN and (spec := getattr(loaded, "__spec__", None)):  # run by `python -m`
        module = spec.name
    package = module.partition(".")[0]
    outermost = loaded if package == module else sys.modules.get(package)
    places = [*getattr(outermost, "__path__", ()), getattr(outermost, "__file__", None)]
    return package, Path(places[0]).absolute().parent if places[0] else None


def class_of(tag: str, name: str) -> type | None:
    """Return the class that recorded objects of this name are rebuilt as; None if the program does not have it."""
    return declared(name, {}) or find(tag, name)


def declared(name: str, known: Mapping[str, type]) -> type | None:
    """Return the class that the program has declared under this name, or, if none is, under the name of a script.

    A file has two names for its classes if it was run as `__main__`, here or where they were recorded. `known`: classes
    that are declared beside the registered ones.
    """
    if name in registered:
        return registered[name]
    module, _, qualified = name.partition(":")
    if module != MAIN:
        return known.get(f"{MAIN}:{qualified}") or registered.get(f"{MAIN}:{qualified}")
    found = {cls for cls in (*registered.values(), *known.values()) if cls.__qualname__ == qualified}
    return found.pop() if len(found) == 1 else None


def renamed(data: Any) -> Iterator[Any]:
    """Yield the data with the class names of a program that imports the script run here, or runs a module imported."""
    modules = {name.partition(":")[0] for name in _classes(data)}
    for module in modules - {MAIN}:
        yield _with_module(data, module, MAIN)
    if MAIN in modules and (file := getattr(sys.modules[MAIN], "__file__", None)):
        yield _with_module(data, MAIN, Path(file).stem)


def _classes(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        if "$" in data and "c" in data:
            yield data["c"]
        data = list(data.values())
    if isinstance(data, list):
        for item in data:
            yield from _classes(item)


def _with_module(data: Any, old: str, new: str) -> Any:
    if isinstance(data, list):
        return [_with_module(item, old, new) for item in data]
    if not isinstance(data, dict):
        return data
    found = {key: _with_module(item, old, new) for key, item in data.items()}
    if "$" in data and "c" in data and data["c"].partition(":")[0] == old:
        found["c"] = f"{new}:{data['c'].partition(':')[2]}"
    return found
