"""A run of `submit` that fails is logged, unless somebody asks its handle how it has ended."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys

import pytest

from crewlite import CheckpointConfig
from crewlite.errors import ConfigError, RunCancelled, Suspended
from crewlite.flow import ask, flow, step
from crewlite.state import InMemoryProvider
from tests import children


@step
def fail():
    raise ValueError("boom")


@flow(checkpoint=True)
def failing():
    fail()


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.ERROR, "crewlite.run")
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_failure_that_nobody_asks_for_is_logged_once(told):
    failing.submit(run_id="one")
    children.until(told)
    assert told() == [
        "Run 'one' of flow 'failing' failed, and nobody has asked its handle for the result: ValueError('boom')"
    ]


def test_so_is_that_of_a_run_whose_code_refers_to_its_handle(told):
    def begin():
        kept = {}

        @flow(checkpoint=True)
        def keeping():
            raise ValueError(len(kept))

        kept["handle"] = keeping.submit(run_id="one")

    def told_once_collected():
        gc.collect()
        return told()

    begin()
    children.until(told_once_collected)


def test_so_is_that_of_a_stream_which_nobody_reads(told):
    failing.stream(run_id="one")
    children.until(told)


@pytest.mark.parametrize("how", ["result", "await", "status", "read"])
def test_one_that_somebody_asks_for_is_not(how, told):
    if how == "read":
        with pytest.raises(ValueError, match="boom"):
            list(failing.stream())
    else:
        handle = failing.submit()
        if how == "result":
            with pytest.raises(ValueError, match="boom"):
                handle.result()
        elif how == "await":
            with pytest.raises(ValueError, match="boom"):
                asyncio.run(awaited(handle))
        else:
            children.until(lambda: handle.status == "failed")
        del handle
    assert told() == []


async def awaited(handle):
    return await handle


def test_nor_one_that_submit_itself_has_refused(told):
    with pytest.raises(ConfigError):
        failing.submit(run_id="../x")
    assert told() == []


def test_waiting_for_a_person_and_being_cancelled_are_no_failures(told):
    @flow(checkpoint=CheckpointConfig(location="here", provider=InMemoryProvider()))
    def asking():
        return ask("Really?")

    ended = []
    for cancels in (False, True):
        handle = asking.submit(run_id=f"run-{cancels}")
        handle.when_ended(lambda: ended.append(True))
        if cancels:
            handle.cancel()
        del handle
    children.until(lambda: len(ended) == 2)
    assert told() == []
    with pytest.raises((Suspended, RunCancelled)):
        asking.kickoff(run_id="run-False")


KEPT = """
import asyncio, os, sys, time
from crewlite import CheckpointConfig
from crewlite.flow import flow, step

@step
def fail():
    open("fails", "w").close()
    while not os.path.exists("goes on"):
        time.sleep(0.01)
    raise ValueError("boom")

handle = flow(name="failing", checkpoint=CheckpointConfig(location="runs"))(lambda: fail()).submit(run_id="one")
while not os.path.exists("fails"):
    time.sleep(0.01)
asyncio.kept = handle
if sys.argv[1] == "cancelled":
    handle.cancel()
open("goes on", "w").close()
while handle.at_work:
    time.sleep(0.01)
"""


@pytest.mark.parametrize(("how", "line"), [("failed", "nobody has asked its handle"), ("cancelled", "")])
def test_the_end_of_the_program_tells_of_a_handle_that_outlives_the_modules(how, line, tmp_path):
    """At its deletion the modules of crewlite have lost their names, so a `__del__` would fail."""
    said = {"stderr": children.PIPE, "text": True, "check": True}
    done = children.run([sys.executable, "-c", KEPT, how], cwd=tmp_path, **said)
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == bool(line)
