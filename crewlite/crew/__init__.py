"""Crews: agents and tasks that run together, in runs that can be resumed."""

from crewlite.crew.crew import Crew
from crewlite.crew.output import CrewOutput
from crewlite.crew.process import Process

__all__ = ["Crew", "CrewOutput", "Process"]
