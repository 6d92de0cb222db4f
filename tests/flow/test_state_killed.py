"""Killed in the middle of any call, a run goes on to the state that it would have had."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from crewlite import History
from tests import children

PROGRAM = Path(__file__).with_name("stateful.py")
CALLS = 8


def life(location, at=0):
    """One life of the program, which dies at this call; how it ended, and what it came to."""
    path = os.pathsep.join(sys.path)
    command = [sys.executable, str(PROGRAM), str(location), str(at)]
    ended = children.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    return ended.returncode, json.loads(ended.stdout) if ended.returncode == 0 else ended.stderr


def kept(location):
    with History(str(location)) as history:
        run = history.run("r")
        checkpoints = {one.address: (one.values, one.collections) for one in run.checkpoints()}
        return run.values, run.collections, checkpoints


@pytest.mark.skipif(os.name != "posix", reason="kills itself with a signal")
@pytest.mark.parametrize("suffix", ["", ".db"])
def test_killed_at_any_call_it_comes_to_the_same_state(suffix, tmp_path):
    whole = tmp_path / f"whole{suffix}"
    code, expected = life(whole)
    assert code == 0, expected
    values, items = expected
    assert values["log"] == [1, 10, 11, 2] and values["notes"] == ["tide"] and values["body"] == ["begins", 1]
    assert (values["last"], values["tries"], len(items)) == (2, 1, 5)
    assert kept(whole)[0] == values
    for at in range(1 if suffix else 2, CALLS + 1, 4):
        location = tmp_path / f"killed-{at}{suffix}"
        assert life(location, at)[0] == -9, f"it makes no call {at}"
        assert life(location) == (0, expected), f"killed at call {at}"
        assert kept(location) == kept(whole), f"killed at call {at}"
