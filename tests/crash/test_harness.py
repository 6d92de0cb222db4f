"""The crash harness proves itself: with one promise taken out of crewlite, it finds the break."""

from __future__ import annotations

import pytest
from mutations import SWITCHES
from test_crashes import HERE, pytestmark as pytestmark, run

LONG = pytest.mark.soak  # each kind of mutation has a quick one in `make test`


@pytest.mark.parametrize(
    ("switch", "program", "options", "finding"),
    [
        pytest.param("plain write", "nursery.py", ("--provider", "json"), "torn: CheckpointMismatch", marks=LONG),
        ("a save is not awaited", "nursery.py", ("--provider", "json"), "committed but lost"),
        pytest.param("a save is not awaited", "nursery.py", ("--provider", "sqlite"), "committed but lost", marks=LONG),
        ("no intent", "nursery.py", ("--provider", "json"), "not known to be in doubt"),
        pytest.param("no intent", "nursery.py", ("--provider", "sqlite"), "not known to be in doubt", marks=LONG),
        ("no record is heeded", "trees.py", ("--provider", "json"), "recorded, and done again"),
        ("no fsync", "powercut.py", ("--acts", "", "--disks", "lazy"), "lost"),
        pytest.param(
            "rewrite in place", "nth.py", ("--provider", "json", "--acts", "thin", "--share", "2"), "torn", marks=LONG
        ),
        ("run in place", "nth.py", ("--provider", "json", "--acts", "import", "--share", "3"), "neither"),
        pytest.param(
            "a removed file comes back", "powercut.py", ("--acts", "thin", "--disks", "lazy"), "torn", marks=LONG
        ),
    ],
)
def test_the_harness_finds_a_promise_that_was_taken_out(switch, program, options, finding, tmp_path):
    if program != "powercut.py":
        options = (*options, "--directory", tmp_path / "worlds", "--until", finding)
    if program == "nursery.py":
        options = (*options, "--random", 20)
    code, found = run("mutations.py", switch, HERE / program, *options)
    print(found["violations"][:2])
    assert code == 1
    assert any(finding in violation for violation in found["violations"]), found


def test_each_switch_has_a_trial_that_finds_it():
    trials = (HERE / "test_harness.py").read_text() + (HERE.parent / "state" / "test_fuzz.py").read_text()
    assert [switch for switch in SWITCHES if f'"{switch}"' not in trials] == []
