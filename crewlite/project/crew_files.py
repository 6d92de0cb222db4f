"""A crew from two YAML files alone. Tools and other objects that the files name are passed by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from crewlite.agent.agent import Agent
from crewlite.crew.crew import Crew
from crewlite.durable import same
from crewlite.errors import ConfigError
from crewlite.project.sections import AGENTS, TASKS, Make, Sections, check
from crewlite.project.yaml_file import read
from crewlite.runtime.kickoffs.request import Bind
from crewlite.task.task import Task
from crewlite.texts.wording import what_is
from crewlite.tools.toolbox import as_tools

C = TypeVar("C", bound=Crew)
_PASSED = ("tool", "llm", "callback", "output")
"""The kinds of objects that are passed. Agents and tasks are the files' own entries."""
PathText = str | os.PathLike[str]


def crew_of(cls: type[C], agents: PathText, tasks: PathText | None, bind: Bind, fields: dict[str, Any]) -> C:
    """Build a crew from two YAML files. See Crew.from_yaml."""
    if tasks is None:
        if not os.path.isdir(agents):
            raise ConfigError(
                f"Crew.from_yaml is given {os.fspath(agents)!r}, which is no folder; wanted one with agents.yaml and "
                f"tasks.yaml, or both files: Crew.from_yaml('agents.yaml', 'tasks.yaml')"
            )
        agents, tasks = Path(agents) / "agents.yaml", Path(agents) / "tasks.yaml"
    files = {AGENTS: read(agents, Path()), TASKS: read(tasks, Path())}
    names = Parts("Crew.from_yaml", bound(bind))
    people, work = Sections(files[AGENTS], AGENTS, names), Sections(files[TASKS], TASKS, names)
    names.makers["agent"] = {name: partial(names.once, Agent, name, section) for name, section in people.items()}
    names.makers["task"] = {name: partial(names.once, Task, name, section) for name, section in work.items()}
    check(list(files.items()), names, all_given=True)
    return cls(
        agents=[make() for make in names.makers["agent"].values()],
        tasks=[make() for make in names.makers["task"].values()],
        **fields,
    )


class Parts:
    """The names that the files of a crew may use: their own entries, and the objects that were passed."""

    def __init__(self, owner: str, passed: Mapping[str, Any]) -> None:
        self.owner = owner
        self.makers: dict[str, dict[str, Make]] = {
            kind: {name: partial(same, value) for name, value in passed.items()} for kind in _PASSED
        }
        self._made: dict[tuple[type[Any], str], Any] = {}

    def named(self, kind: str) -> Mapping[str, Make]:
        """Return all names of a kind. See Names."""
        return self.makers[kind]

    def advice(self, kind: str, name: str) -> str:
        """Return how to pass an object. See Names."""
        return "" if kind not in _PASSED else f"Pass it: {self.owner}(..., bind={{{name!r}: ...}})"

    def once(self, cls: type[Any], name: str, section: Mapping[str, Any]) -> Any:
        """Return the agent or task of an entry. The first call builds it. Raises ConfigError for a circular context."""
        key = (cls, name)
        if key not in self._made:
            self._made[key] = None  # marks it as being built
            named: dict[str, Any] = {} if issubclass(cls, Agent) or "name" in section else {"name": name}
            self._made[key] = cls(config=section, **named)
        if self._made[key] is None:
            raise ConfigError(
                f"{name} depends on itself, through the tasks in its context. Remove one of these references"
            )
        return self._made[key]


def bound(bind: Bind) -> Mapping[str, Any]:
    """Return the objects that were passed, by name."""
    if isinstance(bind, list | tuple):
        made: Any = as_tools(bind)
        return {tool.name: tool for tool in made}
    if not isinstance(bind, Mapping | None):
        raise ConfigError(f"bind is {what_is(bind)}; wanted a dict of names and objects, or a list of tools")
    return bind or {}
