"""`@CrewBase`: a class whose methods build the agents, tasks and crew, with the texts in YAML files next to it.

Each method is called once per instance, which keeps the result.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from crewlite.agent.agent import Agent
from crewlite.coming_from.settings import why_not
from crewlite.crew.crew import Crew
from crewlite.definitions.keywords import known_keywords
from crewlite.durable import same
from crewlite.errors import ConfigError
from crewlite.project.sections import AGENTS, TASKS, Make, Sections, Shape, check
from crewlite.project.yaml_file import YamlFile, read
from crewlite.task.task import Task
from crewlite.texts.wording import an, what_is

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
_MADE = "_crewlite_made"
_SHAPE = "_crewlite_shape"
_GIVEN_AS_THEY_ARE = ("callback",)  # kinds of methods that a file passes on instead of calling them
_FILES: Mapping[str, tuple[Shape, str]] = {
    "agents_config": (AGENTS, "config/agents.yaml"),
    "tasks_config": (TASKS, "config/tasks.yaml"),
}
_GIVEN = (*_FILES, "agents", "tasks", "get_mcp_tools")
"""The attributes that `@CrewBase` gives to a class."""


def _on(kind: str, parameter: str = "function") -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Have a decorator that takes no options say so if it is written with parentheses."""
    write = f"write @{kind} without parentheses"
    return known_keywords(f"@{kind}", needs={parameter: f"what stands below it: {write}"}, others=write)


@_on("CrewBase", "cls")
def CrewBase(cls: C) -> C:  # noqa: N802 - its name
    """Give the instances of a class `self.agents_config`, `self.tasks_config`, `self.agents` and `self.tasks`.

    The first two are the entries of the files that class attributes with these names set, relative to the file of the
    class; `config/agents.yaml` and `config/tasks.yaml` by default. `self.agents` and `self.tasks` are lists of what the
    `@agent` and `@task` methods return, in the order of the class.

    The files are read at the first access. That raises ConfigError if a file has unknown or repeated keys, values of a
    wrong type, or names that stand for nothing. It lists all of these mistakes with their lines.
    """
    if not isinstance(cls, type):
        raise ConfigError(f"@CrewBase is put on {what_is(cls)}; wanted a class")
    folder = _folder(cls, sys._getframe(2).f_code.co_filename)
    for name, (_, usual) in _FILES.items():
        given = getattr(cls, name, None)
        if not isinstance(given, _Config):
            setattr(cls, name, _Config(name, usual if given is None else given, folder))
    for name, kind in (("agents", "agent"), ("tasks", "task")):
        setattr(cls, name, _All(name, kind))
    if not hasattr(cls, "get_mcp_tools"):
        cls.get_mcp_tools = _no_tools_of_mcp  # type: ignore[attr-defined]  # given to every class
    return cls


def _no_tools_of_mcp(crew_class: object, *names: str) -> list[Any]:
    """Return no tools, as in CrewAI, if the class names no MCP servers; raise ConfigError if it does."""
    if getattr(crew_class, "mcp_server_params", None):
        raise ConfigError(f"{type(crew_class).__name__}.get_mcp_tools: {why_not(['CrewBase'], 'mcp_server_params')}")
    return []


class _All:
    """An attribute: the list of what all methods of a kind return. It is made at the first access, and kept."""

    def __init__(self, name: str, kind: str) -> None:
        self._name, self._kind = name, kind

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        made = [getattr(instance, name)() for name in methods_of(owner, self._kind)]
        return vars(instance).setdefault(self._name, made)


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
        check(list(files.items()), names)
        for name in configs:
            shape = _FILES[name][0]
            vars(instance).setdefault(name, Sections(files[shape], shape, names))
        return vars(instance)[self._name]

    def _file(self) -> YamlFile:
        if isinstance(self._given, Mapping):
            file = YamlFile(self._name)
            for name, fields in self._given.items():
                if isinstance(fields, Mapping):
                    file.entries[str(name)] = {str(key): value for key, value in fields.items()}
                else:
                    file.problems.append((1, f"{name} is {what_is(fields)}; wanted a mapping of its fields"))
            return file
        if not isinstance(self._given, str | os.PathLike):
            raise ConfigError(f"{self._name} is {what_is(self._given)}; wanted the path of a YAML file")
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
            return {name: partial(same, shape) for name, shape in shapes_of(cls).items()}
        found = {name: getattr(self._instance, name) for name in methods_of(cls, kind)}
        if kind in _GIVEN_AS_THEY_ARE:
            return {name: partial(same, method) for name, method in found.items()}
        return found

    def advice(self, kind: str, name: str) -> str:
        return "" if kind == "output" else f"A method of {self.owner} with @{kind} adds it: def {name}(self)"


