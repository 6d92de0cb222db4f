"""What is left behind when its time is up says nothing more."""

from __future__ import annotations

import asyncio
import gc
from contextvars import ContextVar

import pytest

from crewlite import background
from crewlite.errors import StepTimeout


def test_work_that_was_left_behind_and_fails_later_is_not_complained_of(caplog):
    async def stubborn():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
        raise KeyError("too late to be heard")

    async def waits():
        with pytest.raises(StepTimeout):
            await background.within(stubborn(), 0.01, "the work")
        await asyncio.sleep(0.6)
        gc.collect()

    asyncio.run(waits())
    assert "never retrieved" not in caplog.text


def test_work_whose_time_is_up_before_it_begins_is_not_complained_of():
    async def never():
        raise AssertionError("it has no time")

    async def waits():
        with pytest.raises(StepTimeout):
            await background.within(never(), 1e-9, "the work")
        gc.collect()

    asyncio.run(waits())


told = ContextVar("told", default="nothing")


def test_work_in_its_own_context_behaves_like_a_task():
    async def works(fails):
        told.set("inside")
        await asyncio.sleep(0)
        assert told.get() == "inside"
        if fails:
            raise LookupError("of the work")
        return "done"

    async def sleeps():
        told.set("asleep")
        try:
            await asyncio.sleep(60)
        finally:
            ends.append(told.get())

    async def all_of_them():
        assert await background.in_own_context(works(fails=False)) == "done"
        with pytest.raises(LookupError, match="of the work"):
            await background.in_own_context(works(fails=True))
        asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)
        with pytest.raises(asyncio.CancelledError):
            await background.in_own_context(sleeps())
        assert told.get() == "nothing"

    ends = []
    asyncio.run(all_of_them())
    assert ends == ["asleep"]
