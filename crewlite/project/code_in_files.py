"""What the JSON files of a crew name and is defined in code: functions, classes, tools and models.

Each gets a name, under which the entry that has it finds its object.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from crewlite.definitions.definition import Definition
from crewlite.durable import same
from crewlite.errors import ConfigError, meant
from crewlite.llm.model import LLM
from crewlite.project.sections import Make
from crewlite.texts.wording import what_is
from crewlite.tools.base import BaseTool

D = TypeVar("D", bound=Definition)
_LIBRARY = "crewai_tools"
_CUSTOM = "custom:"


def is_reference(value: object) -> bool:
    """Return whether a value of a file is `{"python": "module.name"}`."""
    return isinstance(value, dict) and list(value) == ["python"]


class CodeInFiles:
    """The code that the files of one folder name. Modules are looked for in the folder first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made_of: Mapping[str, tuple[type, Callable[[Any], Make]]] = {
            "llm": (dict, _model),
            "tool": (str, self._tool),
        }

    def name(self, kind: str, value: Any, makers: dict[str, Make]) -> Any:
        """Return the name of the object that a value describes, which is added to the makers; any other value as it is.

        Raises ConfigError for code that cannot be imported.
        """
        described, make_of = self._made_of.get(kind, ((), same))
        if is_reference(value):
            name = str(value["python"])
            makers[name] = partial(same, self._named(name))
        elif isinstance(value, described):
            name = value if isinstance(value, str) else json.dumps(value)
            makers[name] = make_of(value)
        else:
            return value
        return name

    def subclass(self, reference: dict[str, Any], base: type[D]) -> type[D]:
        """Return the class that `{"python": "module.Class"}` names. Raises ConfigError unless it is one of `base`."""
        found = self._named(reference["python"])
        if not (isinstance(found, type) and issubclass(found, base)):
            raise ConfigError(f"{reference['python']} is {what_is(found)}; wanted a subclass of {base.__name__}")
        return found

    def _named(self, path: object) -> Any:
        module, dot, name = path.rpartition(".") if isinstance(path, str) else ("", "", "")
        if not dot:
            raise ConfigError(f"python is {path!r}; wanted 'module.name'")
        return _in_module(self._module(module), name)

    def _tool(self, name: str) -> Make:
        if name.startswith(_CUSTOM):
            return self._own_tool(name.removeprefix(_CUSTOM))
        module, colon, attribute = name.partition(":")
        if colon:
            found: Make = _in_module(self._module(module), attribute)
            return found
        library = self._module(_LIBRARY)
        pascal = "".join(word.capitalize() for word in name.split("_"))
        usual = next((word for word in (name, f"{name}Tool", f"{pascal}Tool") if hasattr(library, word)), name)
        made: Make = _in_module(library, usual)
        return made

    def _own_tool(self, name: str) -> Make:
        path = self._folder / "tools" / f"{name}.py"
        if not name.isidentifier() or not path.is_file():
            raise ConfigError(f"there is no file {path}, which would define the tool {_CUSTOM}{name}")
        module = _executed(f"custom_tools.{name}", path)
        tools = [tool for _, tool in inspect.getmembers(module, _is_tool) if tool.__module__ == module.__name__]
        if not tools:
            raise ConfigError(f"{path} defines no tool; wanted a subclass of BaseTool")
        made: Make = tools[0]
        return made

    def _module(self, name: str) -> ModuleType:
        try:
            with _first_in_path(self._folder):
                return importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(f"{name} cannot be imported: {error}") from error


def _model(settings: dict[str, Any]) -> Make:
    try:
        return partial(same, LLM(**settings))
    except TypeError as error:
        raise ConfigError(f"{error}") from error


def _in_module(module: ModuleType, name: str) -> Any:
    if not hasattr(module, name):
        hint = meant(name, vars(module))
        raise ConfigError(f"{module.__name__} has no {name!r}{f'; {hint}' if hint else ''}")
    return getattr(module, name)


def _is_tool(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseTool)


def _executed(name: str, path: Path) -> ModuleType:
    """Execute a file as a module. Type hints of its classes are looked up in sys.modules, so it is kept there."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _first_in_path(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
