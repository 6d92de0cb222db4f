"""What bounds a flow: a deadline over all its lives, and a policy for the failures of its steps."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from datetime import timedelta

import pytest

from crewlite import FailurePolicy, History
from crewlite.errors import ConfigError, DeadlineExceeded, StepTimeout, Suspended
from crewlite.events import FlowFailedEvent, RecoveryStartedEvent
from crewlite.flow import ask, flow, step
from crewlite.recovery import Rule
from crewlite.testing import EventRecorder
from tests import children
from tests.flow.failing import Boom

# deadlines


@pytest.mark.parametrize("config", ["sqlite"], indirect=True)
@pytest.mark.parametrize("kind", ["plain", "awaited"])
def test_when_its_time_is_up_a_flow_fails_and_what_it_began_is_cut(config, ran, kind):
    slow = [True]

    @step
    async def work(n):
        ran.append(n)
        try:
            await asyncio.sleep(60 if n == 2 and slow else 0)
        except asyncio.CancelledError:
            ran.append("cut")
            raise
        ran.append("ran on")
        return n

    def plain():
        return work.submit(1).result(), work.submit(2).result()

    async def awaited():
        return await work(1), await work(2)

    def pipeline(timeout):
        return flow(name="pipeline", checkpoint=config(), timeout=timeout, retries=3)(
            {"plain": plain, "awaited": awaited}[kind]
        )

    with EventRecorder() as heard, pytest.raises(DeadlineExceeded, match=r"flow pipeline did not end within 2\.5 s"):
        pipeline(timedelta(seconds=2.5)).kickoff(run_id="one")
    assert [event.error_type for event in heard.of(FlowFailedEvent)] == ["DeadlineExceeded"]
    assert ran == [1, "ran on", 2, "cut"]
    with pytest.raises(DeadlineExceeded):
        pipeline(2.5).kickoff(run_id="one")
    assert ran == [1, "ran on", 2, "cut"], "a resume after the deadline fails at once"
    with History(config().location, config().provider) as history:
        run = history.run("one")
        assert run.status == "failed"
        assert [(a.address, a.error_type, a.final) for a in run.attempts] == [("", "DeadlineExceeded", True)] * 2
    slow.clear()
    assert pipeline(60).kickoff(run_id="one") == (1, 2)
    assert ran == [1, "ran on", 2, "cut", 2, "ran on"]


def test_a_deadline_is_counted_over_the_lives_of_a_run_and_anew_on_a_fork(config):
    broken = [True]

    @step
    def one():
        return 1

    @flow(checkpoint=config(), timeout=2)
    def pipeline():
        one()
        if broken:
            raise Boom
        return "done"

    with pytest.raises(Boom):
        pipeline.kickoff(run_id="one")
    broken.clear()
    time.sleep(2)
    with pytest.raises(DeadlineExceeded):
        pipeline.kickoff(run_id="one")
    assert pipeline.fork("one").kickoff() == "done"


@pytest.mark.parametrize("config", ["memory"], indirect=True)
def test_a_run_that_has_failed_waits_for_nobody_and_its_fork_has_not_failed(config):
    def patient(timeout):
        return flow(name="patient", checkpoint=config(), timeout=timeout)(lambda: ask("Publish?"))

    with pytest.raises(Suspended):
        patient(60).kickoff(run_id="one")
    with pytest.raises(DeadlineExceeded):
        patient(0.0001).kickoff(run_id="one")
    patient(60).fork("one", branch="again")
    with History(config().location, config().provider) as history:
        assert history.run("one").status == "failed"
        assert history.run("one/again").status == "waiting"


@pytest.mark.parametrize("config", ["memory"], indirect=True)
def test_a_flow_in_a_flow_has_a_deadline_of_its_own_which_a_longer_one_takes_back(config):
    limit, waits = [0.1], [60]

    @step
    async def slow():
        await asyncio.sleep(waits[0])

    async def work():
        await slow()
        return "in time"

    @flow(checkpoint=config())
    async def outer():
        return await flow(name="inner", timeout=limit[0])(work).akickoff()

    with pytest.raises(DeadlineExceeded, match="flow inner"):
        outer.kickoff(run_id="one")
    limit[:], waits[:] = [60], [0]
    assert outer.kickoff(run_id="one") == "in time"


KILLED = """
import os, time
from crewlite import CheckpointConfig
from crewlite.flow import flow, step

@step
def work(n):
    return n

@flow(checkpoint=CheckpointConfig(location=LOCATION), timeout=TIMEOUT)
def pipeline():
    total = work(1) + work(2)
    if not os.path.exists("go"):
        os.kill(os.getpid(), 9)
    return total
