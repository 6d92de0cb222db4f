"""Where values are kept: in memory or on disk, by one opener at a time, seen by all that reads runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from crewlite import Agent, CheckpointConfig, History
from crewlite.cli.main import main
from crewlite.concurrency import background
from crewlite.encoding import codec
from crewlite.errors import (
    BranchConflictError,
    ConfigError,
    JournalCorrupt,
    NotCodable,
    OnLoopThread,
    RefError,
    RunMismatch,
    StoreError,
)
from crewlite.state import RuntimeState
from crewlite.state.format.entry import seal
from crewlite.state.journal.compaction import size
from crewlite.state.providers import Commit, provider_for
from crewlite.testing import CrashInjector
from crewlite.usage import Usage
from tests import children

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_without_a_location_no_file_is_made(tmp_path):
    with RuntimeState.open("bag") as state:
        state["a"] = 1
        state.restore(state.snapshot())
    assert list(tmp_path.iterdir()) == []


def test_a_value_whose_class_is_not_known_here_keeps_its_form_until_it_is_changed(location):
    class Strange(NamedTuple):  # within a list, so that setting it declares it not
        n: list

    with RuntimeState.open("bag", location) as state:
        state["a"], state["b"] = [Strange([1])], [Strange([1])]
        state.snapshot()
    with RuntimeState.open("bag", location) as state:
        assert state["a"] == state["b"] == [([1],)]
        with pytest.raises(ZeroDivisionError), state.rollback_on_error():
            state["b"][0][0].append(2)
            state.snapshot()
            1 / 0  # noqa: B018
        first = state.snapshot()
        state.restore(state.checkpoints()[1])
        state["b"][0][0].append(3)
        last = state.snapshot()
    assert first.versions == {"a": 1, "b": 3}
    codec.register(Strange)
    assert first.values == {"a": [Strange([1])], "b": [Strange([1])]}
    assert last.values == {"a": [Strange([1])], "b": [([1, 2, 3],)]}


def test_opening_again_goes_on_from_the_last_snapshot(location):
    with RuntimeState.open("bag", location) as state:
        state["a"], state["when"] = 1, (NOON,)
        state.add_usage(prompt_tokens=3)
        state.snapshot()
        state["a"] = 2
        last = state.snapshot()
        state["a"] = "in no snapshot"
        state.add_usage(prompt_tokens=1000)
    with RuntimeState.open("bag", location) as again:
        assert dict(again) == {"a": 2, "when": (NOON,)}
        assert (again.latest, again.usage) == (last, Usage(prompt_tokens=3))
        again["a"] = 3
        made = again.snapshot()
        assert (made.version, made.versions, made.parent_id) == (3, {"a": 3, "when": 1}, last.id)


def test_a_state_has_one_opener_at_a_time(location):
    with RuntimeState.open("bag", location) as state:
        state["a"] = 1
        with pytest.raises(BranchConflictError, match=r"State 'bag' is held by this process.*close\(\)"):
            RuntimeState.open("bag", location)
        code = f"from crewlite.state import RuntimeState; RuntimeState.open('bag', {location!r})"
        other = children.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "BranchConflictError" in other.stderr
        assert f"process {os.getpid()} on" in other.stderr
        state.snapshot()
    RuntimeState.open("bag", location).close()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL, which this platform has not")
def test_a_restore_survives_a_kill(location, tmp_path):
    code = f"""
import os, signal
from crewlite.state import RuntimeState
state = RuntimeState.open("bag", {location!r})
state["a"] = [1]
first = state.snapshot()
state["a"].append(2)
state["b"] = 1
state.snapshot()
state.restore(first)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert children.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    with RuntimeState.open("bag", location) as state:
        assert dict(state) == {"a": [1]}
        made = state.snapshot()
        assert (made.version, made.parent_id) == (3, state.checkpoints()[0].id)
        assert made.versions == {"a": 3, "b": 2}


