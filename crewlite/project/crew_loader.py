"""A crew from JSON files: `crew.jsonc` with the tasks, and a file for each agent in the folder `agents` beside it.

The files may name functions, classes and tools: `{"python": "module.name"}`, `custom:search`, `SerperDevTool`. No file
causes an import, so these objects are passed by name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from crewlite.crew.crew import Crew
from crewlite.crew.output import CrewOutput
from crewlite.durable import same
from crewlite.errors import ConfigError, meant
from crewlite.llm.model import LLM
from crewlite.project.crew_files import Parts, bound
from crewlite.project.sections import AGENTS, CONDITIONAL_TASKS, CREWS, TASKS, Section, Shape, check
from crewlite.project.yaml_file import YamlFile, read_one
from crewlite.runtime.kickoffs.request import Bind
from crewlite.texts.wording import what_is

PathText = str | os.PathLike[str]
_TYPES: Mapping[Shape, Mapping[str, Shape]] = {
    AGENTS: dict.fromkeys(("Agent", "agent"), AGENTS),
    TASKS: dict.fromkeys(("Task", "task"), TASKS)
    | dict.fromkeys(("ConditionalTask", "conditional_task", "conditional"), CONDITIONAL_TASKS),
    CREWS: dict.fromkeys(("Crew", "crew"), CREWS),
}
_KINDS = {AGENTS: "agent", TASKS: "task"}


def load_crew(
    source: PathText, agents_dir: PathText | None = None, *, bind: Bind = None
) -> tuple[Crew, dict[str, Any]]:
    """Build the crew of a JSON file, and return it with the inputs that the file has under `inputs`.

    Args:
        source: The file of the crew. It lists its agents by name, and its tasks with their fields.
        agents_dir: The folder that holds `researcher.jsonc` or `researcher.json` for the agent `researcher`; if left
            out, the folder `agents` beside the file.
        bind: The functions, classes and tools that the files name, by these names; or a list of tools.

    Raises:
        ConfigError: a file cannot be read, or has unknown or repeated keys, values of a wrong type, or names that
            nothing has. It lists all of them, each with its line.
    """
    path = Path(source)
    crew, tasks = read_one(path, "crew", listed="tasks")
    people = _names_of_agents(crew)
    inputs: dict[str, Any] = _taken(crew, "inputs", {})
    work = list(tasks.entries)
    files = _Files(path, path.parent / "agents" if agents_dir is None else Path(agents_dir), bind)
    manager = crew.entries["crew"].get("manager_agent")
    for name in dict.fromkeys([*people, *([manager] if isinstance(manager, str) else [])]):
        files.add(files.of_agent(name, crew), AGENTS)
    files.add(tasks, TASKS)
    files.add(crew, CREWS)
    check(files.parts, files.names, all_given=True)
    agents, made = files.made("agent", people), files.made("task", work)
    return Crew(agents=agents, tasks=made, **Section(crew.entries["crew"], CREWS, files.names).resolved()), inputs


def load_crew_and_kickoff(
    crew_path: PathText, input_overrides: Mapping[str, Any] | None = None, *, bind: Bind = None
) -> CrewOutput:
    """Load a crew and kick it off, with the inputs of its file and those that are given. `bind`: see load_crew."""
    crew, inputs = load_crew(crew_path, bind=bind)
    return crew.kickoff(inputs={**inputs, **(input_overrides or {})})


def _names_of_agents(crew: YamlFile) -> list[str]:
    listed: list[Any] = _taken(crew, "agents", [])
    for number, item in enumerate(listed):
        if not isinstance(item, str):
            problem = f"agents[{number}] is {item!r}; wanted the name of an agent"
            crew.problems.append((crew.line("crew", "agents"), problem))
    return [item for item in listed if isinstance(item, str)]


def _taken(crew: YamlFile, key: str, usual: list[Any] | dict[str, Any]) -> Any:
    """Take a key out of the entry of the crew. A value of another type than `usual` is a mistake in the file."""
    value = crew.entries.setdefault("crew", {}).pop(key, None)
    if value is None or isinstance(value, type(usual)):
        return usual if value is None else value
    wanted = "a list of names" if isinstance(usual, list) else "an object"
    crew.problems.append((crew.line("crew", key), f"{key} is {what_is(value)}; wanted {wanted}"))
    return usual


class _Files:
    """The files of one crew: what they name, and their entries by the class that they build."""

    def __init__(self, path: Path, agents: Path, bind: Bind) -> None:
        self._agents, self._root = agents, path.parent.resolve()
        self._bound = bound(bind)
        self.names = Parts("load_crew", self._bound)
        self.names.makers |= {"agent": {}, "task": {}}
        self.parts: list[tuple[Shape, YamlFile]] = []

    def of_agent(self, name: str, crew: YamlFile) -> YamlFile:
        """Read the file of an agent; an empty one, and a mistake in the file of the crew, if there is none."""
        for end in (".jsonc", ".json"):
            path = self._agents / f"{name}{end}"
            if path.parent == self._agents and os.path.isfile(path):  # False for what no file can be called
                return read_one(path, name, flat="settings")[0]
        there = sorted({path.stem for path in self._agents.glob("*.json*")})
        hint = meant(name, there) or f"it has {', '.join(there) or 'none'}"
        problem = f"agents names {name!r}, but {self._agents} has no file {name}.jsonc; {hint}"
        crew.problems.append((crew.line("crew", "agents"), problem))
        return YamlFile(os.fspath(self._agents / name))

    def add(self, file: YamlFile, usual: Shape) -> None:
        """Add the entries of a file, and what they name. An entry that has a type builds that class."""
        by_shape = {usual: file}
        for name, fields in list(file.entries.items()):
            shape = self._shape(file, name, fields.pop("type", None), usual)
            if shape is not usual:
                other = by_shape.setdefault(shape, YamlFile(file.path, lines=file.lines))
                other.entries[name] = file.entries.pop(name)
            self._name_objects(file, name, fields, shape)
            if kind := _KINDS.get(usual):
                self.names.makers[kind][name] = partial(
                    self.names.once, shape.makes, name, Section(fields, shape, self.names)
                )
        self.parts += by_shape.items()

    def made(self, kind: str, listed: list[str]) -> list[Any]:
        return [self.names.makers[kind][name]() for name in listed]

    def _shape(self, file: YamlFile, name: str, given: Any, usual: Shape) -> Shape:
        """Return what an entry with this `type` builds. One that nothing has is a mistake in the file."""
        types = _TYPES[usual]
        if given is None:
            return usual
        if isinstance(named := _name(given), str):
            if named in types:
                return types[named]
            found = self._bound.get(named)
            if isinstance(found, type) and issubclass(found, usual.makes):
                return replace(usual, makes=found)
        wanted = f"{', '.join(types)}, or the name of a subclass of {usual.makes.__name__} in load_crew(..., bind=...)"
        file.problems.append((file.line(name, "type"), f"type of {name} is {given!r}; wanted {wanted}"))
        return usual

    def _name_objects(self, file: YamlFile, name: str, fields: dict[str, Any], shape: Shape) -> None:
        """Put names in the place of what describes an object, such as `{"python": "module.name"}`."""
        if shape.makes is not Crew:
            fields.setdefault("name", None)
        if isinstance(paths := fields.get("input_files"), dict):
            fields["input_files"] = {
                key: str(self._root / path) if isinstance(path, str) else path for key, path in paths.items()
            }
        for key in shape.references.keys() & fields.keys():
            value = fields[key]
            try:
                fields[key] = [*map(self._named, value)] if isinstance(value, list) else self._named(value)
            except (ConfigError, TypeError) as error:
                file.problems.append((file.line(name, key), f"{key} of {name}: {error}"))
                fields[key] = None
        for key in fields.keys() - shape.references.keys():
            try:
                fields[key] = self._passed(fields[key])
            except ConfigError as error:
                file.problems.append((file.line(name, key), f"{key} of {name} {error}"))
                fields[key] = None

    def _passed(self, value: Any) -> Any:
        """Put the objects that were passed in the place of their descriptions, in a value that is no name itself.

        Raises ConfigError for one that was not passed.
        """
        if isinstance(value, list):
            return [self._passed(item) for item in value]
        if not isinstance(value, dict) or not isinstance(named := _name(value), str):
            return value
        if named not in self._bound:
            advice = self.names.advice("callback", named)
            raise ConfigError(f"names {named!r}, but load_crew has no object with that name. {advice}")
        return self._bound[named]

    def _named(self, value: Any) -> Any:
        """Return the name of the object that a value describes; any other value as it is.

        Raises ConfigError or TypeError for settings that no model has.
        """
        if isinstance(value, dict) and "model" in value:
            model, value = LLM(**value), json.dumps(value)
            self.names.makers["llm"][value] = partial(same, model)
        return _name(value)


def _name(value: Any) -> Any:
    """Return the name in `{"python": name}`, and in `"custom:name"`; any other value as it is."""
    if isinstance(value, dict) and list(value) == ["python"]:
        return value["python"]
    return value.removeprefix("custom:") if isinstance(value, str) else value
