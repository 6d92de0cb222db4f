"""Steps and flows that fail: they are tried again, take too long, or the code handles it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from crewlite import History
from crewlite.errors import InDoubt, StepTimeout
from crewlite.events import RecoveryStartedEvent
from crewlite.flow import flow, step
from crewlite.testing import EventRecorder
from tests.flow.failing import Boom


def test_a_step_is_tried_again_and_every_attempt_is_recorded(on_disk, ran):
    @step(retries=2)
    def shaky():
        ran.append(1)
        if len(ran) < 3:
            raise Boom(f"try {len(ran)}")
        return "at last"

    @flow(checkpoint=on_disk())
    def pipeline():
        return shaky()

    with EventRecorder() as heard:
        assert pipeline.kickoff(run_id="one") == "at last"
    again = heard.of(RecoveryStartedEvent)
    assert [(e.address, e.attempt, e.error, e.failure, e.delay) for e in again] == [
        ("step:shaky", 1, "try 1", "bug", 0.0),
        ("step:shaky", 2, "try 2", "bug", 0.0),
    ]
    with History(pipeline.checkpoint.location) as history:
        attempts = history.run("one").attempts
        (view,) = [view for view in history.run("one").steps if view.address == "step:shaky"]
    assert [(a.number, a.error_type, a.message, a.final) for a in attempts] == [
        (1, "Boom", "try 1", False),
        (2, "Boom", "try 2", False),
    ]
    assert "Boom: try 1" in attempts[0].traceback
    assert len(view.attempts) == 2


def test_tries_that_were_spent_before_a_crash_stay_spent(config, ran):
    @step(retries=1)
    def shaky():
        ran.append(1)
        raise KeyboardInterrupt if len(ran) == 2 else Boom

    @flow(checkpoint=config())
    def pipeline():
        return shaky()

    with pytest.raises(RuntimeError, match="KeyboardInterrupt"):
        pipeline.kickoff(run_id="one")
    assert len(ran) == 2


def test_a_step_that_takes_too_long_is_an_error_and_may_be_tried_again(config, ran):
    @step(timeout=0.3, retries=1)
    async def slow():
        ran.append(1)
        await asyncio.sleep(0 if len(ran) == 2 else 5)
        return "in time"

    @step(timeout=0.05)
    def stuck():
        time.sleep(1)

    @flow(checkpoint=config())
    async def pipeline(wait):
        return await (stuck.submit() if wait else slow())

    assert pipeline.kickoff(False) == "in time"
    with pytest.raises(StepTimeout):
        pipeline.kickoff(True)


def test_a_flow_is_tried_again_with_what_its_steps_have_done(config, ran):
    @step
    def once(n):
        ran.append(n)
        return n

    tries = []

    @flow(checkpoint=config(), retries=2)
    def pipeline():
        tries.append(1)
        found = once(1) + once(2)
        if len(tries) < 3:
            raise Boom
        return found

    assert pipeline.kickoff() == 3
    assert (len(tries), ran) == (3, [1, 2])


@pytest.mark.parametrize("way", ["call", "submit", "map", "await", "gather"])
def test_a_failure_that_the_flow_handles_is_handled(config, way):
    @step
    def bad():
        raise Boom

    @step
    async def abad():
        raise Boom

    def handled():
        try:
            return {"call": bad, "submit": lambda: bad.submit().result(), "map": lambda: each.map([1]).result()}[way]()
        except Boom:
            return "handled"

    async def ahandled():
        try:
            return await abad.submit()
        except Boom:
            return "handled"

    async def gathered():
        (error,) = await asyncio.gather(abad.submit(), return_exceptions=True)
        return "handled" if isinstance(error, Boom) else "?"

    @step
    def each(n):
        raise Boom

    body = {"await": ahandled, "gather": gathered}.get(way, handled)
    pipeline = flow(name="pipeline", checkpoint=config())(body)
    assert pipeline.kickoff(run_id="one") == "handled"
    assert pipeline.kickoff(run_id="one") == "handled"


def test_a_flow_that_is_tried_again_keeps_what_it_has_handled(ran):
    broken = [True]

    @step
    def first():
        if len(broken) == 1:
            raise ConnectionError
        return "first"

    @step
    def last():
        broken.append(True)
        if len(broken) < 3:
            raise ConnectionError
        return "last"

    @flow(retries=1)
    def pipeline():
        try:
            found = first()
        except ConnectionError:
            found = "second"
        return found, last()

    assert pipeline.kickoff() == ("second", "last")


@pytest.mark.parametrize("ends", ["raises", "exceeds its time"])
def test_a_flow_that_is_tried_again_makes_no_call_again_that_may_happen_only_once(config, ends):
    made, over = [], threading.Event()

    @step(effect="once", timeout=0.3 if ends == "exceeds its time" else None)
    def pay():
        made.append(1)
        if ends == "raises":
            raise ConnectionError("no answer")
        over.wait(20)

    pipeline = flow(name="pipeline", checkpoint=config(), retries=2)(lambda: pay())
    for _ in range(2):
        with pytest.raises(InDoubt, match="step pay"):
            pipeline.kickoff(run_id="one")
    over.set()
    assert made == [1]
    assert pipeline.kickoff(run_id="one", answers={"step:pay": "paid by hand"}) == "paid by hand"
