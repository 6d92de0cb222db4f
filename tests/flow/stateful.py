"""A program whose flow changes the state in many ways: `stateful.py LOCATION AT`. It kills itself at its AT-th call."""

from __future__ import annotations

import json
import os
import signal
import sys

from crewlite import Agent, CheckpointConfig, Crew, Task, ToolCall, durable, tool
from crewlite.flow import flow, step
from crewlite.state import RuntimeState
from crewlite.testing import ScriptedLLM

location, at = sys.argv[1], int(sys.argv[2])
calls = 0


def called():
    """Half of what a step changes is changed by now."""
    global calls
    calls += 1
    if calls == at:
        os.kill(os.getpid(), signal.SIGKILL)


@step
def add(n):
    state = RuntimeState.current()
    state.setdefault("log", []).append(n)
    called()
    state["last"] = n
    state.collection("items").add({"n": n})


@step(retries=1)
def outer(n):
    state = RuntimeState.current()
    state["tries"] = state.get("tries", 0) + 1
    add(n)
    called()
    if not durable.scope().past:
        raise ValueError
    add(n + 1)


@tool
def note(what: str) -> str:
    """Note something."""
    RuntimeState.current().setdefault("notes", []).append(what)
    called()
    return "noted"


def reply(messages):
    return "done" if messages[-1]["role"] == "tool" else ToolCall("note", {"what": "tide"})


@flow(checkpoint=CheckpointConfig(location=location, on_events=["step_completed"]))
def work():
    state = RuntimeState.current()
    state["body"] = ["begins"]
    first = add.submit(1)
    state["last"] = "flow"
    first.result()
    state["body"].append(state["last"])
    outer(10)
    clerk = Agent(role="Clerk", goal="note", llm=ScriptedLLM(reply), tools=[note])
    Crew(tasks=[Task(name="note", description="Note", expected_output="x", agent=clerk)]).kickoff()
    state.collection("items").add("body")
    left = add.submit(2)
    left.result()
    return dict(state), dict(state.collection("items"))


print(json.dumps(work.kickoff(run_id="r")))
