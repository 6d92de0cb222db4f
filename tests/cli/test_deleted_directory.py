"""Where the working directory was deleted, kickoffs and commands say so, and what does not need it works."""

from __future__ import annotations

import os
import sys

import pytest

from crewlite import CheckpointConfig, History
from crewlite.errors import StoreUnusable
from crewlite.flow import flow
from crewlite.state import InMemoryProvider, JsonProvider, RuntimeState, SqliteProvider
from tests import children

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows deletes no directory in which a process works")
DELETED = "is relative to the working directory, which was deleted: change to another one, or pass a whole path"


@pytest.fixture
def deleted(tmp_path, monkeypatch):
    """The working directory of the test, which there is no more."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    yield
    os.chdir(tmp_path)  # monkeypatch wants one to come from


def one(config):
    return flow(name="one", checkpoint=config)(lambda: 1)


@pytest.mark.parametrize(("provider", "location"), [(JsonProvider(), "runs"), (SqliteProvider(), "runs.db")])
def test_a_relative_location_cannot_be_used_and_says_why(deleted, tmp_path, provider, location):
    config = CheckpointConfig(location=location, provider=provider)
    for verb in (
        lambda: one(config).kickoff(),
        lambda: RuntimeState.open("r", location, provider=provider),
        lambda: History(location, provider, make=True).runs(),
    ):
        with pytest.raises(StoreUnusable) as caught:
            verb()
        assert str(caught.value) == f"{location}: {DELETED}"
    whole = str(tmp_path / location)
    assert one(CheckpointConfig(location=whole, provider=provider)).kickoff(run_id="r") == 1
    assert History(whole, provider).run("r").status == "finished"


def test_what_is_kept_in_memory_needs_none(deleted):
    config = CheckpointConfig(location="here", provider=InMemoryProvider())
    assert one(config).kickoff(run_id="r") == 1
    assert History("here", config.provider).run("r").status == "finished"
    there = CheckpointConfig(location="here", provider=config.provider, restore_from="r")
    assert one(config).kickoff(from_checkpoint=there) == 1


def test_a_run_is_read_while_a_state_is_kept_in_memory(deleted, tmp_path):
    config = CheckpointConfig(location=str(tmp_path / "runs"))
    assert one(config).kickoff(run_id="r") == 1
    with RuntimeState.open("s", "own", provider=InMemoryProvider()):
        assert History(config.location).run("r").status == "finished"


@pytest.mark.parametrize("command", [["run", "{}/survey.py:survey"], ["checkpoint", "list"], ["create", "project"]])
def test_a_command_says_so(tmp_path, command):
    (tmp_path / "survey.py").write_text("from crewlite.flow import flow\n\n@flow\ndef survey():\n    return 1\n")
    words = " ".join(word.format(tmp_path) for word in command)
    script = f'mkdir gone && cd gone && rmdir ../gone && "{sys.executable}" -P -m crewlite {words}'
    done = children.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr == "Error: the working directory was deleted: change to another one, and call the command again\n"
    )
