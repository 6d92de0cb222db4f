"""What an attempt is told of the failure before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crewlite.recovery.types import FailureType, RecordedStep


@dataclass(frozen=True, slots=True)
class RecoveryContext:
    """What an attempt is told of the failure before it. It holds for that attempt alone."""

    failure_type: FailureType = FailureType.UNKNOWN
    """What went wrong, as the classifier of the policy said."""
    attempt: int = 2
    """The number of this try, counted over all kickoffs of the run; one that goes on after a final failure keeps it."""
    hint: str = ""
    """What to do otherwise."""
    subgoal: str = ""
    """Where to go on, if the remedy names a subgoal."""
    tools: tuple[str, ...] | None = None
    """The names of the tools that may be called; None for all."""
    trajectory: tuple[RecordedStep, ...] = ()
    """What the failed attempt has recorded with `record_step`."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """What the failed attempt has set with `update_state`."""
