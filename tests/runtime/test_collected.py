"""Garbage collection may close what nobody waits for any more on any thread, whatever that thread is doing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import children


@pytest.mark.slow
def test_an_abandoned_run_can_be_closed_wherever_a_lock_is_held():
    program = Path(__file__).with_name("collected.py")
    done = children.run([sys.executable, str(program), "120"], capture_output=True, text=True)
    lines, all_closed = done.stdout.split() or (0, done.stderr)
    assert int(lines) > 150, done.stderr
    assert all_closed == "True"


STREAM = """
with crew.stream(run_id="r") as stream:
    for event in stream:
        yield event
"""
STATE = """
with RuntimeState.open("s", "here", provider) as state:
    yield state
"""
LEFT = """
import threading
from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.state import InMemoryProvider, RuntimeState
from crewlite.testing import ScriptedLLM
from tests.state.wrapped import Wrapped

class Closing(Wrapped):
    in_memory = True

    def _do(self, store, verb, call, args):
        if verb == "append" and ready.is_set() and left:
            left.pop().close()  # as garbage collection may, on the thread that writes
        return call()

def work():
    {}

provider, ready, left = Closing(InMemoryProvider()), threading.Event(), []
agent = Agent(role="Clerk", goal="answer", llm=ScriptedLLM(lambda messages: "done", delay=0.2))
tasks = [Task(description=text, expected_output="a word", agent=agent) for text in "abc"]
crew = Crew(tasks=tasks, checkpoint=CheckpointConfig(location="here", provider=provider))
left.append(work())
next(left[0])
ready.set()
crew.kickoff(run_id="other")
print(len(left), crew.kickoff(run_id="r"))
"""


@pytest.mark.parametrize("work", [STREAM, STATE])
def test_a_generator_that_is_closed_on_the_thread_it_waits_for_ends(work):
    script = LEFT.format(work.strip().replace("\n", "\n    "))
    done = children.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "0 done\n", done.stderr
