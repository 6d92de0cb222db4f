"""Whichever operation on the disk fails, or is the last: all is as it was or as it is to be, and can be done again."""

from __future__ import annotations

import pytest
from test_crashes import pytestmark as pytestmark, run

# The provider in memory is not here: it has no door to the disk, so no operation of it can fail or be the last.
PROVIDERS = ["json", "sqlite"]


def hold(found: dict, code: int) -> None:
    print(found["operations"], found["trials"])
    assert found["violations"] == []
    assert code == 0


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_is_cut_or_refused_is_whole_and_can_be_done_again(provider, tmp_path):
    code, found = run("nth.py", "--provider", provider, "--directory", tmp_path, "--share", 1000)
    hold(found, code)
    assert found["trials"] > 10
    assert all(found["operations"].values()), "each act is one that writes"


@pytest.mark.soak
@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_fault_at_every_operation(provider, tmp_path):
    code, found = run("nth.py", "--provider", provider, "--directory", tmp_path, "--all")
    hold(found, code)
    assert found["trials"] > 1000
