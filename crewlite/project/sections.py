"""The entries of the files of a crew: all are checked together, and each is resolved when its agent or task is built.

An entry names other parts (`agent: researcher`, `tools: [search]`). The reader of the file supplies their objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from crewlite.agent.agent import Agent
from crewlite.coming_from.settings import setting_of, why_not
from crewlite.crew.crew import Crew
from crewlite.definitions.definition import Definition
from crewlite.definitions.problems import given_names
from crewlite.errors import ConfigError, meant, meant_setting
from crewlite.project.yaml_file import YamlFile
from crewlite.task.task import ConditionalTask, Task
from crewlite.texts.logs import logger

log = logger("crewlite")
Make = Callable[[], Any]


class Names(Protocol):
    """The objects that the names in a file stand for."""

    @property
    def owner(self) -> str:
        """The class or function that supplies the names, for error messages."""

    def named(self, kind: str) -> Mapping[str, Make]:
        """Return all names of a kind, each with a call that returns its object.

        The kinds are agent, task, tool, llm, callback and output.
        """

    def advice(self, kind: str, name: str) -> str:
        """Return how a user adds an object with this name, for error messages; "" if that is no matter of the owner."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A key whose value names other parts."""

    kind: str
    many: bool = False
    or_text: bool = False
    """Whether a text that is not a name is used as it is, such as the name of a model."""
    or_sentence: bool = False
    """Whether a text that cannot be the name of a function is used as it is."""

    def is_text(self, value: object) -> bool:
        """Return whether a value that is not a known name is used as it is."""
        if self.or_text or not (self.or_sentence and isinstance(value, str)):
            return self.or_text
        return not all(part.isidentifier() for part in value.strip().split("."))


