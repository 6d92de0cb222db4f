"""Signals of the operating system. Only a run whose `on_events` names them emits these events."""

from __future__ import annotations

from typing import Literal

from crewlite.events.base import BaseEvent


class _SignalEvent(BaseEvent):
    signal_number: int
    reason: str
    """The meaning of the signal, in words."""


class SigTermEvent(_SignalEvent):
    """The process was asked to end. The run stops and can be resumed; the process ends with status 143."""

    type: Literal["SIGTERM"] = "SIGTERM"


class SigIntEvent(_SignalEvent):
    """Ctrl-C. The run stops and can be resumed; KeyboardInterrupt is raised."""

    type: Literal["SIGINT"] = "SIGINT"


class SigHupEvent(_SignalEvent):
    """The terminal was closed. The run stops and can be resumed; the process ends with status 129."""

    type: Literal["SIGHUP"] = "SIGHUP"


class SigTStpEvent(_SignalEvent):
    """Ctrl-Z. The process is about to stop until it is continued."""

    type: Literal["SIGTSTP"] = "SIGTSTP"


class SigContEvent(_SignalEvent):
    """The process was continued after it had been stopped."""

    type: Literal["SIGCONT"] = "SIGCONT"
