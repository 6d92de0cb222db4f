"""Killed anywhere, a run whose tools are limited, kept or the answer goes on as it would have gone."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests import children

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork"),
    pytest.mark.slow,
    pytest.mark.timeout(1500),
]


@pytest.mark.parametrize("suffix", ["", ".db"], ids=["json", "sqlite"])
@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.soak)])
def test_killed_before_any_operation_limits_kept_results_and_answers_are_as_without_it(suffix, every, tmp_path):
    program = Path(__file__).with_name("lives.py")
    command = [sys.executable, str(program), "--directory", str(tmp_path / "lives"), "--suffix", suffix]
    command += ["--every", str(every)]
    done = children.run(command, capture_output=True, text=True, timeout=None)
    found = json.loads(done.stdout)
    assert found["violations"] == [], done.stderr
    assert found["trials"] == -(-found["operations"] // every) > 20 // every
