"""A program that ends beside a run that it has submitted is told which, and how to go on: in one line, once."""

from __future__ import annotations

import sys

import pytest

from tests import children

PROGRAM = """
import asyncio, sys, time
from crewlite import CheckpointConfig, History, event_bus
from crewlite.events import FlowFinishedEvent
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider

@step
async def slow(n):
    print("at work", flush=True)
    await asyncio.sleep(n)
    return n

def begun(name, n=60, **config):
    given = CheckpointConfig(**config) if config else None
    handle = flow(name="survey", checkpoint=given)(lambda: slow(n)).submit(run_id=name)
    return handle
"""
ADVICE = "wait for the result() of a handle to prevent that."
ENDS = {
    "kept in a store": (
        "begun('one', location='runs.db')",
        f"This program ends before 1 run that it has submitted: {ADVICE} Run 'one' of flow 'survey': To go on: run the "
        f"same script again, or flow.kickoff(run_id='one')",
    ),
    "two": (
        "begun('one', location='runs.db'), begun('two', location='runs.db')",
        f"This program ends before 2 runs that it has submitted: {ADVICE} Run 'one'",
    ),
    "not kept": (
        "begun(None)",
        "of flow 'survey': Nothing was saved. To be able to resume a run, give the flow checkp",
    ),
    "kept in memory": (
        "begun('one', location='x', provider=InMemoryProvider())",
        "Run 'one' of flow 'survey': Its record was in memory only.",
    ),
    "an error ends it": ("begun('one', location='runs.db')\n1/0", "Run 'one' of flow 'survey': To go on:"),
    "it has finished": ("begun('one', 0, location='runs.db').result()", ""),
    "it has finished, and its last handler is at work": (
        "event_bus.on(FlowFinishedEvent, lambda source, event: time.sleep(5))\n"
        "begun('one', 0, location='runs.db')\n"
        "while History('runs.db', make=True).run('one').status != 'finished': time.sleep(0.02)",
        "",
    ),
    "it is cancelled": ("begun('one', location='runs.db').cancel()", ""),
}


@pytest.mark.parametrize(("ends", "told"), ENDS.values(), ids=ENDS)
def test_a_program_that_ends_beside_a_run_says_so_once_and_how_to_go_on(tmp_path, ends, told):
    said = {"stdout": children.PIPE, "stderr": children.PIPE, "text": True}
    done = children.run([sys.executable, "-c", PROGRAM + ends], cwd=tmp_path, **said)
    lines = [line for line in done.stderr.splitlines() if "This program ends before" in line]
    assert len(lines) == (1 if told else 0), done.stderr
    assert told in "".join(lines)
    assert ("Traceback" in done.stderr) == ("1/0" in ends)
    assert done.returncode == (1 if "1/0" in ends else 0)


CLOSED = """
import asyncio, sys
from crewlite import CheckpointConfig
from crewlite.flow import flow, step

@step
async def slow():
    began.set()
    await asyncio.sleep(60 if abandoned else 0)

@flow(name="survey", checkpoint=CheckpointConfig(location="runs.db"))
async def survey():
    await slow()

abandoned, began, loop = True, asyncio.Event(), asyncio.new_event_loop()
task = loop.create_task(survey.akickoff(run_id="one"))
loop.run_until_complete(began.wait())
loop.close()
abandoned = False
"""


@pytest.mark.parametrize("resumed", [False, True])
def test_a_run_whose_loop_was_closed_is_told_of_unless_it_has_ended_since(tmp_path, resumed):
    script = CLOSED + ("survey.kickoff(run_id='one')" if resumed else "")
    done = children.run([sys.executable, "-c", script], cwd=tmp_path, stderr=children.PIPE, text=True, check=True)
    assert ("This program ends before 1 run that it awaits. Run 'one'" in done.stderr) is not resumed
