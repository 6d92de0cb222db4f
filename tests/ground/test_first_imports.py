"""A program may begin with the import of any module, as with `from crewlite.errors import Suspended`."""

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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_any_module_can_be_imported_first():
    done = children.run([sys.executable, "-c", FIRST], capture_output=True, text=True, cold=True)
    assert (done.stdout, done.stderr) == ("", "")
