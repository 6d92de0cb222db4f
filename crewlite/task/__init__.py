"""Tasks: their definitions, and their outputs."""

from crewlite.task.conditional import ConditionalTask
from crewlite.task.output import TaskOutput
from crewlite.task.task import Task

__all__ = ["ConditionalTask", "Task", "TaskOutput"]
