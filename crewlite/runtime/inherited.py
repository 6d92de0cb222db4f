"""What a step hands down to the steps inside it: one frozen value, so that no step can change another's."""

from __future__ import annotations

from dataclasses import dataclass

from crewlite.durable import Limit
from crewlite.recovery import Policy
from crewlite.runtime.replay import Mode
from crewlite.state.subscriber import Setting


@dataclass(frozen=True, slots=True)
class Inherited:
    """What a step hands down to the steps inside it."""

    mode: Mode
    settings: tuple[Setting, ...] = ()
    """What this step and those around it say about checkpoints, from the inside out."""
    limits: tuple[Limit, ...] = ()
    """Limits for every step inside."""
    policy: Policy | None = None
    """For steps inside that inherit."""