_OF_AGENTS = {
    "llm": Reference("llm", or_text=True),
    "function_calling_llm": Reference("llm", or_text=True),
    "tools": Reference("tool", many=True),
    "step_callback": Reference("callback"),
    "guardrail": Reference("callback", or_sentence=True),
}
_OF_TASKS = {
    "agent": Reference("agent"),
    "context": Reference("task", many=True),
    "tools": Reference("tool", many=True),
    "callback": Reference("callback"),
    "guardrail": Reference("callback", or_sentence=True),
    "guardrails": Reference("callback", many=True, or_sentence=True),
    "output_pydantic": Reference("output"),
    "output_json": Reference("output"),
    "response_model": Reference("output"),
}
_OF_CREWS = {
    "llm": Reference("llm", or_text=True),
    "manager_llm": Reference("llm", or_text=True),
    "planning_llm": Reference("llm", or_text=True),
    "function_calling_llm": Reference("llm", or_text=True),
    "chat_llm": Reference("llm", or_text=True),
    "manager_agent": Reference("agent"),
    "step_callback": Reference("callback"),
    "task_callback": Reference("callback"),
    "before_kickoff_callbacks": Reference("callback", many=True),
    "after_kickoff_callbacks": Reference("callback", many=True),
}


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The class that the entries of one kind of file build, and the keys that name other parts."""

    makes: type[Definition]
    noun: str
    references: Mapping[str, Reference]

    @property
    def keys(self) -> Collection[str]:
        """All keys that an entry may have, besides accepted settings of CrewAI."""
        return [name for name in given_names(self.makes) if name != "config"]

    def why_not(self, key: str) -> str:
        """Return why an entry cannot have a key, if a field or a setting may be meant; "" for one like no other."""
        classes = [self.makes.__name__]
        instead, close = why_not(classes, key), meant_setting(key, [*self.keys, *self.references])
        return f": {instead}" if instead else f"; {close}" if close else ""

    def leaves_out(self, key: str) -> bool:
        """Return whether a key is like nothing that an entry may have. It has no effect, as in CrewAI."""
        known = key in self.references or key in self.keys or setting_of([self.makes.__name__], key)
        return not known and not self.why_not(key)


AGENTS = Shape(Agent, "an agent", _OF_AGENTS)
TASKS = Shape(Task, "a task", _OF_TASKS)
CONDITIONAL_TASKS = Shape(ConditionalTask, "a conditional task", {**_OF_TASKS, "condition": Reference("callback")})
CREWS = Shape(Crew, "a crew", _OF_CREWS)


class Section(dict[str, Any]):
    """One entry of a file. `Agent(config=...)` and `Task(config=...)` call `resolved` to replace its names."""

    def __init__(self, fields: Mapping[str, Any], shape: Shape, names: Names) -> None:
        super().__init__(fields)
        self._shape, self._names = shape, names

    def resolved(self, given: Collection[str] = ()) -> dict[str, Any]:
        """Return its fields with names replaced by their objects, without the fields in `given`."""
        return {
            key: _thing(self._shape.references[key], value, self._names) if key in self._shape.references else value
            for key, value in self.items()
            if key not in given and value is not None and not self._shape.leaves_out(key)
        }


class Sections(dict[str, Section]):
    """The entries of one file."""

    def __init__(self, file: YamlFile, shape: Shape, names: Names) -> None:
        super().__init__({name: Section(fields, shape, names) for name, fields in file.entries.items()})
        self._path = file.path

    def __missing__(self, name: str) -> Section:
        hint = meant(name, self) or f"it has {', '.join(self) or 'nothing'}"
        raise ConfigError(f"{self._path} has no {name!r}; {hint}")


def check(files: Sequence[tuple[Shape, YamlFile]], names: Names, *, all_given: bool = False) -> None:
    """Raise one ConfigError for all mistakes in the files: unknown and repeated keys, wrong types, unknown names.

    Missing fields are a mistake only if `all_given`; otherwise code may supply them. Those of a crew never are one, as
    code supplies its tasks.
    """
    broken = any(file.broken for _, file in files)
    problems = [
        f"{file.path}, line {line}: {problem}"
        for shape, file in files
        for line, problem in sorted([*file.problems, *(() if broken else _problems(shape, file, names, all_given))])
    ]
    if len(problems) == 1:
        raise ConfigError(problems[0])
    if problems:
        raise ConfigError(f"{len(problems)} mistakes in the files of {names.owner}:\n  " + "\n  ".join(problems))


def _problems(shape: Shape, file: YamlFile, names: Names, all_given: bool) -> Iterator[tuple[int, str]]:
    for name, fields in file.entries.items():
        plain: dict[str, Any] = {}
        for key, value in fields.items():
            line = file.line(name, key)
            if value is None:
                continue
            if key in shape.references:
                yield from ((line, problem) for problem in _misnamed(key, value, name, shape, names))
            elif key in shape.keys:
                plain[key] = value
            elif problem := _unknown(key, value, name, shape):
                if shape.leaves_out(key):
                    log.warning("%s, line %d: %s; it is left out", file.path, line, problem)
                else:
                    yield line, problem
        for key, message in shape.makes.problems_in(plain, all_given=all_given and shape is not CREWS):
            if key in shape.references and key in fields:  # left out of the check
                continue
            yield file.line(name, key), _located(key, name, message)


def _located(key: str, name: str, message: str) -> str:
    """A problem with a key of an entry, which names the key once. `message` may begin behind the key, with "is"."""
    _, names_it, found = message.partition(f"{key} is ")
    if key and names_it:
        return f"{key} of {name} is {found}"
    what = f"{key} of {name}" if key else name
    return f"{what} {message}" if message.startswith("is ") else f"{what}: {message.removeprefix(f'{key}: ')}"


def _unknown(key: str, value: object, name: str, shape: Shape) -> str | None:
    setting = setting_of([shape.makes.__name__], key)
    if setting and setting.accepts(value):
        return None
    return f"{name} has the key {key!r}, which {shape.noun} does not have{shape.why_not(key)}"


def _misnamed(key: str, value: object, name: str, shape: Shape, names: Names) -> Iterator[str]:
    reference = shape.references[key]
    listed = value if reference.many else [value]
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        wanted = f"a list of names: {key}: [...]" if reference.many else "a name"
        yield f"{key} of {name} is {value!r}; wanted {wanted}"
        return
    known = names.named(reference.kind)
    for item in listed:
        if not item.strip():
            yield f"{key} of {name} is {item!r}; wanted a name"
        elif item not in known and not reference.is_text(item):
            there = f"it has {', '.join(known) or 'none'}"
            hint = meant(item, known) or ". ".join(filter(None, (there, names.advice(reference.kind, item))))
            lacks = f"{names.owner} has no {_SAID[reference.kind]} with that name"
            yield f"{key} of {name} names {item!r}, but {lacks}; {hint}"


_SAID = {"agent": "agent", "task": "task", "tool": "tool", "callback": "callback", "output": "output class"}


def _thing(reference: Reference, value: Any, names: Names) -> Any:
    known = names.named(reference.kind)
    if not reference.many:
        return known[value]() if value in known else value
    things = [known[item]() if item in known else item for item in value]
    return [one for thing in things for one in (thing if isinstance(thing, list | tuple) else [thing])]
