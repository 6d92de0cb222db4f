"""A flow that goes on: its steps answer from the record as long as it asks what it asked before."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from dataclasses import dataclass

import pytest

from crewlite.errors import (
    InputsChanged,
    NonDeterminism,
    RunCancelled,
    RunMismatch,
)
from crewlite.events import (
    FlowFailedEvent,
    StepReplayedEvent,
)
from crewlite.flow import flow, step
from crewlite.testing import EventRecorder
from tests import children
from tests.flow.failing import Boom


def test_the_same_run_id_goes_on_and_does_nothing_twice(config, ran):
    broken = [True]

    @step
    def fetch(n):
        ran.append(n)
        return n * 10

    @flow(checkpoint=config())
    def pipeline(count):
        total = sum(fetch(n) for n in range(count))
        if broken:
            raise Boom
        return total

    with pytest.raises(Boom):
        pipeline.kickoff(3, run_id="one")
    broken.clear()
    with EventRecorder() as heard:
        assert pipeline.kickoff(run_id="one") == 30
    assert ran == [0, 1, 2]
    assert [event.address for event in heard.of(StepReplayedEvent)] == ["step:fetch", "step:fetch#2", "step:fetch#3"]
    assert pipeline.kickoff(3, run_id="one") == 30
    with pytest.raises(InputsChanged):
        pipeline.kickoff(4, run_id="one")


@pytest.mark.parametrize("other", [1.0, True])
def test_an_input_that_python_holds_for_equal_is_another_one(memory, other):
    @step
    def shown(n):
        return repr(n)

    @flow(checkpoint=memory())
    def counting(n):
        return shown(n)

    counting.kickoff(1, run_id="one")
    with pytest.raises(InputsChanged) as changed:
        counting.kickoff(other, run_id="one")
    assert changed.value.names == ("n",)
    assert counting.fork("one", inputs={"n": other}).kickoff() == repr(other)


def test_both_lives_get_the_same_values_and_nobody_can_change_what_is_recorded(config):
    @step
    def numbers():
        return [1, 2]

    seen = []

    @flow(checkpoint=config())
    def pipeline():
        first = numbers()
        seen.append(list(first))
        first.append(3)
        if len(seen) == 1:
            raise Boom
        return first

    with pytest.raises(Boom):
        pipeline.kickoff(run_id="one")
    assert pipeline.kickoff(run_id="one") == [1, 2, 3]
    assert seen == [[1, 2], [1, 2]]


@dataclass
class Report:
    title: str
    pages: int


def test_a_class_that_a_step_says_it_returns_comes_back_as_itself(config):
    @step
    def write() -> list[Report]:
        return [Report("tides", 3)]

    broken = [True]

    @flow(checkpoint=config())
    def pipeline():
        made = write()
        if broken:
            raise Boom
        return made[0].pages

    with pytest.raises(Boom):
        pipeline.kickoff(run_id="one")
    broken.clear()
    assert pipeline.kickoff(run_id="one") == 3


def test_other_arguments_than_recorded_are_an_error_that_names_them(config):
    stamp = ["now"]

    @step
    def log(when):
        return when

    @flow(checkpoint=config())
    def pipeline():
        log(stamp[0])
        if stamp == ["now"]:
            raise Boom
        return "done"

    with pytest.raises(Boom):
        pipeline.kickoff(run_id="one")
    stamp[:] = ["later"]
    with pytest.raises(
        NonDeterminism,
        match=r'step:log .* expected the question that it has answered with "now"; found {"when":"later"}',
    ):
        pipeline.kickoff(run_id="one")


def test_a_step_that_moved_is_told_with_its_old_place(config):
    order = [1, 2]

    @step
    def log(n):
        return None

    @flow(checkpoint=config())
    def pipeline():
        for n in order:
            log(n)
        if order == [1, 2]:
            raise Boom

    with pytest.raises(Boom):
        pipeline.kickoff(run_id="one")
    order.reverse()
    with pytest.raises(NonDeterminism, match=r'found {"n":2}, which step:log#2 was asked'):
        pipeline.kickoff(run_id="one")


@pytest.mark.parametrize(("one", "other"), [(1, "1"), (1, 1.0), ([1], (1,)), (True, 1), (None, "")])
def test_arguments_are_known_with_their_types(config, one, other):
    given = [one]

    @step
    def note(value):
        return None

    @flow(checkpoint=config())
    def pipeline():
        note(given[0])
        if given[0] is one:
            raise Boom

    with pytest.raises(Boom):
        pipeline.kickoff(run_id="one")
    given[:] = [other]
    with pytest.raises(NonDeterminism):
        pipeline.kickoff(run_id="one")


def test_a_recorded_step_that_is_not_asked_for_any_more_is_an_error(config):
    way = ["left"]

    @step
    def left():
        return "l"

    @step
    def right():
        return "r"

    @flow(checkpoint=config())
    def pipeline():
        found = left() if way == ["left"] else right()
        if way == ["left"]:
            raise Boom
        return found

    with pytest.raises(Boom):
        pipeline.kickoff(run_id="one")
    way[:] = ["right"]
    with EventRecorder() as heard, pytest.raises(NonDeterminism, match=r"expected step:left; found step:right"):
        pipeline.kickoff(run_id="one")
    assert [event.error_type for event in heard.of(FlowFailedEvent)] == ["NonDeterminism"]


@pytest.mark.parametrize("lives", [[], [["b", "early"]], [["a", "early"], ["b", "early"], ["b", "early"]]], ids=len)
def test_by_setting_the_flow_runs_from_where_it_differs_also_if_it_is_cut_there(config, ran, lives):
    given = ["a", "late"]

    @step
    def note(value):
        ran.append(value)
        return value

    @flow(checkpoint=config(on_drift="rerun"))
    def pipeline():
        found = [note("first"), note(given[0])]
        if given[1] == "early":
            raise Boom
        found.append(note("last"))
        if given[1] == "late":
            raise Boom
        return found

    for given[:] in ([*given], *lives):
        with pytest.raises(Boom):
            pipeline.kickoff(run_id="one")
    given[:] = ["b", "never"]
    assert pipeline.kickoff(run_id="one") == ["first", "b", "last"]
    assert ran == ["first", "a", "last", "b", "last"]


def test_from_where_a_flow_differs_what_may_happen_once_is_repeated_with_other_arguments_only(config, ran):
    given = ["a", "gift"]

    @step
    def note(value):
        ran.append(value)

    @step(effect="once")
    def pay(value):
        ran.append(value)

    @flow(checkpoint=config(on_drift="rerun"))
    def pipeline():
        note(given[0])
        pay(given[1])
        if given != ["c", "other"]:
            raise Boom

    for given[:] in (["a", "gift"], ["b", "gift"]):
        with pytest.raises(Boom):
            pipeline.kickoff(run_id="one")
    given[:] = ["c", "other"]
    pipeline.kickoff(run_id="one")
    assert ran == ["a", "gift", "b", "c", "other"]


def test_a_run_may_be_stopped_and_gone_on_with(on_disk, ran):
    @step
    async def work(n):
        if n == 2 and len(ran) == 2:
            ran.append("waits")
            await asyncio.sleep(60)
        ran.append(n)
        return n

    @flow(checkpoint=on_disk())
    async def pipeline():
        return [await work(n) for n in range(4)]

    handle = pipeline.submit(run_id="one")
    while "waits" not in ran:
        time.sleep(0.005)
    handle.cancel()
    with pytest.raises(RunCancelled, match="run_id='one'"):
        handle.result(20)
    assert handle.status == "cancelled"
    assert pipeline.kickoff(run_id="one") == [0, 1, 2, 3]
    assert ran == [0, 1, "waits", 2, 3]


PROGRAM = """
import os, sys, time
from crewlite.flow import ask, flow, sleep_for, step

