"""The location of runs if the command line does not give one: the store of this directory."""

from __future__ import annotations

import os

from crewlite.cli.exits import Failed

DIRECTORY, DATABASE = "./.checkpoints", "./.checkpoints.db"


def detected() -> str | None:
    """Return the store of this directory: ./.checkpoints if it exists, else the database; None if there is neither."""
    if os.path.isdir(DIRECTORY):
        return DIRECTORY
    return DATABASE if os.path.exists(DATABASE) else None


def location_or_detected(given: str | None) -> str:
    """Return the given location, else that of this directory. Raises Failed if there is neither."""
    if found := given or detected():
        earlier = f"{found}.db"  # earlier releases added this suffix to a database without one
        return earlier if not os.path.exists(found) and os.path.exists(earlier) else found
    raise Failed(
        f"no checkpoints here: there is neither {DIRECTORY}/ nor {DATABASE} in {os.getcwd()}. Change to the directory "
        f"in which the run was kicked off, or name its store: --location PATH."
    )
