"""The file that a training writes: suggestions for agents as JSON, by the role in the agent's definition.

The suggestions are part of an agent's prompt, as its backstory is. So each of its tasks is asked something else after
a new training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from os import PathLike
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from crewlite.encoding import codec
from crewlite.errors import ConfigError
from crewlite.system import disk
from crewlite.system.file_locks import locked
from crewlite.system.paths import why_no_path
from crewlite.usage import Usage

Suggestions = Mapping[str, Sequence[str]]
"""By role."""


@codec.register
class TrainedAgent(BaseModel):
    """What one agent has learned."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    suggestions: list[str] = Field(description="What to do from now on, each an instruction that is complete in itself")
    quality: float = Field(ge=0, le=10, description="How good the answers were, from 0 (useless) to 10")
    final_summary: str = Field(description="What the agent does well and what it has to do better, in a few sentences")


@codec.register
class Lesson(BaseModel):
    """The answer of an agent, and the feedback on it."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    role: str
    """The role of the agent, as its definition has it."""
    iteration: int
    """From 1."""
    description: str
    answer: str
    feedback: str


@codec.register
class CrewTrainingResult(BaseModel):
    """The result of a training. `str()` lists the suggestions."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    crew_name: str
    agents: dict[str, TrainedAgent]
    """What each agent has learned, by its role; those whose answers got no feedback are not in it."""
    lessons: tuple[Lesson, ...]
    token_usage: Usage
    """Of the crew and of the models that made the suggestions."""

    def __str__(self) -> str:
        lines = []
        for role, agent in self.agents.items():
            lines += [f"{role} ({agent.quality:.1f} of 10)", *(f"- {one}" for one in agent.suggestions)]
        return "\n".join(lines) or "no feedback was given, and nothing was learned"


def read(path: str | PathLike[str]) -> dict[str, TrainedAgent]:
    """Read what the agents have learned, by role. Raises ConfigError if `train` has written no such file."""
    check(path)
    try:
        return _agents().validate_json(Path(path).read_bytes())
    except FileNotFoundError:
        raise ConfigError(
            f"there is no file {path} of trained agents; crew.train(n, {str(path)!r}) writes it"
        ) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(
            f"{path} is no file of trained agents: {f'{where}: ' if where else ''}{first['msg']}. Pass a file that "
            f"crew.train(n, filename) has written"
        ) from None


def write(path: str | PathLike[str], trained: Mapping[str, TrainedAgent]) -> None:
    """Replace what the file has about these agents, all or nothing. What it has about other agents stays.

    A lock file beside it lets one training after the other read and write it. Without agents nothing is written.
    """
    if not trained:
        return
    place = Path(path).absolute()
    disk.make_directory(place.parent, mode=0o777)
    with locked([place.with_name(f".{place.name}.lock")], mode=0o666):
        there = read(path) if place.exists() else {}
        agents = {role: agent.model_dump() for role, agent in {**there, **trained}.items()}
        text = json.dumps(agents, ensure_ascii=False, indent=2) + "\n"
        disk.replace(place, text.encode("utf-8", "backslashreplace"), mode=0o666)


def check(path: str | PathLike[str]) -> None:
    """Raise ConfigError for a path to which no file of trained agents can be written."""
    if not str(path).strip():
        raise ConfigError(f"filename is {str(path)!r}; wanted the name of a file, such as 'trained.json'")
    if why := why_no_path(path):
        raise ConfigError(f"filename is {str(path)!r}, which {why}; choose another")
    if Path(path).suffix in (".pkl", ".pickle"):
        wanted = Path(path).with_suffix(".json").name
        raise ConfigError(f"{path}: what agents have learned is plain JSON and never a pickle; name it {wanted!r}")
    if Path(path).is_dir():
        raise ConfigError(f"{path} is a directory; wanted the name of a file, such as 'trained.json'")


def suggestions_in(path: str | PathLike[str], roles: Sequence[str]) -> Suggestions:
    """Return the suggestions for agents with these roles. Raises ConfigError if the file has none for any of them."""
    trained = read(path)
    if trained and not any(role in trained for role in roles):
        raise ConfigError(
            f"{path} is about the agents {', '.join(trained)}, but this crew has {', '.join(roles)}; wanted a file "
            f"that crew.train has written for this crew"
        )
    return {role: trained[role].suggestions for role in roles if role in trained}


@cache
def _agents() -> TypeAdapter[dict[str, TrainedAgent]]:
    return TypeAdapter(dict[str, TrainedAgent])
