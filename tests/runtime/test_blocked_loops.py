"""Code that blocks an event loop for which another thread waits is named in a warning: else a program hangs unexplained."""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from crewlite import bound
from crewlite.concurrency import blocked_loops
from crewlite.flow import flow, step


@pytest.fixture
def warned(monkeypatch, caplog):
    """An event that is set by the warning, which comes at the second look."""
    monkeypatch.setattr(blocked_loops, "_PATIENCE", 0.0)
    monkeypatch.setattr(blocked_loops, "_warned_about", set())
    event = threading.Event()
    caplog.set_level(logging.WARNING)
    caplog.handler.addFilter(lambda record: event.set() or True)
    return event


@step
def double(number: int) -> int:
    return 2 * number


doubled = flow(name="doubled")(double)


@pytest.mark.parametrize("asked", ["a step in a thread", "a step on a loop of one's own", "a kickoff in a thread"])
def test_a_coroutine_that_blocks_the_loop_of_threads_it_waits_for_is_named(warned, caplog, asked):
    pool = ThreadPoolExecutor(1)

    @flow
    async def outer():
        later = pool.submit(doubled.kickoff if asked.startswith("a kickoff") else bound(double), 2)
        assert warned.wait(60)  # as the end of `with pool` would, but not for ever
        return await asyncio.wrap_future(later)

    result = asyncio.run(outer.akickoff()) if asked.endswith("own") else outer.kickoff()
    assert result == 4
    said = [record.getMessage() for record in caplog.records]  # with no patience, it may be told of more
    assert any(f"{__file__}:" in one and "outer has blocked an event loop for" in one for one in said)


def test_a_callback_that_blocks_the_loop_is_named_too(warned, caplog):
    pool = ThreadPoolExecutor(1)

    def blocks():
        assert warned.wait(60)

    @flow
    async def outer():
        later = pool.submit(bound(double), 2)
        asyncio.get_running_loop().call_soon(blocks)
        return await asyncio.wrap_future(later)

    assert asyncio.run(outer.akickoff()) == 4
    assert any("blocks has blocked an event loop for" in record.getMessage() for record in caplog.records)
