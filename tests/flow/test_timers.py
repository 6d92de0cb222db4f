"""Timers, which keep their end over all kickoffs of a run."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from crewlite import CheckpointConfig, History
from crewlite.encoding import codec
from crewlite.errors import (
    ConfigError,
    NonDeterminism,
    RunCancelled,
    StepTimeout,
)
from crewlite.flow import ask, flow, sleep_for, sleep_until, step, timer
from crewlite.state import InMemoryProvider
from tests import children
from tests.cuts import RUN, entries_of
from tests.flow.failing import Boom


def test_a_timer_waits_once_over_all_lives(stored, monkeypatch):
    broken, until = [True], []
    wait = timer._wait
    monkeypatch.setattr(timer, "_wait", lambda *how: until.append(how[-1]) or wait(*how))

    @flow(checkpoint=stored())
    def pipeline():
        sleep_for(1)
        if broken:
            raise Boom
        return "rested"

    began = time.monotonic()
    with pytest.raises(Boom):
        pipeline.kickoff(run_id="one")
    assert time.monotonic() - began >= 1
    broken.clear()
    assert pipeline.kickoff(run_id="one") == "rested"
    assert until[0] == until[1], "both lives wait for the same moment"


@pytest.mark.parametrize("far", [lambda: sleep_for(1e12), lambda: sleep_until(datetime.max.replace(tzinfo=UTC))])
def test_a_time_that_no_clock_can_tell_is_waited_for_as_one_far_away(far, memory):
    @flow(checkpoint=memory(), timeout=1e18)
    def patient(waits):
        if waits:
            far()
        return ask("Anybody?", name="any", timeout=1e12)

    assert patient.kickoff(False, run_id="answered", answers={"human:any": "me"}) == "me"
    waiting = patient.submit(True, run_id="waits")
    with pytest.raises(TimeoutError):
        waiting.result(0.2)
    waiting.cancel()
    with pytest.raises(RunCancelled):
        waiting.result(children.PATIENCE)


def test_a_timer_is_awaited_on_a_loop_and_is_plain_outside_a_run():
    async def nap():
        await sleep_for(0.01)
        return "rested"

    assert flow(nap).kickoff() == "rested"
    assert asyncio.run(nap()) == "rested"
    assert sleep_for(0) is None
    assert sleep_for(-1) is None
    assert sleep_for(timedelta(milliseconds=1)) is None
    for wrong in (float("nan"), True, "1"):
        with pytest.raises(ConfigError, match="wanted a number of seconds, or a timedelta"):
            sleep_for(wrong)


@pytest.mark.parametrize("cut_by", ["cancel", "timeout"])
def test_a_timer_of_a_step_that_was_cut_keeps_no_thread(cut_by, memory):
    ended = threading.Event()

    @step(timeout=0.2 if cut_by == "timeout" else None)
    def nap():
        try:
            sleep_for(1000)
        finally:
            ended.set()

    @flow(checkpoint=memory())
    def naps():
        nap()

    handle = naps.submit(run_id="naps")
    if cut_by == "cancel":
        with pytest.raises(TimeoutError):
            handle.result(0.2)
        handle.cancel()
    with pytest.raises((RunCancelled, StepTimeout)):
        handle.result(children.PATIENCE)
    assert ended.wait(children.PATIENCE), "the thread of the step sleeps on"


def test_a_timer_asks_what_earlier_releases_have_recorded():
    place = CheckpointConfig(location="here", provider=InMemoryProvider())
    times = [1e-6, 0, 0.0, -0.0]
    flow(lambda: [sleep_for(one) for one in times], name="f", checkpoint=place).kickoff(run_id=RUN)
    with History(place.location, place.provider) as history:
        addresses = [one.address for one in history.run(RUN).steps if one.kind == "timer"]
    steps = {one["address"]: one for entry in entries_of(place) for one in entry.commit.get("steps", ())}
    asked = [codec.digest(["timer", [one]]) for one in times]
    assert [steps[at]["fingerprint"] for at in addresses] == asked


def test_a_wait_until_a_moment_is_the_same_wait_in_every_life(stored, monkeypatch):
    """The moment is given in another time zone by the later life."""
    broken, until = [True], []
    monkeypatch.setattr(timer, "_wait", lambda *how: until.append(how[-1]))

    @flow(checkpoint=stored())
    def pipeline(moment):
        sleep_until(moment if broken else moment.astimezone(timezone(timedelta(hours=5))))
        if broken:
            raise Boom
        return "rested"

    moment = datetime.now(UTC) + timedelta(days=30)
    with pytest.raises(Boom):
        pipeline.kickoff(moment, run_id="one")
    broken.clear()
    assert pipeline.kickoff(run_id="one") == "rested"
    assert until == [moment, moment]


def test_a_moment_that_has_passed_is_no_wait():
    past = datetime(2000, 1, 1, tzinfo=UTC)
    assert sleep_until(past) is None
    assert flow(sleep_until).kickoff(past) is None
    with pytest.raises(ConfigError, match="wanted a datetime with a time zone"):
        sleep_until(past.replace(tzinfo=None))


def test_a_time_that_is_computed_anew_in_each_life_is_told(memory):
    left = [0.2, -3600.0]

    @flow(checkpoint=memory())
    def pipeline():
        sleep_for(left.pop(0))
        if left:
            raise Boom

    with pytest.raises(Boom):
        pipeline.kickoff(run_id="one")
    with pytest.raises(NonDeterminism, match=r"timer#1 .* \(or sleep_until\)"):
        pipeline.kickoff(run_id="one")