def _folder(cls: type, decorated_in: str) -> Path:
    """Return the directory of the file of a class; the working directory if it has no file."""
    for file in (getattr(sys.modules.get(cls.__module__), "__file__", None), decorated_in):
        if file and Path(file).is_file():
            return Path(file).resolve().parent
    return Path.cwd()


class Method:
    """A method of a crew's class with one of the decorators below."""

    def __init__(self, kind: str, function: Callable[..., Any]) -> None:
        self.__doc__, self.__wrapped__ = function.__doc__, function
        self.kind, self.function = kind, function
        self.name: str = getattr(function, "__name__", kind)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return functools.wraps(self.function)(functools.partial(self._call, instance))

    def __call__(self, instance: Any, *args: Any, **kwargs: Any) -> Any:
        """Call it on an instance, as a function of the class: `Office.crew(office)`."""
        return self._call(instance, *args, **kwargs)

    def _call(self, instance: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs or self.kind in _CALLED_EACH_TIME:
            return self._value(instance, *args, **kwargs)
        made = vars(instance).setdefault(_MADE, {})
        if self.name not in made:
            made[self.name] = self._finished(instance, self._value(instance))
        return made[self.name]

    def _value(self, instance: object, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.function(instance, *args, **kwargs)
        except AttributeError as error:
            cls, name = type(instance), error.name
            if error.obj is not instance or name not in _GIVEN or hasattr(cls, name):
                raise
            where = f"@{self.kind} {self.name} of {cls.__name__}"
            raise ConfigError(
                f"{where} uses self.{name}, which @CrewBase gives to a class: put it on {cls.__name__}"
            ) from error

    def _finished(self, instance: object, made: Any) -> Any:
        where = f"@{self.kind} {self.name} of {type(instance).__name__}"
        wanted = _WANTED.get(self.kind)
        if wanted and not isinstance(made, wanted):
            raise ConfigError(f"{where} returned {what_is(made)}; wanted {an(wanted.__name__)}")
        if isinstance(made, Task) and made.name is None:
            made.name = self.name
        return _with_callbacks(instance, made) if isinstance(made, Crew) else made


_WANTED: Mapping[str, type] = {"agent": Agent, "task": Task, "crew": Crew}
_CALLED_EACH_TIME = ("before_kickoff", "after_kickoff", "callback")


def _decorator(kind: str, doc: str) -> Callable[[F], F]:
    @_on(kind)
    def decorate(function: Any) -> Any:
        return Method(kind, function)

    decorate.__name__, decorate.__doc__ = kind, doc
    return decorate


agent = _decorator("agent", "A method that returns an Agent. YAML files name it: `agent: researcher`.")
task = _decorator("task", "A method that returns a Task, which is named after it. `self.tasks` lists them in order.")
crew = _decorator("crew", "The method that returns the Crew, which is named after its class.")
llm = _decorator("llm", "A method that returns a model. YAML files name it: `llm: careful`.")
tool = _decorator("tool", "A method that returns a tool. YAML files name it: `tools: [search]`.")
callback = _decorator("callback", "A method that YAML files name as `callback:` of a task.")
cache_handler = _decorator("cache_handler", "Accepted; results of tools are cached by their own cache_function.")
before_kickoff = _decorator("before_kickoff", "A method that is given the inputs and returns those of the run.")
after_kickoff = _decorator("after_kickoff", "A method that is given the result and returns what kickoff does.")


@_on("output_pydantic", "cls")
def output_pydantic(cls: C) -> C:
    """Mark a pydantic class inside a crew's class, so that YAML files can name it as `output_pydantic:`."""
    setattr(cls, _SHAPE, True)
    return cls


@_on("output_json", "cls")
def output_json(cls: C) -> C:
    """Mark a pydantic class inside a crew's class, so that YAML files can name it as `output_json:`."""
    return output_pydantic(cls)


def methods_of(cls: type, kind: str) -> dict[str, Method]:
    """Return the methods of this kind by name, in the order of their definition, those of base classes first."""
    found: dict[str, Method] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, Method) and value.kind == kind:
                found[name] = value
            else:
                found.pop(name, None)
    return found


def shapes_of(cls: type) -> dict[str, type]:
    """Return the pydantic classes inside a class that are marked as outputs, by name."""
    inside = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
    return {name: value for name, value in inside.items() if isinstance(value, type) and hasattr(value, _SHAPE)}


def _with_callbacks(instance: object, made: Crew) -> Crew:
    """Return the crew with the class's callbacks before and after the kickoff added, named after the class."""
    changes: dict[str, Any] = {} if "name" in made.model_fields_set else {"name": type(instance).__name__}
    for kind in ("before_kickoff", "after_kickoff"):
        if found := [getattr(instance, name) for name in methods_of(type(instance), kind)]:
            field = f"{kind}_callbacks"
            changes[field] = [*(getattr(made, field, None) or ()), *found]
    return made.with_(**changes) if changes else made
