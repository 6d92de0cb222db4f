"""What tests of flows share."""

from __future__ import annotations

import importlib
import itertools
import os
import sys
import textwrap

import pytest


@pytest.fixture
def ran():
    return []


@pytest.fixture
def program(tmp_path, monkeypatch):
    """`program(program=..., helper=...)`: the modules of a program as they are written now, loaded anew."""
    versions, names = itertools.count(), set()

    def load(**sources):
        root = tmp_path / f"version-{next(versions)}"
        root.mkdir()
        for name, source in sources.items():
            (root / f"{name}.py").write_text(textwrap.dedent(source))
            sys.modules.pop(name, None)
        names.update(sources)
        monkeypatch.syspath_prepend(root)
        return importlib.import_module("program")

    yield load
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def no_terminal(monkeypatch):
    """Nobody can be asked here."""
    with open(os.devnull) as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        yield
