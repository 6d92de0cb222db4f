"""The record: journals, checkpoints, where they are kept, and how to read them."""

from crewlite.state.checkpoint import Checkpoint
from crewlite.state.config import CheckpointConfig
from crewlite.state.history import History
from crewlite.state.providers import BaseProvider, InMemoryProvider, JsonProvider, SqliteProvider
from crewlite.state.runtime import RuntimeState

__all__ = [
    "BaseProvider",
    "Checkpoint",
    "CheckpointConfig",
    "History",
    "InMemoryProvider",
    "JsonProvider",
    "RuntimeState",
    "SqliteProvider",
]
