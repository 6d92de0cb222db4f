"""Crews: agents and tasks that run together, and survive together."""

from crewlite.crew.crew import Crew, Process
from crewlite.crew.output import CrewOutput

__all__ = ["Crew", "CrewOutput", "Process"]
