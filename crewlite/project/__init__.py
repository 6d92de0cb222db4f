"""Crews from YAML files, JSON files and classes, as programs written for CrewAI have them.

They build ordinary agents, tasks and crews, which are saved, resumed, forked and rebuilt like any other.
"""

from crewlite.coming_from import missing_import
from crewlite.project.crew_class import (
    CrewBase as CrewBase,
    after_kickoff as after_kickoff,
    agent as agent,
    before_kickoff as before_kickoff,
    cache_handler as cache_handler,
    callback as callback,
    crew as crew,
    llm as llm,
    output_json as output_json,
    output_pydantic as output_pydantic,
    task as task,
    tool as tool,
)
from crewlite.project.crew_loader import load_crew as load_crew, load_crew_and_kickoff as load_crew_and_kickoff

_HOMES = ("crewlite.project.crew_class", "crewlite.project.crew_loader")
__all__ = sorted(name for name, value in globals().items() if getattr(value, "__module__", "") in _HOMES)  # noqa: PLE0605 - names of decorators


def __getattr__(name: str) -> None:
    raise missing_import("crewlite.project", name) or AttributeError(f"crewlite.project has no {name!r}")
