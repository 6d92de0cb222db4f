"""`@step(cache=...)`: a cache that fails is none, and what becomes of what is kept."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import tests.flow.isolated_steps as far
from crewlite import CheckpointConfig, History
from crewlite.encoding import codec
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider
from crewlite.system import disk
from tests import children


def kickoff(config, work, *args, **options):
    return flow(name="pipeline", checkpoint=config)(work).kickoff(*args, **options)


def warnings_of(caplog, text):
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


# a cache that fails is none


def entry_of(location):
    (path,) = Path(location, "cache").glob("*.json")
    return path


def test_an_entry_is_a_readable_file_of_its_owner_alone(tmp_path):
    @step(cache=True, name="tides")
    def fetch(n):
        return {"high": "at noon"}

    kickoff(CheckpointConfig(location="store"), lambda: fetch(1), run_id="one")
    path = entry_of("store")
    said = json.loads(path.read_text())
    assert (said["key"], said["step"], said["from"]) == (path.stem, "tides", "one/main@step:tides")
    assert (said["schema"], said["value"]) == (1, {"high": "at noon"})
    assert os.name == "nt" or (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def sealed(said):
    del said["check"]
    return said | {"check": codec.digest(said)}


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda said: said | {"value": 8}, "changed after it was written"),
        (lambda said: said | {"at": "yesterday"}, "changed after it was written"),
        (lambda said: {}, "changed after it was written"),
        (lambda said: sealed(said | {"from": 5}), "changed after it was written"),
        (lambda said: sealed(said | {"at": "noon"}), "Invalid isoformat"),
        (lambda said: sealed(said | {"value": {"$": "of", "v": ""}}), "unknown tag"),
        (lambda said: [], "not a JSON object"),
        (lambda said: said | {"schema": 2}, "schema 2"),
    ],
    ids=["value", "time", "empty", "origin", "no time", "reference", "list", "newer"],
)
def test_what_was_changed_after_it_was_written_is_a_miss(damage, told, ran, caplog):
    @step(cache=timedelta(hours=1))
    def fetch(n):
        ran.append(n)
        return 7

    config = CheckpointConfig(location="store")
    kickoff(config, lambda: fetch(1))
    path = entry_of("store")
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    assert kickoff(config, lambda: [fetch(1), fetch(1)]) == [7, 7]
    assert ran == [1, 1]  # and what it came to took the place of the damage
    assert len(warnings_of(caplog, told)) == 1


def test_half_an_entry_and_that_of_another_question_are_misses(ran):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return n

    config = CheckpointConfig(location="store")
    kickoff(config, lambda: fetch(1))
    one = entry_of("store")
    whole = one.read_bytes()
    one.unlink()
    kickoff(config, lambda: fetch(2))
    other = entry_of("store")
    for data in (whole, other.read_bytes()[:-20], b""):
        other.write_bytes(data)
        assert kickoff(config, lambda: fetch(2)) == 2
    assert ran == [1, 2, 2, 2, 2]


def test_a_row_that_was_changed_is_a_miss(ran, caplog):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return n

    config = CheckpointConfig(location="store.db")
    kickoff(config, lambda: fetch(1))
    for data in (b"{}", "text", None, 5):
        with sqlite3.connect("store.db") as db:
            db.execute("UPDATE cache SET data=?", (data,))
        db.close()
        assert kickoff(config, lambda: fetch(1)) == 1
    assert len(ran) == 5


def test_a_result_that_cannot_be_kept_costs_a_warning_and_not_the_run(on_disk, ran, caplog):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return n

    def full(operation):
        if f"{os.sep}cache{os.sep}" in operation.path or b"INTO cache" in operation.data:
            raise OSError("no space left")

    pipeline = flow(name="pipeline", checkpoint=on_disk(on_save_error="raise"))(lambda: [fetch(1), fetch(2)])
    with disk.watched(full):
        handle = pipeline.submit()
        assert handle.result(10) == [1, 2]
    assert len(warnings_of(caplog, "no space left")) == 1
    kickoff(on_disk(), lambda: fetch(1))
    assert ran == [1, 2, 1]


class Before:
    """A provider of somebody whose stores keep no results for other runs."""

    name = "before"

    def __init__(self):
        self._inner = InMemoryProvider()

    def open(self, location):
        return _BeforeStore(self._inner.open(location))


class _BeforeStore:
    def __init__(self, inner):
        self._inner, self.location = inner, inner.location

    def __getattr__(self, name):
        if name == "results":
            raise AttributeError("this store has no results")
        return getattr(self._inner, name)


def test_a_store_without_a_result_cache_costs_a_warning_that_says_what_it_lacks(ran, caplog):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return n

    assert kickoff(CheckpointConfig(location="store", provider=Before()), lambda: [fetch(1), fetch(1)]) == [1, 1]
    assert ran == [1, 1]
    (warning,) = warnings_of(caplog, "cache=")
    assert "_BeforeStore has no `results`, a ResultCache" in str(warning)


# what becomes of it


def test_the_doctor_leaves_it_alone_and_clears_what_a_killed_process_left(on_disk, ran):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return n

    kickoff(on_disk(), lambda: fetch(1))
    location = on_disk().location
    with History(location) as history:
        assert history.doctor(repair=True) == []
    kickoff(on_disk(), lambda: fetch(1))
    assert ran == [1]
    if os.path.isdir(location):
        left = Path(location, "cache", f".{entry_of(location).name}.0123456789ab.tmp")
        left.write_bytes(b"{")
        os.utime(left, (0, 0))
        with History(location) as history:
            assert [finding.what for finding in history.doctor(repair=True)] == ["stray_file"]
        assert not left.exists()


def test_it_outlives_its_run_until_it_is_pruned(config, ran):
    @step(cache=True)
    def fetch(n):
        ran.append(n)
        return n

    @flow(checkpoint=config())
    def pipeline():
        return fetch(1)

    pipeline.kickoff(run_id="one")
    with History(pipeline.checkpoint.location, pipeline.checkpoint.provider) as history:
        history.delete("one")
        assert history.prune(older_than=timedelta(days=1)).results == 0
        assert history.prune(keep_last=1).results == 0
    pipeline.kickoff(run_id="two")
    assert ran == [1]
    with History(pipeline.checkpoint.location, pipeline.checkpoint.provider) as history:
        assert history.prune(older_than=timedelta(0), dry_run=True).results == 1
        assert history.prune(older_than=timedelta(0)).results == 1
    pipeline.kickoff(run_id="three")
    assert ran == [1, 1]


def test_processes_that_come_to_it_at_once_leave_one_whole_result(on_disk, program, tmp_path):
    source = f"""
        import os, sys, time
        from crewlite import CheckpointConfig
        from crewlite.flow import flow, step
        ran = []

        @step(cache=True)
        def fetch(n):
            ran.append(n)
            open(f"here-{{os.getpid()}}", "x").close()
            while len([name for name in os.listdir() if name.startswith("here-")]) < 2:
                time.sleep(0.005)
            return os.getpid()

        if __name__ == "program":
            pipeline = flow(checkpoint=CheckpointConfig(location={on_disk().location!r}))(lambda: fetch(1))
    """
    module = program(program=source)
    root = Path(module.__file__).parent
    work = "import program; program.flow(name='p', checkpoint=program.pipeline.checkpoint)(lambda: program.fetch(1))"
    both = [
        children.Child([sys.executable, "-c", f"{work}.kickoff()"], env={**os.environ, "PYTHONPATH": _path(root)})
        for _ in range(2)
    ]
    assert [one.wait() for one in both] == [0, 0]
    assert kickoff(on_disk(), lambda: module.fetch(1)) in [one.pid for one in both]
    assert module.ran == []


def _path(root):
    return os.pathsep.join(
        [str(root), *filter(None, [os.environ.get("PYTHONPATH"), str(Path(far.__file__).parents[2])])]
    )
