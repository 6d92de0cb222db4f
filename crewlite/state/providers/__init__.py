"""Storage providers, and the choice of one by location."""

from __future__ import annotations

from crewlite.state.providers.base import (
    BaseProvider,
    BranchInfo,
    CheckpointInfo,
    Commit,
    Exchange,
    PlaceInfo,
    ResultCache,
    Store,
    declares,
    exchange_of,
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
    "Exchange",
    "InMemoryProvider",
    "JsonProvider",
    "PlaceInfo",
    "ResultCache",
    "SqliteProvider",
    "Store",
    "declares",
    "exchange_of",
    "exists",
    "is_provider",
    "provider_for",
    "results_of",
]


def provider_for(location: str, provider: BaseProvider | None = None) -> BaseProvider:
    """Return `provider` if given; else a SqliteProvider if the location names a database file; else a JsonProvider."""
    if provider is not None:
        return provider
    return SqliteProvider() if is_database(location) else JsonProvider()
