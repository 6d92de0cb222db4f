"""Killed anywhere, a run resumes to the result it would have had, and no recorded step runs again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import children

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="the nursery forks; Windows cannot"),
    pytest.mark.timeout(1500),
    pytest.mark.slow,
]


def run(program: str, *arguments: object) -> tuple[int, dict]:
    """Run a program of trials to its end, however slow the machine: what bounds it is the time that its test has."""
    command = [sys.executable, str(HERE / program), *map(str, arguments)]
    # a mutation changes modules before others take names from them
    done = children.run(command, capture_output=True, text=True, timeout=None, cold=program == "mutations.py")
    print(done.stderr[-3000:])
    assert done.stdout
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("provider", ["json", "sqlite"])
def test_killed_at_operations_and_at_random_instants_nothing_is_lost_or_done_twice(provider, tmp_path):
    options = ("--directory", tmp_path, "--random", 3, "--share", 12)
    code, found = run("nursery.py", "--provider", provider, *options)
    assert found["violations"] == []
    assert code == 0
    assert found["kills"] >= 6


@pytest.mark.parametrize("provider", ["json", "sqlite"])
def test_the_same_holds_between_really_separate_processes(provider, tmp_path):
    code, found = run("nursery.py", "--provider", provider, "--directory", tmp_path, "--random", 2, "--separate")
    assert found["violations"] == []
    assert code == 0
    assert found["trials"] == 2


@pytest.mark.parametrize("provider", ["json", "sqlite"])
@pytest.mark.parametrize("mode", ["async", "fold", "fork"])
def test_killed_at_random_instants_other_runs_are_right_too(mode, provider, tmp_path):
    options = ("--directory", tmp_path, "--mode", mode, "--random", 6)
    code, found = run("nursery.py", "--provider", provider, *options)
    print(found)
    assert found["violations"] == []
    assert code == 0
    assert found["kills"] > 0


def test_a_power_cut_after_any_operation_loses_nothing_that_was_acknowledged():
    code, found = run("powercut.py", "--acts", "fork,delete,thin", "--every", 15)
    assert found["violations"] == []
    assert code == 0
    assert found["cuts"] > 8


@pytest.mark.soak
def test_a_power_cut_in_the_middle_of_anything():
    code, found = run("powercut.py")
    print(found)
    assert found["violations"] == []
    assert code == 0
    assert found["cuts"] > 500


@pytest.mark.soak
@pytest.mark.parametrize("provider", ["json", "sqlite"])
@pytest.mark.parametrize(("mode", "trials"), [("async", 200), ("fold", 100), ("fork", 100)])
def test_hundreds_of_kills_of_other_runs(mode, trials, provider, tmp_path):
    options = ("--directory", tmp_path, "--mode", mode, "--random", trials, "--seed", 7, "--operations")
    code, found = run("nursery.py", "--provider", provider, *options)
    print(found)
    assert found["violations"] == []
    assert code == 0
    assert found["kills"] >= trials / 2  # on a machine that is busy for a while, others come after the end


@pytest.mark.soak
@pytest.mark.parametrize("provider", ["json", "sqlite"])
def test_a_hundred_kills_with_ten_megabytes(provider, tmp_path):
    options = ("--directory", tmp_path, "--mode", "big", "--random", 220, "--seed", 7)
    code, found = run("nursery.py", "--provider", provider, *options)
    print(found)
    assert found["violations"] == []
    assert code == 0
    assert found["kills"] >= 100


@pytest.mark.soak
@pytest.mark.parametrize("provider", ["json", "sqlite"])
def test_a_thousand_kills_among_them_one_at_every_operation(provider, tmp_path):
    code, found = run("nursery.py", "--provider", provider, "--directory", tmp_path, "--random", 1300, "--seed", 7)
    print(found)
    assert found["violations"] == []
    assert code == 0
    assert found["kills"] >= 1000


@pytest.mark.parametrize("provider", ["json", "sqlite"])
def test_trees_of_steps_killed_at_random_instants_end_as_if_nobody_had_killed_them(provider, tmp_path):
    code, found = run("trees.py", "--provider", provider, "--directory", tmp_path, "--trees", 5)
    print(found)
    assert found["violations"] == []
    assert code == 0
    assert found["kills"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("provider", ["json", "sqlite"])
def test_thousands_of_trees_killed_at_random_instants(provider, tmp_path):
    code, found = run("trees.py", "--provider", provider, "--directory", tmp_path, "--trees", 1200, "--seed", 7)
    print(found)
    assert found["violations"] == []
    assert code == 0
    assert found["kills"] > 1200
