"""A program may begin with the import of any module, as with `from crewlite.errors import Suspended`, and in any mode."""

from __future__ import annotations

import os
import sys

import pytest

from tests import children

FIRST = """
import importlib, os, pkgutil
import crewlite

for found in pkgutil.iter_modules(crewlite.__path__, "crewlite."):
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    try:
        importlib.import_module(found.name)
    except ImportError as error:
        print(found.name, error, flush=True)
    os._exit(0)
"""

BARE = """
from crewlite import tool
from crewlite.errors import ConfigError
from crewlite.flow import flow, step

tries = []

@step(retries=1)
def load() -> int:
    tries.append(1)
    if len(tries) < 2:
        raise ConnectionError("down")
    return 7

@flow(checkpoint=True)
def count() -> int:
    return load()

print(count.kickoff(run_id="r"), count.kickoff(run_id="r"), len(tries))

try:
    @tool
    def look() -> str:
        'Look around.'
except ConfigError as error:
    print(error)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_any_module_can_be_imported_first():
    done = children.run([sys.executable, "-c", FIRST], capture_output=True, text=True, cold=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_run_needs_no_docstrings_and_a_tool_says_that_it_does(tmp_path):
    done = children.run(
        [sys.executable, "-OO", "-W", "error", "-c", BARE], cwd=tmp_path, capture_output=True, text=True, cold=True
    )
    assert (done.stdout, done.stderr) == (
        "7 7 2\nTool 'look' has no docstring; run without python -OO and PYTHONOPTIMIZE=2, which leave them out: it is "
        "what the model reads\n",
        "",
    )
