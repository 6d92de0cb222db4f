"""The names of classes in encoded values, `module:Qualified.Name`, of a script that is run or imported.

It is the module `__main__` when it is run, and another one when it is imported, so its classes have two names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAIN = "__main__"


def renamed(data: Any) -> Iterator[Any]:
    """Yield the data with the class names of a program that imports the script run here, or runs a file imported."""
    modules = {name.partition(":")[0] for name in _classes(data)}
    for module in modules - {MAIN}:
        yield _with_module(data, module, MAIN)
    if MAIN in modules and (file := getattr(sys.modules[MAIN], "__file__", None)):
        yield _with_module(data, MAIN, Path(file).stem)


def _classes(data: Any) -> Iterator[str]:
    """Yield the names of the classes in encoded data."""
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
