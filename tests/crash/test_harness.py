"""The crash harness proves itself: in a copy of crewlite with one promise taken out, it finds the break."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from test_crashes import HERE, pytestmark as pytestmark, run

import crewlite

PACKAGE = Path(crewlite.__file__).parent

RENAME = (
    (
        "disk.py",
        'path.with_name(f".{path.name}.{new_id()[-12:]}.tmp")',
        "path",
    ),
    ("disk.py", 'open(path, "xb"', 'open(path, "wb"'),
    ("disk.py", "os.replace(temporary, path)", "pass"),
)

SNAPSHOT = (("state/journal/journal.py", "await waiting", "pass"),)

INTENT = (("runtime/execution.py", 'commit["intents"] = intents', "pass"),)

RECORD = (
    ("runtime/replay.py", "if recorded is not None and not mode.diverged:", "if recorded is not None and False:"),
)

FSYNC = (("disk.py", 'tell("fsync", file)', "pass"), ("disk.py", "os.fsync(handle)", "pass"))

REWRITE = (
    (
        "state/providers/json.py",
        "disk.replace(path, lines(entries))",
        'disk.tell("truncate", path), path.write_bytes(b""), disk.tell("write", path), path.write_bytes(lines(entries))',
    ),
)

ASIDE = (("state/providers/json.py", 'aside = {f"~{new_id()}"', "aside = {run[0].run_id"),)

UNLINK = (("state/providers/json_places.py", "together.sync_directory(self._root)", "pass"),)


def mutant(directory: Path, *changes: tuple[str, str, str]) -> dict[str, str]:
    """A copy of the package with pieces of text replaced, as the environment that uses it."""
    shutil.copytree(PACKAGE, directory / "crewlite", ignore=shutil.ignore_patterns("__pycache__"))
    for file, old, new in changes:
        path = directory / "crewlite" / file
        text = path.read_text()
        assert text.count(old) == 1, f"{file} no longer says {old!r} once: mutate what does its work now"
        path.write_text(text.replace(old, new))
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(directory), str(HERE)]), "PYTHONSAFEPATH": "1"}


LONG = pytest.mark.soak  # each kind of mutation has a quick one in `make test`


@pytest.mark.parametrize(
    ("changes", "program", "options", "finding"),
    [
        pytest.param(
            RENAME,
            "nursery.py",
            ("--provider", "json"),
            "torn: CheckpointMismatch",
            id="rename->plain write",
            marks=LONG,
        ),
        pytest.param(SNAPSHOT, "nursery.py", ("--provider", "json"), "committed but lost", id="snapshot->thread, json"),
        pytest.param(
            SNAPSHOT,
            "nursery.py",
            ("--provider", "sqlite"),
            "committed but lost",
            id="snapshot->thread, sqlite",
            marks=LONG,
        ),
        pytest.param(INTENT, "nursery.py", ("--provider", "json"), "not known to be in doubt", id="no intent, json"),
        pytest.param(
            INTENT,
            "nursery.py",
            ("--provider", "sqlite"),
            "not known to be in doubt",
            id="no intent, sqlite",
            marks=LONG,
        ),
        pytest.param(RECORD, "trees.py", ("--provider", "json"), "recorded, and done again", id="no record is heeded"),
        pytest.param(FSYNC, "powercut.py", ("--acts", "", "--disks", "lazy"), "lost", id="no fsync"),
        pytest.param(
            REWRITE,
            "nth.py",
            ("--provider", "json", "--acts", "thin", "--share", "2"),
            "torn",
            id="rewrite in place",
            marks=LONG,
        ),
        pytest.param(
            ASIDE, "nth.py", ("--provider", "json", "--acts", "import", "--share", "3"), "neither", id="run in place"
        ),
        pytest.param(
            UNLINK,
            "powercut.py",
            ("--acts", "thin", "--disks", "lazy"),
            "torn",
            id="a removed file comes back",
            marks=LONG,
        ),
    ],
)
def test_the_harness_finds_a_promise_that_was_taken_out(changes, program, options, finding, tmp_path):
    environment = mutant(tmp_path / "mutant", *changes)
    if program == "nursery.py":
        options = (*options, "--directory", tmp_path / "yards", "--random", 20)
    if program == "trees.py":
        options = (*options, "--directory", tmp_path / "trees")
    if program == "nth.py":
        options = (*options, "--directory", tmp_path / "worlds")
    if program != "powercut.py":
        options = (*options, "--until", finding)
    code, found = run(program, *options, environment=environment)
    print(found["violations"][:2])
    assert code == 1
    assert any(finding in violation for violation in found["violations"]), found


def test_an_unchanged_copy_breaks_nothing(tmp_path):
    environment = mutant(tmp_path / "copy")
    code, found = run("powercut.py", "--acts", "fork", "--disks", "lazy", environment=environment)
    assert (code, found["violations"]) == (0, [])
