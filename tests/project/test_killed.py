"""Programs as people write them for CrewAI, killed at any question, go on and ask nothing twice that was answered."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import children

PROGRAMS = Path(__file__).with_name("programs")
QUESTIONS = {"from_files": 4, "by_hand": 4, "informed": 4, "side_by_side": 6, "streamed": 4, "turns": 4}


def life(name, folder, die_at=0):
    """One life of a program; its exit code, what it printed, and all that was asked so far."""
    asked = folder / "asked.txt"
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([*sys.path, str(PROGRAMS)]),
        "CREWLITE_RUN_ID": "night-7",
        "ASKED": str(asked),
        "DIE_AT": str(die_at),
    }
    command = [sys.executable, str(PROGRAMS / f"{name}.py")]
    ended = children.run(command, env=env, cwd=folder, capture_output=True, text=True)
    return ended.returncode, ended.stdout or ended.stderr, asked.read_text().splitlines()


@pytest.fixture(scope="module", params=QUESTIONS)
def alone(request, tmp_path_factory):
    """A program that nobody kills: its name, what it prints, and what it asks."""
    code, printed, asked = life(request.param, tmp_path_factory.mktemp(request.param))
    assert (code, len(asked)) == (0, QUESTIONS[request.param]), printed
    return request.param, printed, asked


@pytest.mark.skipif(os.name != "posix", reason="kills itself with a signal")
@pytest.mark.parametrize("at", [3, *(pytest.param(at, marks=pytest.mark.soak) for at in (1, 2, 4))])
def test_it_goes_on_and_asks_again_only_what_was_not_answered(alone, at, tmp_path):
    name, printed, asked = alone
    assert life(name, tmp_path, at)[0] == -9
    code, said, again = life(name, tmp_path)
    assert (code, said) == (0, printed), said
    assert sorted(again) == sorted([*asked, again[at - 1]]), "but for the question that it was killed at"
    assert life(name, tmp_path)[1:] == (printed, again), "a third life asks nothing at all"
