"""Plain functions as durable runs: steps answer from the record, the code between them runs again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import pytest

from crewlite import Agent, Crew, History, Task
from crewlite.errors import (
    ConfigError,
    InputsChanged,
    NonDeterminism,
    OnLoopThread,
    RunCancelled,
    RunMismatch,
    StepDeadlock,
    StepTimeout,
    Suspended,
)
from crewlite.events import (
    CrewKickoffStartedEvent,
    FlowFailedEvent,
    FlowFinishedEvent,
    FlowStartedEvent,
    RecoveryStartedEvent,
    StepCompletedEvent,
    StepReplayedEvent,
    StepStartedEvent,
)
from crewlite.flow import ask, flow, sleep_for, sleep_until, step, timer
from crewlite.testing import EventRecorder, ScriptedLLM
from crewlite.usage import Usage
from tests import children


class Boom(Exception):
    """What goes wrong here."""


# what a flow is


def test_a_flow_returns_what_its_function_returns(config):
    @step
    def double(n):
        return 2 * n

    @flow(checkpoint=config())
    def pipeline(n, *, plus=0):
        return double(n) + plus

    assert pipeline.kickoff(3) == 6
    assert pipeline.kickoff(3, plus=1) == 7
    assert asyncio.run(pipeline.akickoff(n=4)) == 8
    handle = pipeline.submit(5, run_id="five")
    assert (handle.result(10), handle.run_id, handle.status) == (10, "five", "finished")


def test_the_run_id_that_was_given_is_known_before_the_run_has_begun(config):
    @flow(checkpoint=config())
    def order() -> int:
        return 1

    async def main() -> tuple[str, int]:
        handle = order.submit(run_id="a1")
        return handle.run_id, await handle

    assert asyncio.run(main()) == ("a1", 1)


def test_an_async_flow_awaits_its_steps(config):
    @step
    async def double(n):
        await asyncio.sleep(0)
        return 2 * n

    @step
    def blocking(n):
        return n + 1

    @flow(checkpoint=config())
    async def pipeline(n):
        return await double(n), await blocking.submit(n)

    assert pipeline.kickoff(3) == (6, 4)


def test_outside_a_flow_a_step_is_its_function(ran):
    @step(retries=3, timeout=1)
    def note(n):
        """Note it."""
        ran.append(n)
        return n

    assert (note(1), note.__name__, note.__doc__, ran) == (1, "note", "Note it.", [1])
    for verb in (note.submit, note.map, note.product):
        with pytest.raises(ConfigError, match="outside a run"):
            verb([1])


@pytest.mark.parametrize(
    "options",
    [{"retries": -1}, {"retry_delay": -1}, {"timeout": 0}, {"max_concurrency": 0}],
    ids=lambda options: next(iter(options)),
)
def test_an_option_that_cannot_be_is_told_when_the_function_is_decorated(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        step(**options)(lambda: None)
    if "timeout" not in options:
        with pytest.raises(ConfigError, match=next(iter(options))):
            flow(**options)(lambda: None)


def test_wrong_arguments_are_told_before_a_run_begins(config):
    @flow(checkpoint=config())
    def pipeline(topic):
        return topic

    for wrong in ({"args": ()}, {"args": (1, 2)}, {"args": (1,), "subject": 2}):
        args = wrong.pop("args")
        with pytest.raises(ConfigError, match="pipeline"):
            pipeline.kickoff(*args, **wrong)


# resuming


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
    with pytest.raises(NonDeterminism, match=r'step:log was asked when it came to "now"; found {"when":"later"}'):
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


# side by side


def test_submit_begins_at_once_and_maps_take_plain_iterables(config):
    @step
    def add(a, b=0):
        return a + b

    @flow(checkpoint=config())
    def pipeline():
        futures = [add.submit(n) for n in range(3)]
        mapped = add.map((n for n in range(3)), {10: 0, 20: 0, 30: 0})
        return [f.result() for f in futures], mapped.result(), add.product([1, 2], [10, 20]).result(), len(mapped)

    assert pipeline.kickoff() == ([0, 1, 2], [10, 21, 32], [11, 21, 12, 22], 3)


def test_sixty_mapped_blocking_steps_that_call_steps_of_their_own_end(config):
    @step
    def inner(n):
        time.sleep(0.01)
        return n

    @step
    def outer(n):
        return inner(n) + 1

    @flow(checkpoint=config(), max_concurrency=8)
    def pipeline():
        return sum(outer.map(range(60)).result())

    assert pipeline.kickoff() == sum(range(1, 61))


@pytest.mark.parametrize("on", ["step", "flow"])
def test_no_more_run_side_by_side_than_may(on):
    now, most, lock = [0], [0], threading.Lock()

    @step(max_concurrency=3 if on == "step" else None)
    def work(n):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        children.until(lambda: most[0] >= 3)
        time.sleep(0.005)
        with lock:
            now[0] -= 1

    @flow(max_concurrency=3 if on == "flow" else None)
    def pipeline():
        work.map(range(20)).result()

    pipeline.kickoff()
    assert most == [3]


def test_when_one_fails_the_others_end_and_are_recorded(config, ran):
    broken = [True]

    @step
    async def work(n):
        await asyncio.sleep(0.01 * n)
        if n == 0 and broken:
            raise Boom
        ran.append(n)
        return n

    @flow(checkpoint=config())
    async def pipeline():
        return await work.map(range(4))

    with pytest.raises(Boom):
        pipeline.kickoff(run_id="one")
    assert ran == [1, 2, 3]
    broken.clear()
    assert pipeline.kickoff(run_id="one") == [0, 1, 2, 3]
    assert ran == [1, 2, 3, 0]


def test_a_failure_that_nobody_waits_for_is_not_passed_over(config):
    @step
    def fails():
        raise Boom

    @flow(checkpoint=config())
    def pipeline():
        fails.submit()
        return "fine"

    with pytest.raises(Boom):
        pipeline.kickoff()


def test_a_flow_ends_when_everything_it_began_has_ended(config, ran):
    @step
    def slow():
        time.sleep(0.05)
        ran.append("slow")

    @flow(checkpoint=config())
    def pipeline():
        slow.submit()

    pipeline.kickoff()
    assert ran == ["slow"]


def test_a_blocking_step_called_on_the_loop_says_what_to_call_instead(config):
    @step
    def blocking():
        return 1

    @flow(checkpoint=config())
    async def pipeline():
        return blocking()

    with pytest.raises(OnLoopThread, match=r"blocking\.submit"):
        pipeline.kickoff()


# failing and trying again


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


# the rest of the house


def test_types_of_steps_show_in_events_and_history(on_disk):
    @step(type="llm_call")
    def think():
        return "thought"

    @flow(checkpoint=on_disk())
    def pipeline():
        return think()

    with EventRecorder() as heard:
        pipeline.kickoff(run_id="one")
    told = [*heard.of(StepStartedEvent), *heard.of(StepCompletedEvent)]
    assert [event.step_type for event in told] == ["llm_call", "llm_call"]
    with History(pipeline.checkpoint.location) as history:
        assert {view.address: view.type for view in history.run("one").steps}["step:think"] == "llm_call"


def test_a_flow_tells_when_it_begins_ends_and_fails(config):
    @flow(checkpoint=config())
    def pipeline(well):
        if not well:
            raise Boom("no")
        return 1

    with EventRecorder() as heard:
        pipeline.kickoff(True)
        with pytest.raises(Boom):
            pipeline.kickoff(False)
    assert [event.inputs for event in heard.of(FlowStartedEvent)] == [{"well": True}, {"well": False}]
    assert [event.result for event in heard.of(FlowFinishedEvent)] == [1]
    assert [event.error for event in heard.of(FlowFailedEvent)] == ["no"]


def test_crews_and_flows_in_a_flow_are_steps_of_it(config):
    llm = ScriptedLLM(["a poem"])
    poet = Agent(role="Poet", goal="rhyme", llm=llm)
    crew = Crew(name="poets", tasks=[Task(name="write", description="Write", expected_output="a poem", agent=poet)])
    broken = [True]

    @step
    def count(text):
        return len(text)

    @flow
    def inner(text):
        return count(text)

    @flow(checkpoint=config())
    def pipeline():
        poem = crew.kickoff().raw
        size = inner(poem), inner.kickoff(poem)
        if broken:
            raise Boom
        return poem, size

    with pytest.raises(Boom):
        pipeline.kickoff(run_id="one")
    broken.clear()
    with EventRecorder() as heard:
        assert pipeline.kickoff(run_id="one") == ("a poem", (6, 6))
    assert len(llm.calls) == 1
    assert heard.of(CrewKickoffStartedEvent) == []


def test_without_a_store_nothing_is_on_disk(tmp_path):
    @step
    def work(n):
        return n

    @flow
    def pipeline():
        return work.map(range(3)).result()

    assert pipeline.kickoff() == [0, 1, 2]
    assert list(tmp_path.iterdir()) == []


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


# timers


def test_a_timer_waits_once_over_all_lives(config, monkeypatch):
    broken, until = [True], []
    wait = timer._wait
    monkeypatch.setattr(timer, "_wait", lambda *how: until.append(how[-1]) or wait(*how))

    @flow(checkpoint=config())
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


def test_a_time_that_no_clock_can_tell_is_waited_for_as_one_far_away(memory):
    @flow(checkpoint=memory(), timeout=1e18)
    def patient(waits):
        if waits:
            sleep_for(1e12)
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


def test_a_wait_until_a_moment_is_the_same_wait_in_every_life(config, monkeypatch):
    """The moment is given in another time zone by the later life."""
    broken, until = [True], []
    monkeypatch.setattr(timer, "_wait", lambda *how: until.append(how[-1]))

    @flow(checkpoint=config())
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


# what reviewers met


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


def test_a_run_that_is_stopped_cuts_what_it_began(on_disk, ran):
    @step
    async def slow():
        begun.set()
        try:
            await asyncio.sleep(60)
            ran.append("slow ran on")
        except asyncio.CancelledError:
            ran.append("slow is cut")
            raise

    @flow(checkpoint=on_disk())
    async def pipeline():
        slow.submit()

    begun = threading.Event()
    handle = pipeline.submit(run_id="one")
    assert begun.wait(60)
    handle.cancel()
    with pytest.raises(RunCancelled):
        handle.result(60)
    assert (handle.status, ran) == ("cancelled", ["slow is cut"])


@pytest.mark.parametrize("name", ["a#2", "a/b", "a!2", ""])
def test_a_name_that_no_address_can_hold_is_refused(name):
    with pytest.raises(ConfigError, match="not blank, without / # and !"):
        step(name=name)(lambda: None)
    with pytest.raises(ConfigError, match="not blank, without / # and !"):
        flow(name=name)(lambda: None)


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


def test_a_misspelt_effect_is_refused():
    with pytest.raises(ConfigError, match="none, idempotent, once"):
        step(effect="Once")(lambda: None)


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


def test_steps_that_wait_for_each_others_slots_are_an_error_and_not_a_standstill():
    meet = threading.Barrier(2)

    @step(max_concurrency=1)
    def left(deep):
        if not deep:
            return "end"
        meet.wait(60)
        return right(deep - 1)

    @step(max_concurrency=1)
    def right(deep):
        if not deep:
            return "end"
        meet.wait(60)
        return left(deep - 1)

    @flow
    def pipeline():
        both = [left.submit(1), right.submit(1)]
        return [future.result() for future in both]

    with pytest.raises(StepDeadlock, match="waits for a slot of step:") as caught:
        pipeline.kickoff()
    assert set(caught.value.waiting.values()) == {"step:left", "step:right"}


def test_limits_one_inside_the_other_are_no_deadlock():
    @step(max_concurrency=2)
    def inner(n):
        return n

    @step(max_concurrency=3)
    def outer(n):
        return sum(inner.map(range(n)).result())

    @flow(max_concurrency=4)
    def pipeline():
        return outer.map(range(12)).result()

    assert pipeline.kickoff() == [sum(range(n)) for n in range(12)]


def test_a_step_that_waits_to_be_tried_again_leaves_its_place_to_others(ran):
    @step(max_concurrency=1, retries=1, retry_delay=0.2)
    async def work(n):
        ran.append(n)
        if ran == ["shaky"]:
            raise Boom
        return n

    @flow
    async def pipeline():
        return await work.map(["shaky", 1, 2])

    assert pipeline.kickoff() == ["shaky", 1, 2]
    assert ran == ["shaky", 1, 2, "shaky"]


def test_whoever_waits_for_a_step_on_a_loop_of_their_own_may_give_up_and_the_step_goes_on():
    gave_up = threading.Event()

    @step
    async def slow():
        while not gave_up.is_set():
            await asyncio.sleep(0.005)
        return "slow"

    @flow
    def pipeline():
        future = slow.submit()

        async def impatient():
            waiting = asyncio.ensure_future(future._awaited())
            await asyncio.sleep(0.02)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

        async def patient():
            return await future

        asyncio.run(impatient())
        gave_up.set()
        return asyncio.run(patient()), future.result(), future.done()

    assert pipeline.kickoff() == ("slow", "slow", True)


def test_what_a_crew_or_agent_came_to_comes_back_as_itself_without_being_named(config, caplog):
    @step
    def both():
        poet = Agent(role="Poet", goal="rhyme", llm=ScriptedLLM(["a poem"] * 2))
        crew = Crew(tasks=[Task(name="write", description="Write", expected_output="a poem", agent=poet)])
        return crew.kickoff(), poet.kickoff("Rhyme")

    @flow(checkpoint=config())
    def pipeline():
        return both()

    first, again = pipeline.kickoff(run_id="one"), pipeline.kickoff(run_id="one")
    assert first == again
    crew, agent = again
    assert (crew["write"].raw, agent.raw, type(crew.token_usage)) == ("a poem", "a poem", Usage)
    assert "not declared" not in caplog.text


def test_a_handle_is_awaited_and_who_gives_up_waiting_does_not_stop_the_run(config):
    go = threading.Event()

    @step
    def work():
        go.wait(20)
        return 7

    @flow(checkpoint=config())
    def pipeline():
        return work()

    handle = pipeline.submit(run_id="one")

    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(handle, 0.01)
        assert handle.status == "running"
        go.set()
        return await handle

    assert asyncio.run(main()) == 7
    assert handle.status == "finished"


def test_a_handle_tells_that_its_run_waits_for_people(on_disk, monkeypatch):
    @flow(checkpoint=on_disk())
    def pipeline():
        return ask("Publish?", bool, name="publish")

    with open(os.devnull) as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        handle = pipeline.submit(run_id="one")
        with pytest.raises(Suspended):
            handle.result(20)
    assert handle.status == "waiting"


def test_a_result_of_the_flow_that_cannot_be_recorded_is_told_as_the_flows(on_disk, caplog):
    assert len(flow(name="pipeline", checkpoint=on_disk())(lambda: [object()]).kickoff(run_id="one")) == 1
    assert "one/main: the flow itself cannot be recorded" in caplog.text
