"""Nothing that crewlite does takes from a process the locks that SQLite holds for it: others would delete its WAL."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest

from crewlite import CheckpointConfig, History
from crewlite.errors import CrewliteError
from crewlite.flow import flow, step
from crewlite.state import JsonProvider, SqliteProvider
from crewlite.state.providers import provider_for
from tests import children

LOCKS = Path("/proc/locks")
OTHER = """
import sys
from crewlite import CheckpointConfig
from crewlite.flow import flow
from crewlite.state import SqliteProvider

@flow(checkpoint=CheckpointConfig(location=sys.argv[1], provider=SqliteProvider()))
def small():
    return 1

small.kickoff(run_id="other")
"""


@step
def counted(number: int) -> int:
    return number


def held(path: Path) -> set[str]:
    """The locks that this process has on a file: kind, mode and range.

    The system may list one twice, if other processes take and drop locks while the list is read.
    """
    inode = f":{path.stat().st_ino}"
    rows = [line.split() for line in LOCKS.read_text().splitlines()]
    return {" ".join((*row[1:4], *row[6:])) for row in rows if row[4] == str(os.getpid()) and row[5].endswith(inode)}


def looks(location: str, elsewhere: Path):
    """What a program may do with a database that it has open, by name."""

    def history():
        with History(location, SqliteProvider()) as opened:
            opened.runs()[0].steps
            opened.run("mine")
            opened.run("mine@step:counted")
            opened.checkpoints()
            opened.doctor()
            opened.export("mine", elsewhere)

    def imported():
        with History(elsewhere.with_name("new"), make=True) as opened, contextlib.suppress(CrewliteError):
            opened.import_run(location)

    def as_json():
        with pytest.raises(CrewliteError, match="SqliteProvider"):
            JsonProvider().open(location)

    def by_itself():
        provider_for(location).open(location).close()

    def by_ref():
        with History(location) as opened:
            opened.run(location)

    return [history, imported, as_json, by_itself, by_ref]


@pytest.mark.parametrize("name", ["store.db", "store"])
def test_a_process_keeps_its_locks_and_its_wal_whatever_it_and_others_do(name, tmp_path):
    location = str(tmp_path / name)

    @flow(checkpoint=CheckpointConfig(location=location, provider=SqliteProvider()))
    def long() -> list[int]:
        done = [counted(1)]
        wal, before = Path(f"{location}-wal"), held(Path(location)) if LOCKS.exists() else set()
        file = wal.stat().st_ino
        for look in looks(location, tmp_path / "exported.json"):
            look()
            assert not LOCKS.exists() or held(Path(location)) == before, look.__name__
        children.run([sys.executable, "-c", OTHER, location], check=True)
        assert wal.stat().st_ino == file, (
            "the other process has deleted what this one has not yet moved to the database"
        )
        return [*done, counted(2)]

    assert long.kickoff(run_id="mine") == [1, 2]
    with History(location) as history:
        assert [run.run_id for run in history.runs()] == ["other", "mine"]
        assert {one.address for one in history.run("mine").steps} >= {"step:counted", "step:counted#2"}
        assert history.doctor() == []
