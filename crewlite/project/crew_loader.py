"""A crew from JSON files: `crew.jsonc` with the tasks, and a file for each agent in the folder `agents` beside it.

The files may name code: `{"python": "module.name"}`, a class of crewai_tools, and `custom:search` for the tool that
`tools/search.py` defines. It is imported when the crew is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from crewlite.crew.crew import Crew
from crewlite.crew.output import CrewOutput
from crewlite.errors import ConfigError, meant
from crewlite.project.code_in_files import CodeInFiles, is_reference
from crewlite.project.crew_files import Parts
from crewlite.project.sections import AGENTS, CONDITIONAL_TASKS, CREWS, TASKS, Section, Shape, check
from crewlite.project.yaml_file import YamlFile, read_one
from crewlite.texts.wording import what_is

PathText = str | os.PathLike[str]
_TYPES: Mapping[Shape, Mapping[str, Shape]] = {
    AGENTS: dict.fromkeys(("Agent", "agent"), AGENTS),
    TASKS: dict.fromkeys(("Task", "task"), TASKS)
    | dict.fromkeys(("ConditionalTask", "conditional_task", "conditional"), CONDITIONAL_TASKS),
}
_KINDS = {AGENTS: "agent", TASKS: "task"}


def load_crew(source: PathText, agents_dir: PathText | None = None) -> tuple[Crew, dict[str, Any]]:
    """Build the crew of a JSON file, and return it with the inputs that the file has under `inputs`.

    Args:
        source: The file of the crew. It lists its agents by name, and its tasks with their fields.
        agents_dir: The folder that holds `researcher.jsonc` or `researcher.json` for the agent `researcher`; if left
            out, the folder `agents` beside the file.

    Raises:
        ConfigError: a file cannot be read, or has unknown or repeated keys, values of a wrong type, or names that
            nothing has. It lists all of them, each with its line.
    """
    path = Path(source)
    crew, tasks = read_one(path, "crew", listed="tasks")
    people: list[Any] = _taken(crew, "agents", [])
    inputs: dict[str, Any] = _taken(crew, "inputs", {})
    work = list(tasks.entries)
    files = _Files(path, path.parent / "agents" if agents_dir is None else Path(agents_dir))
    for name in dict.fromkeys([*people, crew.entries["crew"].get("manager_agent")]):
        if isinstance(name, str):
            files.add(files.of_agent(name, crew), AGENTS)
    files.add(tasks, TASKS)
    files.add(crew, CREWS)
    check(files.parts, files.names, all_given=True)
    agents, made = files.made("agent", people), files.made("task", work)
    return Crew(agents=agents, tasks=made, **Section(crew.entries["crew"], CREWS, files.names).resolved()), inputs


def load_crew_and_kickoff(crew_path: PathText, input_overrides: Mapping[str, Any] | None = None) -> CrewOutput:
    """Load a crew and kick it off, with the inputs of its file and those that are given."""
    crew, inputs = load_crew(crew_path)
    return crew.kickoff(inputs={**inputs, **(input_overrides or {})})


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

    def __init__(self, path: Path, agents: Path) -> None:
        self._agents, self._root = agents, path.parent.resolve()
        self._code = CodeInFiles(self._root)
        self.names = Parts(os.fspath(path), {})
        self.names.makers |= {"agent": {}, "task": {}}
        self.parts: list[tuple[Shape, YamlFile]] = []

    def of_agent(self, name: str, crew: YamlFile) -> YamlFile:
        """Read the file of an agent; an empty one, and a mistake in the file of the crew, if there is none."""
        for end in (".jsonc", ".json"):
            if (path := self._agents / f"{name}{end}").is_file():
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
        types = _TYPES.get(usual, {})
        if given is None or (isinstance(given, str) and given in types):
            return types[given] if isinstance(given, str) else usual
        try:
            if is_reference(given):
                return replace(usual, makes=self._code.subclass(given, usual.makes))
            problem = f" is {given!r}; wanted {', '.join(types)}, or {{'python': 'module.Class'}}"
        except ConfigError as error:
            problem = f": {error}"
        file.problems.append((file.line(name, "type"), f"type of {name}{problem}"))
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
            reference, value = shape.references[key], fields[key]
            try:
                named = [
                    self._code.name(reference.kind, item, self.names.makers[reference.kind])
                    for item in (value if reference.many and isinstance(value, list) else [value])
                ]
                fields[key] = named if reference.many and isinstance(value, list) else named[0]
            except ConfigError as error:
                file.problems.append((file.line(name, key), f"{key} of {name}: {error}"))
                fields[key] = None
