"""The crash harness proves itself: in a copy of crewlite with one promise taken out, it finds the break."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from test_crashes import pytestmark as pytestmark, run

import crewlite

PACKAGE = Path(crewlite.__file__).parent

RENAME = (
    (
        "disk.py",
        'temporary = path.with_name(f".{path.name}.{new_id()[-12:]}.tmp")',
        "temporary = path",
    ),
    ("disk.py", 'open(temporary, "xb"', 'open(temporary, "wb"'),
    ("disk.py", "os.replace(temporary, path)", "pass"),
)

SNAPSHOT = (("state/journal.py", "await waiting", "pass"),)

INTENT = (("runtime/execution.py", 'commit["intents"] = intents', "pass"),)

FSYNC = (("disk.py", 'tell("fsync", path)\n    os.fsync(file.fileno())', "pass"),)


def mutant(directory: Path, *changes: tuple[str, str, str]) -> dict[str, str]:
    """A copy of the package with pieces of text replaced, as the environment that uses it."""
    shutil.copytree(PACKAGE, directory / "crewlite", ignore=shutil.ignore_patterns("__pycache__"))
    for file, old, new in changes:
        path = directory / "crewlite" / file
        text = path.read_text()
        assert text.count(old) == 1, f"{file} no longer says {old!r} once: mutate what does its work now"
        path.write_text(text.replace(old, new))
    return {**os.environ, "PYTHONPATH": str(directory), "PYTHONSAFEPATH": "1"}


@pytest.mark.parametrize(
    ("changes", "program", "options", "finding"),
    [
        pytest.param(
            RENAME, "nursery.py", ("--provider", "json"), "torn: CheckpointMismatch", id="rename->plain write"
        ),
        pytest.param(SNAPSHOT, "nursery.py", ("--provider", "json"), "committed but lost", id="snapshot->thread, json"),
        pytest.param(
            SNAPSHOT, "nursery.py", ("--provider", "sqlite"), "committed but lost", id="snapshot->thread, sqlite"
        ),
        pytest.param(INTENT, "nursery.py", ("--provider", "json"), "not known to be in doubt", id="no intent, json"),
        pytest.param(
            INTENT, "nursery.py", ("--provider", "sqlite"), "not known to be in doubt", id="no intent, sqlite"
        ),
        pytest.param(FSYNC, "powercut.py", (), "lost", id="no fsync"),
    ],
)
def test_the_harness_finds_a_promise_that_was_taken_out(changes, program, options, finding, tmp_path):
    environment = mutant(tmp_path / "mutant", *changes)
    if program == "nursery.py":
        options = (*options, "--directory", tmp_path / "yards", "--random", 20)
    code, found = run(program, *options, environment=environment)
    print(found["violations"][:2])
    assert code == 1
    assert any(finding in violation for violation in found["violations"]), found


def test_an_unchanged_copy_breaks_nothing(tmp_path):
    environment = mutant(tmp_path / "copy")
    code, found = run("powercut.py", environment=environment)
    assert (code, found["violations"]) == (0, [])
