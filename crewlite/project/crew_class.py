"""`@CrewBase`: a class whose methods build the agents, tasks and crew, with the texts in YAML files next to it."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from crewlite.errors import ConfigError
from crewlite.project.methods import methods_of, shapes_of
from crewlite.project.sections import AGENTS, TASKS, Make, Sections, Shape, check
from crewlite.project.yaml_file import YamlFile, read
from crewlite.wording import an

C = TypeVar("C", bound=type)
_GIVEN_AS_THEY_ARE = ("callback",)  # kinds of methods that a file passes on instead of calling them
_FILES: Mapping[str, tuple[Shape, str]] = {
    "agents_config": (AGENTS, "config/agents.yaml"),
    "tasks_config": (TASKS, "config/tasks.yaml"),
}


def CrewBase(cls: C) -> C:  # noqa: N802 - its name
    """Give the instances of a class `self.agents_config`, `self.tasks_config`, `self.agents` and `self.tasks`.

    The first two are the entries of the files that class attributes with these names set, relative to the file of the
    class; `config/agents.yaml` and `config/tasks.yaml` by default. `self.agents` and `self.tasks` are lists of what the
    `@agent` and `@task` methods return, in the order of the class.

    The files are read at the first access. That raises ConfigError if a file has unknown or repeated keys, values of a
    wrong type, or names that stand for nothing. It lists all of these mistakes with their lines.
    """
    if not isinstance(cls, type):
        raise ConfigError(f"@CrewBase is put on {an(type(cls).__name__)}; wanted a class")
    folder = _folder(cls, sys._getframe(1).f_code.co_filename)
    for name, (_, usual) in _FILES.items():
        given = getattr(cls, name, None)
        if not isinstance(given, _Config):
            setattr(cls, name, _Config(name, usual if given is None else given, folder))
    for name, kind in (("agents", "agent"), ("tasks", "task")):
        setattr(cls, name, _All(kind))
    return cls


class _All:
    """An attribute: the list of what all methods of a kind return."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        return [getattr(instance, name)() for name in methods_of(owner, self._kind)]


class _Config:
    """An attribute: the entries of a file, which is read at the first access."""

    def __init__(self, name: str, given: Any, folder: Path) -> None:
        self._name, self._given, self._folder = name, given, folder

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        names = _Methods(instance)
        configs = {
            name: config for name in _FILES if isinstance(config := inspect.getattr_static(owner, name), _Config)
        }
        files = {_FILES[name][0]: config._file() for name, config in configs.items()}
        check(files, names)
        for name in configs:
            shape = _FILES[name][0]
            vars(instance).setdefault(name, Sections(files[shape], shape, names))
        return vars(instance)[self._name]

    def _file(self) -> YamlFile:
        if isinstance(self._given, Mapping):
            return YamlFile(self._name, {str(name): dict(fields) for name, fields in self._given.items()})
        if not isinstance(self._given, str | os.PathLike):
            raise ConfigError(f"{self._name} is {an(type(self._given).__name__)}; wanted the path of a YAML file")
        if (self._folder / self._given).exists():
            return read(self._given, self._folder)
        there = f"{self._folder / self._given} (there is no such file)"
        return YamlFile(there)


class _Methods:
    """The names that the files of a class may use: the decorated methods of the instance."""

    def __init__(self, instance: Any) -> None:
        self._instance = instance

    @property
    def owner(self) -> str:
        return type(self._instance).__name__

    def named(self, kind: str) -> Mapping[str, Make]:
        cls = type(self._instance)
        if kind == "output":
            return {name: lambda shape=shape: shape for name, shape in shapes_of(cls).items()}  # type: ignore[misc]
        found = {name: getattr(self._instance, name) for name in methods_of(cls, kind)}
        if kind in _GIVEN_AS_THEY_ARE:
            return {name: lambda method=method: method for name, method in found.items()}  # type: ignore[misc]
        return found


def _folder(cls: type, decorated_in: str) -> Path:
    """Return the directory of the file of a class; the working directory if it has no file."""
    for file in (getattr(sys.modules.get(cls.__module__), "__file__", None), decorated_in):
        if file and Path(file).is_file():
            return Path(file).resolve().parent
    return Path.cwd()