def test_history_and_forks_see_a_state(location):
    with RuntimeState.open("bag", location) as state:
        state["a"] = 1
        first = state.snapshot(label="base")
        state["a"] = 2
        second = state.snapshot()
    with History(location) as history:
        run = history.run("bag")
        assert (run.definition, run.inputs, run.usage) == ({"kind": "state", "name": "bag"}, {}, Usage())
        assert run.checkpoints() == [first, second]
        assert history.checkpoint(second.ref) == second
        assert history.doctor() == []
        history.fork(first, branch="b")
        history.fork("bag", branch="head")
        digest = history.export("bag", "bag.json")
    with RuntimeState.open("bag/b", location) as fork:
        assert (dict(fork), fork.branch) == ({"a": 1}, "b")
        fork["b"] = True
        made = fork.snapshot()
        assert (made.version, made.parent_id, made.versions) == (2, first.id, {"a": 1, "b": 1})
        assert second.diff(made).changed == {"a": (2, 1)}
    with RuntimeState.open("bag/head", location) as fork:
        assert (dict(fork), fork.latest.version) == ({"a": 2}, 2)
        assert fork.snapshot().version == 3
    with RuntimeState.open("bag", location) as state:
        assert (dict(state), state.latest) == ({"a": 2}, second)
    with History("copy", make=True) as copied:
        assert copied.import_run("bag.json").digest == digest
        assert copied.checkpoint("bag@label:base").values == {"a": 1}


def test_the_terminal_tells_of_a_state(location):
    from click.testing import CliRunner

    with RuntimeState.open("bag", location) as state:
        state["a"] = [1]
        state.snapshot(label="base")
    said = CliRunner().invoke(main, ["checkpoint", "info", "bag", "--location", location])
    assert 'values      {"a": [1]}' in said.output
    assert f"RuntimeState.open('bag', {location!r})" in said.output
    assert f"History({location!r}).fork(" in said.output
    data = json.loads(CliRunner().invoke(main, ["checkpoint", "info", "bag", "--location", location, "--json"]).output)
    assert (data["values"], data["versions"], data["version"]) == ({"a": [1]}, {"a": 1}, 1)
    for verb in ("list", "show", "tree", "doctor"):
        done = CliRunner().invoke(main, ["checkpoint", verb, "--location", location])
        assert (done.exit_code, done.exception) == (0, None), done.output


def test_a_restore_after_which_everything_was_pruned_is_remembered(location):
    with RuntimeState.open("bag", location) as state:
        for number in range(4):
            state["a"] = number
            state.snapshot()
        state.restore(3)
        third = state.checkpoints()[2].id
    with History(location) as history:
        history.prune(keep_last=2)
        history.fork("bag", branch="b")
    for name in ("bag", "bag/b"):
        with RuntimeState.open(name, location) as state:
            assert dict(state) == {"a": 2}
            assert (made := state.snapshot()).parent_id == third
            assert made.version == 5


def test_storage_grows_with_what_changes(tmp_path):
    sizes = {}
    for count in (50, 100, 200):
        location = str(tmp_path / f"{count}.db")
        with RuntimeState.open("bag", location) as state:
            state["big"] = ["x" * 100] * 100
            for number in range(count):
                state[f"k{number % 7}"] = f"value {number}"
                state.snapshot()
        with History(location) as history:
            assert len(history.run("bag").checkpoints()) == count
        store = provider_for(location).open(location)
        sizes[count] = size(store.read("bag", "main"))
        store.close()
    first, second = sizes[100] - sizes[50], sizes[200] - sizes[100]
    assert first < 50 * 1000, "a snapshot costs what has changed"
    assert abs(second - 2 * first) < first / 10


@pytest.mark.parametrize(
    "forged",
    [
        [],
        {"set": []},
        {"set": {"a": 1}, "versions": {"a": 0}},
        {"set": {"a": 1}, "versions": {"a": "1"}},
        {"gone": "a"},
        {"gone": [1]},
        {"restored": "not an id"},
        {"set": {"a": {"$": "nothing", "v": 1}}, "versions": {"a": 9}},
    ],
)
def test_forged_values_are_a_typed_error(location, forged):
    with RuntimeState.open("bag", location) as state:
        state["a"] = 0
        state.snapshot()
    store = provider_for(location).open(location)
    last = store.read("bag", "main")[-1]
    commit = {"schema": 1, "seq": last.seq + 1, "at": NOON.isoformat(), "values": forged}
    store.append([Commit("bag", "main", last.seq, last.sum, (seal(commit, after=last.sum),))])
    store.close()
    with pytest.raises((JournalCorrupt, NotCodable)), RuntimeState.open("bag", location) as state:
        state["a"]


