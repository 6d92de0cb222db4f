"""However a store was damaged, looking at it gives a typed error or the truth, and never does what the data says."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from test_harness import mutant

from tests import children

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="what hangs is told by a signal"),
    pytest.mark.slow,
]


def run(*options: object, environment: dict[str, str] | None = None) -> dict:
    command = [sys.executable, str(HERE / "fuzz.py"), *map(str, options)]
    done = children.run(command, capture_output=True, text=True, timeout=3000, env=environment or dict(os.environ))
    assert done.stdout, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(" ".join(command[2:]), {key: value for key, value in found.items() if key != "violations"})
    assert (done.returncode == 1) == bool(found["broken"])
    return found


@pytest.mark.parametrize(
    ("provider", "count", "more"),
    [("json", 150, ()), ("sqlite", 150, ()), ("sqlite", 150, ("--pages",))],
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


# The fuzzer proves itself: in a copy of crewlite with one check taken out, it finds the hole.

SHAPE = (
    (
        "state/format/entry.py",
        "commit = read_commit(data)\n    except ValueError as misfit",
        "commit: Any = data\n    except ValueError as misfit",
    ),
)
SEAL = (("state/format/entry.py", "if _sum(after, body) != total:", "if False:"),)
ROW = (("state/providers/sqlite.py", "total is not None and total != row_digest(row)", "False"),)
CODEC = (
    (
        "codec.py",
        "except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)",
        "except ArithmeticError",
    ),
)
IMPORT = (
    ("codec.py", "known.get(name) or _registered.get(name)", "known.get(name) or __import__(name.partition(':')[0])"),
)


@pytest.mark.parametrize(
    ("changes", "options", "finding"),
    [
        pytest.param(SHAPE, ("json", 300), "KeyError", id="no shape"),
        pytest.param(SEAL, ("json", 300), "answers something else", id="no seal"),
        pytest.param(ROW, ("sqlite", 300), "places that never were", id="no checksum of a row"),
        pytest.param(CODEC, ("json", 600), "Error", id="raw errors of the codec"),
        pytest.param(IMPORT, ("json", 600), "import", id="a class is imported"),
    ],
)
def test_the_fuzzer_finds_a_check_that_was_taken_out(changes, options, finding, tmp_path):
    environment = mutant(tmp_path / "mutant", *changes)
    provider, count = options
    found = run("--provider", provider, "--count", count, "--until", finding, environment=environment)
    assert any(finding in violation for violation in found["violations"]), found
