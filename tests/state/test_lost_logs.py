"""The files beside a database are deleted while several processes use it: none of them loses what another has stored."""

from __future__ import annotations

import pickle
import sys

import pytest

from crewlite import History
from crewlite.testing.bench import Branch
from tests import children

pytestmark = children.posix  # Windows does not delete a file that is open

WRITER = """
import pickle, sys
from crewlite.state import SqliteProvider

store = SqliteProvider().open(sys.argv[1])
while commit := pickle.load(sys.stdin.buffer):
    store.append([commit])
    print("stored", flush=True)
store.close()
print("closed", flush=True)
"""


class Writer:
    """A process that writes a run of its own, one commit at a time."""

    def __init__(self, location, name):
        self.branch = Branch(name)
        pipes = {"stdin": children.PIPE, "stdout": children.PIPE}
        self._child = children.Child([sys.executable, "-c", WRITER, str(location)], **pipes)

    def store(self):
        assert self._told(self.branch.add(2).commit()) == b"stored\n"

    def close(self):
        assert self._told(None) == b"closed\n"

    def _told(self, commit):
        pickle.dump(commit, self._child.stdin)
        self._child.stdin.flush()
        return self._child.stdout.readline()


@pytest.fixture
def location(tmp_path):
    return tmp_path / "runs.db"


@pytest.fixture
def writers(location):
    """Two processes that have stored something, and have the database open."""
    both = [Writer(location, name) for name in ("one", "two")]
    for writer in both:
        writer.store()
    return both


def stored(location):
    with History(location) as history:
        assert history.doctor() == []
        return {run.run_id: len(run.steps) for run in history.runs()}


@pytest.mark.parametrize("goes_on", [False, True], ids=["ends", "goes on"])
@pytest.mark.parametrize("gone", [("-wal",), ("-shm",), ("-wal", "-shm")], ids="+".join)
def test_one_that_has_noticed_nothing_yet_takes_nothing_along_that_others_have_stored(location, writers, gone, goes_on):
    one, two = writers
    for name in gone:
        location.with_name(location.name + name).unlink()
    two.store()
    two.store()
    two.close()
    if goes_on:
        one.store()
    one.close()
    assert stored(location) == {"one": 3 if goes_on else 1, "two": 5}


@pytest.mark.parametrize("goes_on", [False, True], ids=["ends", "goes on"])
def test_what_a_newcomer_stores_outlives_one_that_was_there_before(location, writers, goes_on):
    location.with_name(f"{location.name}-shm").unlink()
    three = Writer(location, "three")
    three.store()
    three.close()
    for writer in writers:
        if goes_on:
            writer.store()
        writer.close()
    steps = 3 if goes_on else 1
    assert stored(location) == {"one": steps, "two": steps, "three": 1}


@pytest.mark.parametrize("gone", [("-wal",), ("-shm",), ("-wal", "-shm")], ids="+".join)
def test_one_that_only_looked_takes_nothing_along(location, writers, gone):
    with History(location) as history:
        assert len(history.runs()) == 2
        for name in gone:
            location.with_name(location.name + name).unlink()
        for writer in writers:
            writer.store()
            writer.close()
    assert stored(location) == {"one": 3, "two": 3}
