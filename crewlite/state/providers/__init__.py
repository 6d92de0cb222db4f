"""Storage providers, each of which is imported at its first use, and the choice of one by location."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewlite.errors import ConfigError
from crewlite.lazy import first_use, lazy
from crewlite.state.providers.base import (
    BaseProvider as BaseProvider,
    BranchInfo as BranchInfo,
    BranchKey as BranchKey,
    CheckpointInfo as CheckpointInfo,
    Commit as Commit,
    Exchange as Exchange,
    ResultCache as ResultCache,
    Store as Store,
    change_shared as change_shared,
    declares as declares,
    exchange_of as exchange_of,
    exists as exists,
    is_provider as is_provider,
    kept_open as kept_open,
    known_ends as known_ends,
    may_mention as may_mention,
    open_store as open_store,
    opened as opened,
    results_of as results_of,
    run_ids as run_ids,
)
from crewlite.state.providers.database_files import is_database

if TYPE_CHECKING:
    from crewlite.state.providers import json as in_files, sqlite as in_database
    from crewlite.state.providers.json import JsonProvider as JsonProvider
    from crewlite.state.providers.memory import InMemoryProvider as InMemoryProvider
    from crewlite.state.providers.sqlite import SqliteProvider as SqliteProvider
else:
    in_files, in_database = lazy("crewlite.state.providers.json"), lazy("crewlite.state.providers.sqlite")

_NAMES = {
    "state.providers.json": "JsonProvider",
    "state.providers.memory": "InMemoryProvider",
    "state.providers.sqlite": "SqliteProvider",
}
__getattr__ = first_use("crewlite.state.providers", _NAMES, complete=False)[1]


def provider_for(location: str, provider: BaseProvider | None = None) -> BaseProvider:
    """Return `provider` if given; else a SqliteProvider if the location names a database file; else a JsonProvider.

    Raises ConfigError for an address of a service, which neither of them opens, and for SQLite's name for no file.
    """
    if provider is not None:
        return provider
    if "://" in location:
        raise ConfigError(
            f"{location!r} is an address, and without a provider a location is a directory or a database file: choose "
            f"one, or pass the provider that opens the address (docs/storage.md)"
        )
    if location == ":memory:":
        raise ConfigError(
            f"{location!r} is not a path on the disk: to keep runs in memory, pass any location and "
            f"provider=InMemoryProvider() of crewlite.state"
        )
    return in_database.SqliteProvider() if is_database(location) else in_files.JsonProvider()
