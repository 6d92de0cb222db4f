"""What is left behind when its time is up says nothing more."""

from __future__ import annotations

import asyncio
import gc

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
