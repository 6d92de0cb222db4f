"""However a store was damaged, looking at it gives a typed error or the truth, and never does what the data says."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests import children
from tests.soak import sample

HERE = Path(__file__).parent
MUTATIONS = HERE.parent / "crash" / "mutations.py"

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="what hangs is told by a signal"),
    pytest.mark.slow,
]


def run(*options: object, switch: str | None = None) -> dict:
    program = [str(MUTATIONS), switch] if switch else []
    command = [sys.executable, *program, str(HERE / "fuzz.py"), *map(str, options)]
    done = children.run(command, capture_output=True, text=True, timeout=None, cold=True)
    assert done.stdout, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(" ".join(command[2:]), {key: value for key, value in found.items() if key != "violations"})
    assert (done.returncode == 1) == bool(found["broken"])
    return found


@pytest.mark.parametrize(
    ("provider", "count", "more"),
    [("json", 60, ()), ("sqlite", 60, ()), ("sqlite", 60, ("--pages",))],
    ids=["files", "rows", "pages"],
)
def test_damage_gives_typed_errors_or_the_truth(provider, count, more):
    found = run("--provider", provider, "--count", count, *more)
    assert found["violations"] == []
    assert found["outcomes"]["run: answered"] > count / 20, "the damage was so great that nothing was seen"
    assert found["outcomes"]["run: JournalCorrupt"] > count / 20, "the damage was so small that nothing was seen"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("provider", "count", "more"),
    [("json", 10_000, ()), ("sqlite", 10_000, ()), ("sqlite", 2_000, ("--pages",))],
    ids=["files", "rows", "pages"],
)
def test_twenty_thousand_mutants(provider, count, more):
    assert run("--provider", provider, "--count", count, "--seed", 7, *more)["violations"] == []


# The fuzzer proves itself: with one check taken out of crewlite, it finds the hole.


@pytest.mark.parametrize(
    ("switch", "provider", "finding", "seed"),  # a seed that leads to the finding soon
    sample(
        [
            ("no shape", "json", "KeyError", 2),
            ("no seal", "json", "answers something else", 1),
            ("no checksum of a row", "sqlite", "places that never were", 5),
            ("raw errors of the codec", "json", "Error", 6),
            ("a class is imported", "json", "import", 54),
        ],
        2,
    ),
)
def test_the_fuzzer_finds_a_check_that_was_taken_out(switch, provider, finding, seed):
    found = run("--provider", provider, "--count", 800, "--seed", seed, "--until", finding, switch=switch)
    assert any(finding in violation for violation in found["violations"]), found


def test_a_journal_that_is_a_link_to_itself_is_no_bare_error_of_the_system():
    assert run("--provider", "json", "--seed", 7, "--only", 13)["violations"] == []


def test_a_control_character_in_the_name_of_a_branch_imports_no_codec():
    assert run("--provider", "sqlite", "--seed", 7, "--only", 873)["violations"] == []
