"""Killed at any attempt, a run goes on with what is left of the budget, whatever it is that fails."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from crewlite import CheckpointConfig, History
from crewlite.recovery import Abort, Retry
from tests import children

from .failing import ADDRESS, World

PROGRAM = Path(__file__).with_name("failing.py")
KILLS = [(3, ""), (2, ".db"), (1, ""), (2, ""), (1, ".db"), (3, ".db")]
TRIALS = [
    pytest.param(noun, *kill, marks=[] if KILLS.index(kill) == number % 2 else pytest.mark.soak)
    for number, noun in enumerate(ADDRESS)
    for kill in KILLS
]
"""Each noun is killed once in `make test`, every other one in a database."""


def life(noun, location, at):
    """One life of the program, which dies at this call; how it ended, and how many calls there have been."""
    path = os.pathsep.join(sys.path)
    command = [sys.executable, str(PROGRAM), noun, str(location), str(at)]
    ended = children.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    return ended.returncode, len(Path(f"{location}.calls").read_text().splitlines())


@pytest.mark.skipif(os.name != "posix", reason="kills itself with a signal")
@pytest.mark.parametrize(("noun", "at", "suffix"), TRIALS)
def test_a_budget_is_counted_over_all_lives(noun, at, suffix, tmp_path):
    location = tmp_path / f"runs{suffix}"
    assert life(noun, location, at) == (-9, at)
    with History(str(location)) as history:
        before = [one.number for one in history.run("r").attempts if one.address == ADDRESS[noun]]
    assert before == list(range(1, at)), "the call that was cut is no attempt that failed"
    code, calls = life(noun, location, 0)
    assert (code, calls) == (0 if noun == "tool" else 1, 4), "two more than the first, and the one that was cut"
    with History(str(location)) as history:
        attempts = [one for one in history.run("r").attempts if one.address == ADDRESS[noun]]
    kind = "refused" if noun == "task" else "bug"
    remedies = [Retry(0, kind), Retry(0, kind), *([] if noun == "tool" else [Abort()])]  # the model is told at last
    assert [(one.number, one.remedy) for one in attempts] == list(enumerate(remedies, 1))


@pytest.mark.skipif(os.name != "posix", reason="kills itself with a signal")
@pytest.mark.parametrize(
    ("noun", "told"),
    [
        ("step", ["has failed, and is tried again"]),
        ("task", ["is recorded", "has failed, and is tried again"]),
        ("llm", ["is recorded", "was begun, and has not finished"]),
        ("tool", ["is recorded", "was begun, and has not finished"]),
    ],
)
def test_a_preview_tells_of_what_is_tried_again(noun, told, tmp_path):
    location = tmp_path / "runs"
    assert life(noun, location, 2)[0] == -9
    preview = World(noun, checkpoint=CheckpointConfig(location=str(location))).flow.preview(run_id="r")
    assert [step.why for step in preview] == told
