"""Crews from YAML files and classes, as programs written for CrewAI have them.

What comes of it are ordinary agents, tasks and crews: they are saved, resumed, forked and rebuilt like any.
"""

from crewlite.project.crew_class import CrewBase
from crewlite.project.methods import (
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
