"""The tables of a database, as migrations: each changes a database of an earlier release to the next layout.

The first write applies them in one transaction, all or nothing. A released migration never changes; a new layout is a
new function at the end.
"""

from __future__ import annotations

import sqlite3

from sqlite_utils import Database, Migrations

migrations = Migrations("crewlite")


@migrations()
def runs(db: Database) -> None:
    """Create the tables of branches, entries and checkpoints. Databases from before migrations have them already."""
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
    """Create the table of results that other runs may reuse, indexed by time too."""
    cache = db.table("cache")
    cache.create({"key": str, "at": float, "data": bytes}, pk="key", if_not_exists=True)
    cache.create_index(["at"], if_not_exists=True)


@migrations()
def rewinds(db: Database) -> None:
    """Index the commits that may rewind their branch, by the condition that `MAY_REWIND` was when this was released."""
    found = "instr(body, x'22726577696e64223a7b') > 0"
    db.execute(f"CREATE INDEX IF NOT EXISTS entry_rewinds ON entry (branch_id, seq) WHERE {found}")


def migrate(connection: sqlite3.Connection) -> None:
    """Apply the missing migrations. Call it in a transaction."""
    migrations.apply(Database(connection))
