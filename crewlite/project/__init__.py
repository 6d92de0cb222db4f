"""Crews from YAML files and classes, as programs written for CrewAI have them.

They build ordinary agents, tasks and crews, which are saved, resumed, forked and rebuilt like any other.
"""

from crewlite.coming_from import missing_import
from crewlite.project.crew_class import (
    CrewBase,
    after_kickoff,
    agent,
    before_kickoff,
    cache_handler,
    callback,
    crew,
    llm,
    output_json,
    output_pydantic,
    task,
    tool,
)

__all__ = [
    "CrewBase",
    "after_kickoff",
    "agent",
    "before_kickoff",
    "cache_handler",
    "callback",
    "crew",
    "llm",
    "output_json",
    "output_pydantic",
    "task",
    "tool",
]


def __getattr__(name: str) -> None:
    raise missing_import("crewlite.project", name) or AttributeError(f"crewlite.project has no {name!r}")
