"""A task that is done only if a function says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crewlite.task.output import TaskOutput
from crewlite.task.task import Task


class ConditionalTask(Task):
    """A task that is skipped unless `condition`, called with the output of the task before it, returns True.

    Its verdict is recorded, so no resume decides otherwise. A skipped task has an output with `skipped=True` and no
    text. It cannot be the first task of a crew.
    """

    condition: Callable[[TaskOutput], Any]
    """Called with the output of the task that stands before this one in the crew; true: do it. May be async."""
