"""A wait that ends before what it waits for leaves nothing behind in the log, however the rest of the work ends."""

import asyncio
import contextlib
import gc
import sys
import threading

import pytest

from crewlite import CheckpointConfig
from crewlite.errors import StoreUnusable
from crewlite.flow import flow, step
from crewlite.state.providers.json import JsonProvider, JsonStore


@pytest.fixture
def told(caplog):
    """What asyncio has logged by now, also about futures that are gone."""

    def look():
        gc.collect()
        return [record.getMessage() for record in caplog.records if record.name == "asyncio"]

    return look


async def given_up(waited):
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(waited, 0.01)


def test_a_handle_that_was_awaited_for_too_short_a_time_is_awaited_again(told):
    ended = threading.Event()

    @flow
    async def fails():
        await asyncio.to_thread(ended.wait, 60)
        raise ValueError("no")

    async def program():
        handle = fails.submit()
        await given_up(handle)
        ended.set()
        with pytest.raises(ValueError, match="no"):
            await handle

    asyncio.run(program())
    assert told() == []


def test_a_step_that_another_loop_awaited_for_too_short_a_time_is_awaited_again(told):
    ended = threading.Event()

    @step
    async def fails():
        await asyncio.to_thread(ended.wait, 60)
        raise ValueError("no")

    @flow
    async def waits():
        future = fails.submit()

        async def elsewhere():
            await given_up(future)
            ended.set()
            with pytest.raises(ValueError, match="no"):
                await future

        await asyncio.to_thread(lambda: asyncio.run(elsewhere()))

    waits.kickoff()
    assert told() == []


class Slow(JsonProvider):
    """Opens and writes in turn with the test: `begun` is set when it begins, and it goes on when `go_on` is set."""

    def __init__(self):
        self.begun, self.go_on = threading.Event(), threading.Event()

    def holds_up(self):
        self.begun.set()
        assert self.go_on.wait(60)


def test_a_store_that_cannot_be_opened_is_no_news_to_a_kickoff_that_was_cancelled(told, tmp_path):
    class Unusable(Slow):
        def open(self, location):
            self.holds_up()
            raise StoreUnusable(location, "is broken")

    provider = Unusable()

    @flow(checkpoint=CheckpointConfig(location=str(tmp_path), provider=provider))
    async def saved():
        """Never begins."""

    async def program():
        task = asyncio.create_task(saved.akickoff())
        await asyncio.to_thread(provider.begun.wait, 60)
        task.cancel()
        await asyncio.sleep(0)
        provider.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(program())
    assert told() == []


def test_a_loop_may_be_closed_while_a_run_begins(told, tmp_path, monkeypatch):
    class Store(JsonStore):
        def append(self, commits):
            provider.holds_up()
            super().append(commits)

    class Writes(Slow):
        def open(self, location):
            return Store(tmp_path)

    provider = Writes()

    @flow(checkpoint=CheckpointConfig(location=str(tmp_path), provider=provider))
    async def saved():
        return "done"

    unheard = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: unheard.append(repr(one.exc_value)))
    loop = asyncio.new_event_loop()
    task = loop.create_task(saved.akickoff(run_id="one"))
    loop.run_until_complete(asyncio.wait_for(asyncio.to_thread(provider.begun.wait), 60))
    loop.close()
    asyncio.set_event_loop(None)
    task._log_destroy_pending = False  # what the test does, and asyncio would tell
    del task, loop
    gc.collect()
    provider.go_on.set()
    assert asyncio.run(saved.akickoff(run_id="one", wait=True)) == "done"
    assert (unheard, told()) == ([], [])
