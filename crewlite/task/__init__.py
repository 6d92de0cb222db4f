"""Tasks: their definitions, and their outputs."""

from crewlite.task.output import TaskOutput
from crewlite.task.task import ConditionalTask, Task

__all__ = ["ConditionalTask", "Task", "TaskOutput"]
