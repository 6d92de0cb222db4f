"""What a refused command advises is what helps there."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from crewlite import Agent, History
from crewlite.cli.main import main
from crewlite.errors import BranchConflictError
from crewlite.flow import flow, step
from tests import children


def cli(*words):
    return CliRunner().invoke(main, ["checkpoint", *words], prog_name="crewlite")


def test_a_run_at_work_that_is_to_be_deleted_is_cancelled_first():
    begun, go = threading.Event(), threading.Event()

    @step
    def nap() -> None:
        begun.set()
        assert go.wait(children.PATIENCE)

    @flow(checkpoint=True)
    def work() -> None:
        nap()

    handle = work.submit(run_id="w")
    try:
        assert begun.wait(children.PATIENCE)
        done = cli("delete", "w", "--yes")
        assert done.exit_code == 1
        assert "is being run by this process, so the run was not deleted. Cancel it first: " in done.stderr
        assert "crewlite checkpoint cancel w/main --location " in done.stderr
        with History() as history, pytest.raises(BranchConflictError, match="Cancel it first"):
            history.delete("w")
    finally:
        go.set()
        handle.result(children.PATIENCE)
    assert cli("delete", "w", "--yes").exit_code == 0


def test_a_run_that_asks_nothing_says_how_it_goes_on_and_not_which_runs_there_are():
    Agent(role="Clerk", goal="g", llm="offline", checkpoint=True).kickoff("What?", run_id="done")
    done = cli("answer", "done", "human:ok", "yes")
    assert done.exit_code == 1
    assert "'human:ok' is not an open question of run 'done', which waits for no answer" in done.stderr
    assert "list --runs" not in done.stderr


def test_a_directory_that_is_named_like_a_database_is_to_be_renamed():
    Path("dir.db").mkdir()
    done = cli("list", "--location", "dir.db")
    assert done.exit_code == 1
    assert "is a directory, and a name that ends like this is that of a database: rename the directory" in done.stderr
