"""Where runs are kept. Which provider a location means is decided here."""

from __future__ import annotations

from crewlite.state.providers.base import (
    BaseProvider,
    BranchInfo,
    CheckpointInfo,
    Commit,
    PlaceInfo,
    ResultCache,
    Store,
    declares,
    exists,
    is_provider,
    results_of,
)
from crewlite.state.providers.json import JsonProvider
from crewlite.state.providers.memory import InMemoryProvider
from crewlite.state.providers.sqlite import SqliteProvider, is_database

__all__ = [
    "BaseProvider",
    "BranchInfo",
    "CheckpointInfo",
    "Commit",
    "InMemoryProvider",
    "JsonProvider",
    "PlaceInfo",
    "ResultCache",
    "SqliteProvider",
    "Store",
    "declares",
    "exists",
    "is_provider",
    "provider_for",
    "results_of",
]


def provider_for(location: str, provider: BaseProvider | None = None) -> BaseProvider:
    """The provider given, else SQLite for a database or a name that ends like one, else JSON files."""
    if provider is not None:
        return provider
    return SqliteProvider() if is_database(location) else JsonProvider()