def test_a_snapshot_that_cannot_be_saved_says_so_and_comes_with_the_next(location):
    with RuntimeState.open("bag", location) as state:
        state["a"] = 1
        with (
            CrashInjector(at=1, error=OSError(28, "disk full")),
            pytest.raises(StoreError, match="not saved .*disk full.*free space"),
        ):
            state.snapshot()
        state["a"] = 2
        assert state.snapshot().version == 2
    with RuntimeState.open("bag", location) as state:
        assert [one.values for one in state.checkpoints()] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("name", ["", "a b", "..", "latest", None, 7])
def test_a_state_needs_a_usable_name(name):
    with pytest.raises(ConfigError, match="is not a usable name" if isinstance(name, str) else "wanted a text"):
        RuntimeState.open(name)


def test_a_branch_that_is_not_there_is_not_opened(anywhere):
    with pytest.raises(RefError, match=r"'bag/b' names no branch; create one .* History\(location\).fork"):
        RuntimeState.open("bag/b", anywhere)
    RuntimeState.open("bag", anywhere).close()


def test_a_run_of_another_kind_is_not_opened(location):
    Agent(role="Clerk", goal="answer", llm="offline", checkpoint=CheckpointConfig(location=location)).kickoff(
        "Hello", run_id="bag"
    )
    with pytest.raises(RunMismatch, match="is of agent 'Clerk', and not a saved state"):
        RuntimeState.open("bag", location)


def test_a_closed_state_can_be_read_and_no_more(anywhere):
    state = RuntimeState.open("bag", anywhere)
    state["a"] = 1
    state.close()
    state.close()
    changes = (lambda: state.update(a=2), lambda: state.pop("a"), lambda: state.add_usage(requests=1))
    for act in (*changes, state.snapshot, state.checkpoints, lambda: state.restore(1)):
        with pytest.raises(StoreError, match="the state was closed"):
            act()
    assert (state["a"], state.usage) == (1, Usage())


def test_a_state_is_used_from_a_thread_with_a_loop_of_its_own(anywhere):
    async def cell():
        with RuntimeState.open("bag", anywhere) as state:
            state["a"] = 1
            first = state.snapshot()
            state["a"] = 2
            state.restore(first)
            return dict(state)

    assert asyncio.run(cell()) == {"a": 1}


def test_on_crewlites_own_loop_a_state_is_opened_with_aopen(anywhere):
    async def blocking():
        with pytest.raises(OnLoopThread, match=r"await aopen\(\)"):
            RuntimeState.open("bag", anywhere)
        state = await RuntimeState.aopen("bag", anywhere)
        with pytest.raises(OnLoopThread, match=r"await aclose\(\)"):
            state.close()
        async with state:
            state["a"] = 1
            return state.snapshot().version, (await state.asnapshot()).version

    assert background.submit(blocking()).result(timeout=30) == (1, 2)
    RuntimeState.open("bag", anywhere).close()


def test_threads_may_share_a_state(state):
    def work(number):
        for step in range(20):
            state[f"t{number}"] = step
            state.add_usage(requests=1)
            if step % 5 == 0:
                state.snapshot()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = state.snapshot()
    assert last.values == {f"t{number}": 19 for number in range(4)}
    assert (last.version, last.usage.requests) == (17, 80)


def test_a_checkpoint_file_is_restored_by_its_path_as_it_is_seen_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with RuntimeState.open("bag", "./store") as state:
        state["a"] = 1
        ref = state.snapshot().ref
        for seen in (ref, os.path.abspath(ref), os.path.relpath(ref)):
            state["a"] = 2
            state.restore(seen)
            assert state["a"] == 1


def test_what_is_given_in_place_of_a_checkpoint_or_a_location_is_told_in_short():
    with RuntimeState.open("bag") as state:
        state["a"] = 1
        made = state.snapshot()
        for use in (state.restore, made.diff):
            with pytest.raises(ConfigError, match=r"^A dict is not a checkpoint; .* Checkpoint.from_dict\(data\)$"):
                use(made.to_dict())
        with pytest.raises(ConfigError, match="3 is not a checkpoint; wanted a Checkpoint"):
            made.diff(3)
    with pytest.raises(ConfigError, match=r"RuntimeState.open\(name, config.location, config.provider\)"):
        RuntimeState.open("bag", CheckpointConfig(location="x"))
