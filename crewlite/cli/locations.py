"""Where runs are kept, if the command line does not say: what this directory holds."""

from __future__ import annotations

import os

from crewlite.cli.exits import Failed

DIRECTORY, DATABASE = "./.checkpoints", "./.checkpoints.db"


def detected() -> str | None:
    """Where this directory keeps runs: the directory goes before the database. None if there is neither."""
    if os.path.isdir(DIRECTORY):
        return DIRECTORY
    return DATABASE if os.path.exists(DATABASE) else None


def location_or_detected(given: str | None) -> str:
    """The location that was given, or else that of this directory. Raises Failed, saying where was looked."""
    if found := given or detected():
        earlier = f"{found}.db"  # what earlier releases made of a database without a suffix
        return earlier if not os.path.exists(found) and os.path.exists(earlier) else found
    raise Failed(
        f"no checkpoints here: there is neither {DIRECTORY}/ nor {DATABASE} in {os.getcwd()}. Go to where the run was "
        f"kicked off, or say where it is kept: --location PATH."
    )
