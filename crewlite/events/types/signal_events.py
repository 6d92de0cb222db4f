"""Signals of the operating system. Told only by a run whose `on_events` names them."""

from __future__ import annotations

from typing import Literal

from crewlite.events.base import BaseEvent


class _SignalEvent(BaseEvent):
    signal_number: int
    reason: str
    """What the signal stands for, in words."""


class SigTermEvent(_SignalEvent):
    """The process was asked to end. The run is cut and can go on later; the process ends with status 143."""

    type: Literal["SIGTERM"] = "SIGTERM"


class SigIntEvent(_SignalEvent):
    """Ctrl-C. The run is cut and can go on later; KeyboardInterrupt is raised."""

    type: Literal["SIGINT"] = "SIGINT"


class SigHupEvent(_SignalEvent):
    """The terminal has gone. The run is cut and can go on later; the process ends with status 129."""

    type: Literal["SIGHUP"] = "SIGHUP"


class SigTStpEvent(_SignalEvent):
    """Ctrl-Z. The process is about to stand still until it is continued."""

    type: Literal["SIGTSTP"] = "SIGTSTP"


class SigContEvent(_SignalEvent):
    """The process was continued after it had stood still."""

    type: Literal["SIGCONT"] = "SIGCONT"
