"""Flows of methods that are killed at random instants come to the result, state and effects that they would have had."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from test_crashes import pytestmark as pytestmark

from tests import children

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("flows", [8, pytest.param(1500, marks=pytest.mark.soak)])
def test_random_flows_with_crews_agents_and_flows_inside_are_killed_at_random_instants(flows, tmp_path):
    command = [sys.executable, "-m", "tests.crash.flows", "--directory", str(tmp_path), "--flows", str(flows)]
    done = children.run(command, cwd=ROOT, capture_output=True, text=True, timeout=None if flows > 8 else 300)
    assert done.stdout, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(found)
    assert found["violations"] == []
    assert done.returncode == 0
    assert found["flows"] == flows
    assert found["kills"] >= flows
