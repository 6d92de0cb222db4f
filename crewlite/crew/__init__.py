"""Crews: agents and tasks that run together, in runs that can be resumed."""

from crewlite.crew.crew import Crew, Process
from crewlite.crew.output import CrewOutput

__all__ = ["Crew", "CrewOutput", "Process"]
