"""The record of runs: journals, checkpoints, storage, and history. Names are imported at their first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewlite.lazy import first_use

if TYPE_CHECKING:
    from crewlite.state.config import CheckpointConfig as CheckpointConfig
    from crewlite.state.history import History as History
    from crewlite.state.providers import (
        BaseProvider as BaseProvider,
        InMemoryProvider as InMemoryProvider,
        JsonProvider as JsonProvider,
        SqliteProvider as SqliteProvider,
    )
    from crewlite.state.reading.checkpoint import Checkpoint as Checkpoint
    from crewlite.state.run_history import RunHistory as RunHistory
    from crewlite.state.runtime import RuntimeState as RuntimeState

_NAMES = {
    "state.config": "CheckpointConfig",
    "state.history": "History",
    "state.providers": "BaseProvider InMemoryProvider JsonProvider SqliteProvider",
    "state.reading.checkpoint": "Checkpoint",
    "state.run_history": "RunHistory",
    "state.runtime": "RuntimeState",
}

__all__, __getattr__ = first_use("crewlite.state", _NAMES)