@step
def extract(n):
    with open("ran", "a") as file:
        file.write(f"{n}\\n")
    time.sleep(0.02)
    return n

@flow(checkpoint=True)
def etl(count):
    return sum(extract(n) for n in range(count))

print(etl.kickoff(40, run_id="etl"))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL, which this platform has not")
def test_a_killed_process_is_gone_on_with_by_running_the_script_again(tmp_path):
    (tmp_path / "etl.py").write_text(PROGRAM)
    child = children.Child([sys.executable, "etl.py"], cwd=tmp_path, stdout=children.DEVNULL)
    ran = tmp_path / "ran"
    while not ran.exists() or len(ran.read_text().splitlines()) < 10:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    done = children.run([sys.executable, "etl.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == f"{sum(range(40))}\n", done.stderr
    lines = ran.read_text().splitlines()
    assert len(lines) <= 41, "only the step in flight may run again"
    assert set(lines) == {str(n) for n in range(40)}


def test_a_flow_that_fell_back_goes_on_though_the_first_way_works_again(config):
    broken, crash = [True], [True]

    @step
    def first():
        if broken:
            raise Boom
        return "first"

    @step
    def second():
        return "second"

    @flow(checkpoint=config())
    def pipeline():
        try:
            found = first()
        except Boom:
            found = second()
        if crash:
            raise KeyError
        return found

    with pytest.raises(KeyError):
        pipeline.kickoff(run_id="one")
    broken.clear()
    crash.clear()
    assert pipeline.kickoff(run_id="one") == "second"


def test_another_flow_does_not_take_over_a_run(config):
    def made(name):
        return flow(name=name, checkpoint=config())(lambda: name)

    assert made("one").kickoff(run_id="r") == "one"
    with pytest.raises(RunMismatch, match="flow 'one'"):
        made("other").kickoff(run_id="r")


def test_another_flow_forks_no_run(config):
    """No branch is left behind that no kickoff of the flow could run."""

    def made(name):
        return flow(name=name, checkpoint=config())(lambda: name)

    made("one").kickoff(run_id="r")
    with pytest.raises(RunMismatch, match="flow 'one'"):
        made("other").fork("r", branch="b")
    assert made("one").fork("r", branch="b").kickoff() == "one"


def test_a_step_that_happens_once_may_be_run_again_on_a_fork(config, ran):
    @step(effect="once")
    def pay():
        ran.append("paid")

    @flow(checkpoint=config())
    def pipeline():
        pay()

    pipeline.kickoff(run_id="one")
    pipeline.fork("one", rerun=["step:pay"], allow_effects=True).kickoff()
    assert ran == ["paid", "paid"]


@dataclass
class Shelf:
    reports: list[Report]


def test_classes_inside_a_class_come_back_as_themselves():
    @step
    def read() -> Shelf:
        return Shelf([Report("tides", 3)])

    assert flow(lambda: read().reports[0].pages).kickoff() == 3
