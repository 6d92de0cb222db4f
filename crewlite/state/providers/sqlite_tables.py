"""The tables of a database, as migrations: each takes every database of an earlier crewlite one layout further.

They are applied with the first write, in one transaction, so a database is as it was or as it is now. What a release
has written with never changes here; a new layout is a new function at the end.
"""

from __future__ import annotations

import sqlite3

from sqlite_utils import Database, Migrations

migrations = Migrations("crewlite")


@migrations()
def runs(db: Database) -> None:
    """Branches, their commits, and the places of checkpoints: what databases had before they counted layouts."""
    branch, entry, place = db.table("branch"), db.table("entry"), db.table("place")
    columns = {"id": int, "run_id": str, "name": str, "uid": str, "seq": int, "head": str, "touched": float}
    branch.create(columns, pk="id", not_null={"run_id", "name"}, if_not_exists=True)
    branch.create_index(["run_id", "name"], unique=True, if_not_exists=True)
    entry.create({"branch_id": int, "seq": int, "sum": str, "body": bytes}, pk=("branch_id", "seq"), if_not_exists=True)
    texts = {"parent_id": str, "trigger": str, "address": str, "label": str, "created_at": str}
    place.create({"id": str, "branch_id": int, "seq": int, **texts, "sum": str}, pk="id", if_not_exists=True)
    place.create_index(["branch_id"], if_not_exists=True)


@migrations()
def results(db: Database) -> None:
    """What steps leave for other runs, found by its age as well."""
    cache = db.table("cache")
    cache.create({"key": str, "at": float, "data": bytes}, pk="key", if_not_exists=True)
    cache.create_index(["at"], if_not_exists=True)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables to the newest layout. Call it in a transaction."""
    migrations.apply(Database(connection))
