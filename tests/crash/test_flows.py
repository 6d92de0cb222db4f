"""Flows of methods that are killed at random instants come to the result, state and effects that they would have had."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from test_crashes import pytestmark as pytestmark

from tests import children
from tests.soak import SEED, in_time

ROOT = Path(__file__).parents[2]


def test_random_flows_with_crews_agents_and_flows_inside_are_killed_at_random_instants(tmp_path):
    _kill(8, 20, tmp_path)


@pytest.mark.soak
def test_a_thousand_of_them(tmp_path):
    _kill(in_time(1000), SEED, tmp_path)


def _kill(flows, seed, directory):
    command = [sys.executable, "-m", "tests.crash.flows", "--directory", str(directory)]
    command += ["--flows", str(flows), "--seed", str(seed)]
    done = children.run(command, cwd=ROOT, capture_output=True, text=True, timeout=None)
    assert done.stdout, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"seed {seed}: {found}")
    assert found["violations"] == []
    assert done.returncode == 0
    assert found["flows"] == flows
    assert found["kills"] >= flows
