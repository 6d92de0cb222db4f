"""What people coming from Orbiter's page on checkpoints write, row by row, with the names of this house."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from datetime import UTC

import pytest

from crewlite.errors import RefError
from crewlite.state import Checkpoint, RuntimeState
from tests import children


@pytest.fixture(params=[None, "states", "states.db"])
def state(request):
    with RuntimeState.open("task-1", request.param) as opened:
        yield opened


def test_basic_usage(state):
    state["progress"] = "step-3"
    state["data"] = {"results": [1, 2, 3]}
    checkpoint = state.snapshot(metadata={"reason": "before risky tool call"})
    assert checkpoint.run_id == "task-1"
    assert checkpoint.version == 1
    assert checkpoint.values == {"progress": "step-3", "data": {"results": [1, 2, 3]}}
    state["data"]["results"].append(4)
    assert checkpoint.values["data"] == {"results": [1, 2, 3]}, "a snapshot is as deep as its values"


def test_checkpoint_structure(state):
    state.add_usage(prompt_tokens=10, completion_tokens=5)
    checkpoint = state.snapshot(metadata={"reason": "look"})
    assert (checkpoint.usage.prompt_tokens, checkpoint.usage.completion_tokens) == (10, 5)
    assert checkpoint.metadata == {"reason": "look"}
    assert checkpoint.created_at.tzinfo is UTC
    with pytest.raises(dataclasses.FrozenInstanceError):
        checkpoint.version = 7
    data = checkpoint.to_dict()
    assert isinstance(data["created_at"], str)
    assert Checkpoint.from_dict(data) == checkpoint


def test_save_and_restore(state):
    state["step"] = 1
    cp1 = state.snapshot(metadata={"step": 1})
    state["step"] = 2
    state["result"] = "intermediate"
    state.restore(cp1)
    assert state.get("step") == 1
    assert state.get("result") is None
    assert state.snapshot().version == 2, "versions go on"


def test_checkpoint_store(state):
    for step in (1, 2, 3):
        state["step"] = step
        state.snapshot()
    assert state.latest.version == 3
    assert state.checkpoints()[0].values == {"step": 1}
    assert [cp.version for cp in state.checkpoints()] == [1, 2, 3]
    state.restore(1)
    assert state["step"] == 1
    with pytest.raises(RefError, match="Candidates: 1 "):
        state.restore(4)


def test_rollback_on_error(state):
    async def safe_tool_execution(tool, args):
        try:
            with state.rollback_on_error():
                state["calls"] = [*state.get("calls", []), args]
                result = await tool(**args)
                state["last_tool_result"] = result
                return result
        except Exception as error:
            state["last_error"] = str(error)
            raise

    async def add(a, b):
        return a + b

    assert asyncio.run(safe_tool_execution(add, {"a": 1, "b": 2})) == 3
    with pytest.raises(TypeError):
        asyncio.run(safe_tool_execution(add, {"a": 1, "b": "x"}))
    assert state["calls"] == [{"a": 1, "b": 2}]
    assert state["last_tool_result"] == 3
    assert "unsupported operand" in state["last_error"]


def test_rollback_on_error_by_hand(state):
    state["n"] = {"tries": 1}
    checkpoint = state.snapshot(metadata={"before_tool": "risky"})
    try:
        state["n"]["tries"] += 1
        raise RuntimeError("the tool failed")
    except RuntimeError as error:
        state.restore(checkpoint)
        state["last_error"] = str(error)
    assert dict(state) == {"n": {"tries": 1}, "last_error": "the tool failed"}


STEPS = """
import os, sys
from crewlite.state import RuntimeState

with RuntimeState.open("task-1", sys.argv[1]) as state:
    for step in ["fetch", "clean", "load", "report"][state.get("done", 0):]:
        state.snapshot(metadata={"step_index": state.get("done", 0), "step_name": step})
        if step == "load" and len(sys.argv) > 2:
            os._exit(9)
        print(step, flush=True)
        state["log"] = [*state.get("log", []), step]
        state["done"] = state.get("done", 0) + 1
    state.snapshot(metadata={"step_name": "end"})
"""


@pytest.mark.parametrize("location", ["states", "states.db"])
def test_long_running_task_progress(location):
    def run(*more):
        return children.run([sys.executable, "-c", STEPS, location, *more], capture_output=True, text=True)

    cut = run("dies")
    assert (cut.returncode, cut.stdout.split()) == (9, ["fetch", "clean"])
    assert run().stdout.split() == ["load", "report"]
    with RuntimeState.open("task-1", location) as state:
        assert state["log"] == ["fetch", "clean", "load", "report"]
        assert state.latest.metadata == {"step_name": "end"}
        assert [cp.version for cp in state.checkpoints()] == [1, 2, 3, 4, 5, 6]


def test_branching_execution(state):
    state["question"] = "which?"
    branch_point = state.snapshot(metadata={"branch": "decision_point"})
    state["approach"] = "A"
    first = state.snapshot()
    state.restore(branch_point)
    assert "approach" not in state
    state["approach"] = "B"
    second = state.snapshot()
    assert (first.parent_id, second.parent_id) == (branch_point.id, branch_point.id), "both stand on the decision"
    assert (first.values["approach"], second.values["approach"]) == ("A", "B")


def test_checkpoint_persistence(state):
    state["tally"] = {"a": (1, 2)}
    checkpoint = state.snapshot(metadata={"reason": "daily backup"})
    with open("checkpoint.json", "w") as file:
        json.dump(checkpoint.to_dict(), file)
    state["tally"]["a"] = None
    with open("checkpoint.json") as file:
        restored = Checkpoint.from_dict(json.load(file))
    state.restore(restored)
    assert state["tally"] == {"a": (1, 2)}
    with RuntimeState.open("task-2") as other:
        other.restore(restored)
        assert dict(other) == dict(state)
    assert os.path.exists("checkpoint.json")


def test_comparing_checkpoints(state):
    state.update(stays=1, changes=[1], goes=True)
    before = state.snapshot()
    state["changes"].append(2)
    state["comes"] = "new"
    del state["goes"]
    after = state.snapshot()
    diff = before.diff(after)
    assert set(diff.added) == set(after.values) - set(before.values) == {"comes"}
    assert set(diff.removed) == set(before.values) - set(after.values) == {"goes"}
    assert diff.changed == {"changes": ([1], [1, 2])}
