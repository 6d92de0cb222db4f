"""The doctor: says what at a location is not as it was written, and repairs what can be.

A repair never deletes what is damaged. It is set aside, and the run is what is left of it: sound, up to its newest
sound commit. Cut in the middle, it can be done again.
"""

from __future__ import annotations

from crewlite.errors import JournalCorrupt, SchemaTooNew
from crewlite.state.finding import Finding
from crewlite.state.lineage import whole
from crewlite.state.providers import Store
from crewlite.state.providers.json import JsonStore
from crewlite.state.providers.json_doctor import JsonDoctor
from crewlite.state.providers.sqlite import SqliteStore
from crewlite.state.providers.sqlite_doctor import SqliteDoctor

__all__ = ["Finding", "doctor"]


def doctor(store: Store, *, repair: bool = False) -> list[Finding]:
    """What is found broken in a store; [] if all is well. A branch that somebody is at work on is left alone.

    Raises OSError if the store cannot be read, or a repair cannot be written.
    """
    if isinstance(store, JsonStore):
        return JsonDoctor(store, repair=repair).findings()
    if isinstance(store, SqliteStore):
        return SqliteDoctor(store, repair=repair).findings()
    return [finding for info in store.branches() if (finding := _told(store, info.run_id, info.branch))]


def _told(store: Store, run_id: str, branch: str) -> Finding | None:
    """What a store of somebody else says of a branch itself."""
    try:
        whole(store, run_id, branch)
    except SchemaTooNew as newer:
        return Finding("newer_schema", newer.where, str(newer), "Upgrade crewlite.")
    except JournalCorrupt as damage:
        remedy = "Bring back a copy that is whole: how this store is repaired only its provider knows."
        return Finding("damaged_journal", damage.where, str(damage), remedy, damage.sound)
    return None
