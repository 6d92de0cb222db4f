"""A test that stops the clocks, as with freezegun, can kick off: no wait is for ever, and its moments are recorded."""

from __future__ import annotations

import sys

from tests import children

STOPPED = """
import asyncio, datetime, sys, time
from crewlite import Agent, Crew, Task
from crewlite.flow import Flow, flow, persist, sleep_for, start, step
from crewlite.testing import ScriptedLLM

class OfDatetime(type):
    def __instancecheck__(cls, value):
        return isinstance(value, real)

class OfDate(type):
    def __instancecheck__(cls, value):
        return isinstance(value, real_date)

class StoppedDate(datetime.date, metaclass=OfDate):
    @classmethod
    def today(cls):
        return cls(2020, 1, 1)

class Stopped(datetime.datetime, metaclass=OfDatetime):
    @classmethod
    def now(cls, zone=None):
        return cls(2020, 1, 1, tzinfo=zone)

def stopped():
    return 1577836800.0

real, real_date, kinds = datetime.datetime, datetime.date, (type, type(time.time))
instead = {real: Stopped, real_date: StoppedDate}
instead |= dict.fromkeys([time.time, time.monotonic, time.perf_counter], stopped)

def stop():
    for module in [*sys.modules.values()]:
        if module is not sys.modules["__main__"]:
            for name, value in [*vars(module).items()]:
                if type(value) in kinds and value in instead:
                    setattr(module, name, instead[value])

done = []

@step
def moments() -> list:
    done.append("moments")
    return [datetime.datetime.now(), datetime.datetime.now(datetime.UTC), datetime.date.today()]

@step(retries=1, retry_delay=0.01)
def shaky(when: datetime.datetime) -> str:
    done.append("shaky")
    if done.count("shaky") == 1:
        raise ConnectionError("down")
    return str(when)

@flow(checkpoint=True)
def stamped(when):
    sleep_for(0.01)
    return [*moments(), shaky(when)]

agent = Agent(role="W", goal="g", llm=ScriptedLLM(["a"] * 9, delay=0.01))
crew = Crew(tasks=[Task(name="t", description="Say", expected_output="x", agent=agent)])

@flow
async def blocks():
    said = crew.kickoff().raw  # so this has an event loop of its own
    await asyncio.sleep(0.01)
    return said

crew.kickoff()  # what a run needs is loaded: it has references to the clocks
stop()
assert time.monotonic() == time.monotonic()
first = stamped.kickoff(datetime.datetime.now(), run_id="r")
print(first, [type(one) is real for one in first[:2]], done)
assert stamped.kickoff(datetime.datetime.now(), run_id="r") == first
assert len(done) == 3
print(crew.kickoff().raw, blocks.kickoff())
late = stamped.submit(datetime.datetime.now(), run_id="late")
try:
    late.result(0)
except TimeoutError:
    print("late", len(late.result()))
"""


def test_a_run_ends_and_records_its_moments_where_the_clocks_are_stopped(tmp_path):
    done = children.run([sys.executable, "-c", STOPPED], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout == (
        "[datetime.datetime(2020, 1, 1, 0, 0), datetime.datetime(2020, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), "
        "datetime.date(2020, 1, 1), '2020-01-01 00:00:00'] [True, True] ['moments', 'shaky', 'shaky']\n"
        "a a\n"
        "late 4\n"
    )
