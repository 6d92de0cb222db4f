"""Which locations mean a SQLite database."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from crewlite.lazy import lazy

if TYPE_CHECKING:
    from crewlite.state.providers import sqlite_database
else:  # only for locations that are files
    sqlite_database = lazy("crewlite.state.providers.sqlite_database")

SUFFIXES = (".db", ".sqlite", ".sqlite3")
"""The suffixes of locations that mean SQLite."""


def is_database(location: str) -> bool:
    """Return whether a location without a provider means SQLite: by its suffix, or because it is a database file."""
    if location.lower().endswith(SUFFIXES):
        return True
    return os.path.isfile(location) and sqlite_database.is_database_file(Path(location))