"""


@pytest.mark.skipif(os.name == "nt", reason="kills itself by a POSIX signal")
def test_a_killed_run_is_late_when_its_deadline_has_passed_meanwhile(on_disk, tmp_path):
    def program(timeout):
        return KILLED.replace("LOCATION", repr(on_disk().location)).replace("TIMEOUT", str(timeout))

    command = [sys.executable, "-c", f"{program(60)}\npipeline.kickoff(run_id='one')"]
    assert children.run(command, cwd=tmp_path).returncode == -9
    (tmp_path / "go").touch()
    for timeout in (0.01, 60):
        found: dict = {}
        exec(program(timeout), found)
        if timeout == 60:
            assert found["pipeline"].kickoff(run_id="one") == 3
        else:
            with pytest.raises(DeadlineExceeded):
                found["pipeline"].kickoff(run_id="one")


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), "soon", True, timedelta(0)])
def test_a_deadline_that_is_none_is_told_when_the_function_is_decorated(wrong):
    with pytest.raises(ConfigError, match="wanted seconds or a timedelta, more than 0"):
        flow(timeout=wrong)(lambda: None)


@pytest.mark.parametrize("config", ["memory"], indirect=True)
def test_a_thread_that_outlives_its_step_begins_nothing_more(config, ran):
    go, over = threading.Event(), threading.Event()

    @step
    def late():
        ran.append("late")

    @step(timeout=0.05)
    def slow():
        go.wait(20)
        try:
            late()
        finally:
            over.set()

    @flow(checkpoint=config())
    def pipeline():
        with pytest.raises(StepTimeout):
            slow()
        go.set()
        assert over.wait(20)

    pipeline.kickoff(run_id="one")
    assert ran == []
    with History(config().location, config().provider) as history:
        assert [found.address for found in history.run("one").steps] == ["", "step:slow"]


@pytest.mark.parametrize("config", ["memory"], indirect=True)
def test_a_task_that_outlives_its_step_is_cut_at_its_step_and_begins_nothing_more(config, ran):
    tasks = []

    @step
    async def work(name, go):
        ran.append(name)
        await go.wait()
        ran.append("ran on")

    @step(timeout=0.3)
    async def slow():
        go = asyncio.Event()

        async def between():
            await go.wait()
            await work("late", go)

        tasks.extend([asyncio.ensure_future(work("in time", go)), asyncio.ensure_future(between())])
        tasks.append(go)
        await asyncio.sleep(20)

    @flow(checkpoint=config())
    async def pipeline():
        with pytest.raises(StepTimeout):
            await slow()
        tasks.pop().set()
        await asyncio.wait(tasks)

    pipeline.kickoff()
    assert ran == ["in time"]
    assert all(task.cancelled() for task in tasks)


# policies

TWICE = FailurePolicy((Rule(frozenset({"bug"}), retries=2, base=0), Rule(frozenset({"timeout"}), retries=1, base=0)))


def test_a_policy_decides_for_steps_that_have_no_retries_of_their_own(config, ran):
    @step
    def inherits():
        ran.append("inherits")
        raise Boom

    @step(retries=1)
    def own():
        ran.append("own")
        raise Boom

    @step(retries=0)
    def never():
        ran.append("never")
        raise Boom

    @step(timeout=0.2)
    async def slow():
        ran.append("slow")
        await asyncio.sleep(5)

    @flow(checkpoint=config(), failure_policy=TWICE)
    async def pipeline():
        for each in (inherits, own, never):
            with pytest.raises(Boom):
                await each.submit()
        with pytest.raises(StepTimeout):
            await slow()
        raise Boom

    with EventRecorder() as heard, pytest.raises(Boom):
        pipeline.kickoff()
    assert ran == ["inherits"] * 3 + ["own"] * 2 + ["never"] + ["slow"] * 2
    assert [(e.name, e.failure) for e in heard.of(RecoveryStartedEvent)] == [
        ("inherits", "bug"),
        ("inherits", "bug"),
        ("own", "bug"),
        ("slow", "timeout"),
    ]


def test_steps_and_flows_inside_inherit_and_the_innermost_decides(config, ran):
    @step
    def inner():
        ran.append("inner")
        raise Boom

    @step
    def outer():
        ran.append("outer")
        return inner()

    @flow
    def part():
        return outer()

    @flow(failure_policy=FailurePolicy())
    def gives_up():
        return inner()

    @flow(checkpoint=config(), failure_policy=TWICE)
    def pipeline():
        for each in (outer, part.kickoff, gives_up.kickoff):
            with pytest.raises(Boom):
                each()

    pipeline.kickoff()
    assert ran == (["outer"] + ["inner"] * 3) * 2 + ["inner"]


def test_tries_that_a_policy_gave_stay_spent_over_a_restart(on_disk, ran):
    broken = [True]

    @step
    def shaky():
        ran.append(1)
        if len(ran) == 2 and broken:
            broken.clear()
            with History(on_disk().location) as history:
                history.cancel("one")
        raise Boom

    pipeline = flow(name="pipeline", checkpoint=on_disk(), failure_policy=TWICE)(lambda: shaky())
    with pytest.raises(Exception, match="was cancelled"):
        pipeline.kickoff(run_id="one")
    with pytest.raises(Boom):
        pipeline.kickoff(run_id="one")
    assert len(ran) == 4, "one try was recorded before the cut, so two were left"


def test_a_policy_that_is_none_is_told_when_the_function_is_decorated():
    with pytest.raises(ConfigError, match="wanted a FailurePolicy"):
        flow(failure_policy=3)(lambda: None)


# what ends programs


@pytest.mark.parametrize("kind", ["plain", "awaited"])
@pytest.mark.parametrize("where", ["step", "flow"])
def test_sys_exit_is_a_failed_try_that_tells_the_code(config, kind, where):
    @step
    def leaves():
        sys.exit(7)

    @step
    async def aleaves():
        sys.exit(7)

    def plain():
        return leaves() if where == "step" else sys.exit(7)

    async def awaited():
        return await aleaves() if where == "step" else sys.exit(7)

    pipeline = flow(name="pipeline", checkpoint=config())({"plain": plain, "awaited": awaited}[kind])
    with pytest.raises(RuntimeError, match=r"it raised SystemExit\(7\)"):
        pipeline.kickoff(run_id="one")
    with History(config().location, config().provider) as history:
        assert {a.message for a in history.run("one").attempts} == {"it raised SystemExit(7)"}
