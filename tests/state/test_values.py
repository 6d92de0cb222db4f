"""Values beside a run: what was set is what comes back, whatever happens in between."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import FrozenInstanceError, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from crewlite import Agent, CheckpointConfig, Crew, History, LLMReply, Task, background, event_bus
from crewlite.cli.main import main
from crewlite.codec import encode
from crewlite.errors import (
    BranchConflictError,
    ConfigError,
    JournalCorrupt,
    NotCodable,
    OnLoopThread,
    RefError,
    RunMismatch,
    SchemaTooNew,
    StoreError,
)
from crewlite.events import CheckpointFailedEvent, CrewKickoffCompletedEvent, LLMCallCompletedEvent, TaskCompletedEvent
from crewlite.state import Checkpoint, InMemoryProvider, RuntimeState
from crewlite.state.entry import seal
from crewlite.state.fold import size
from crewlite.state.providers import Commit, provider_for
from crewlite.testing import CrashInjector, EventRecorder, ScriptedLLM
from crewlite.usage import Usage

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture(params=["kept", "kept.db"])
def location(request, tmp_path):
    return str(tmp_path / request.param)


@pytest.fixture(params=[None, "kept", "kept.db"])
def anywhere(request, tmp_path):
    return str(tmp_path / request.param) if request.param else None


@pytest.fixture
def state(anywhere):
    with RuntimeState.open("bag", anywhere) as opened:
        yield opened


# As a mapping


def test_a_state_is_a_mutable_mapping(state):
    assert len(state) == 0
    state["a"] = 1
    state.update(b={"x": (1, NOON)}, c=None)
    assert (list(state), len(state), "a" in state, "z" in state) == (["a", "b", "c"], 3, True, False)
    assert (state["b"], state.get("z"), state.get("z", 7)) == ({"x": (1, NOON)}, None, 7)
    del state["a"]
    assert state.pop("c") is None
    assert dict(state) == {"b": {"x": (1, NOON)}}
    for missing in ("a", "never"):
        with pytest.raises(KeyError, match=missing):
            state[missing]
        with pytest.raises(KeyError, match=missing):
            del state[missing]


def test_what_was_recorded_is_deleted_and_set_again(state):
    state["a"], state["b"] = 1, 2
    state.snapshot()
    del state["a"]
    assert (list(state), "a" in state, len(state)) == (["b"], False, 1)
    with pytest.raises(KeyError):
        del state["a"]
    state["a"] = 3
    assert dict(state) == {"a": 3, "b": 2}


@pytest.mark.parametrize("name", [1, None, ("a",), "\ud83d\ude00"])
def test_only_a_text_names_a_value(state, name):
    with pytest.raises(ConfigError, match=r"is no name for a value; wanted a text"):
        state[name] = 1


def test_what_cannot_be_recorded_is_told_with_its_path_at_the_snapshot(state):
    state["good"] = 1
    state["bad"] = {"deep": [0, lambda: 1]}
    with pytest.raises(NotCodable, match=r"state\['bad'\]\.deep\[1\] is a function"):
        state.snapshot()
    assert state.checkpoints() == []
    del state["bad"]
    assert state.snapshot().values == {"good": 1}


def test_a_secret_is_masked_in_what_is_recorded(location, monkeypatch, caplog):
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    with RuntimeState.open("bag", location) as state:
        state["header"] = {"auth": "Bearer sk-very-secret"}
        first, second = state.snapshot(), state.snapshot()
        assert state["header"] == {"auth": "Bearer sk-very-secret"}
    assert first.values == {"header": {"auth": "Bearer [secret]"}}
    assert second.versions == {"header": 1}
    assert "state['header'] held a configured secret, which was masked" in caplog.text
    stored = [path.read_bytes() for path in Path(location).parent.rglob("*") if path.is_file()]
    assert not any(b"sk-very-secret" in data for data in stored)


def test_a_name_that_holds_a_secret_is_refused_without_telling_it(state, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    with RuntimeState.open("other") as other:
        other["sk-very-secret"] = 1
        with pytest.raises(NotCodable, match=r"state\['\[secret\]'\]"):
            other.snapshot()


# Snapshots


def test_a_snapshot_sees_what_was_changed_inside_a_value(state):
    state["data"] = {"results": [1, 2, 3]}
    first = state.snapshot()
    state["data"]["results"].append(4)
    assert state.snapshot().values == {"data": {"results": [1, 2, 3, 4]}}
    assert first.values == {"data": {"results": [1, 2, 3]}}


def test_nothing_done_to_what_was_handed_out_changes_a_checkpoint(state):
    state["data"] = {"results": [1]}
    made = state.snapshot(metadata={"why": ["x"]})
    made.values["data"]["results"].append("theirs")
    made.versions["data"] = 9
    written = made.to_dict()
    written["values"]["data"]["results"].append("theirs")
    state.restore(made)
    state["data"]["results"].append("after the restore")
    assert (made.values, made.versions) == ({"data": {"results": [1]}}, {"data": 1})
    assert state.latest.values == {"data": {"results": [1]}}
    with pytest.raises(FrozenInstanceError):
        made.version = 7


def test_versions_count_real_changes_only(state):
    state["same"], state["grows"], state["goes"] = {"a": 1, "b": 2}, [1], 1
    state.snapshot()
    state["same"] = {"b": 2, "a": 1}
    state["grows"].append(2)
    del state["goes"]
    state["late"] = True
    second = state.snapshot()
    assert second.versions == {"same": 1, "grows": 2, "goes": 2, "late": 1}
    state["late"] = 1
    state["goes"] = 1
    state["grows"].append(3)
    state["grows"].pop()
    assert state.snapshot().versions == {"same": 1, "grows": 2, "goes": 3, "late": 2}
    assert second.versions == {"same": 1, "grows": 2, "goes": 2, "late": 1}


def test_snapshots_are_numbered_and_listed(state):
    assert (state.latest, state.checkpoints()) == (None, [])
    made = [state.snapshot(label="first", metadata={"step": 1}), state.snapshot(), state.snapshot()]
    assert [one.version for one in made] == [1, 2, 3]
    assert state.checkpoints() == made
    assert state.latest == made[-1]
    assert [one.parent_id for one in made] == [None, made[0].id, made[1].id]
    assert (made[0].label, made[0].metadata, made[0].trigger) == ("first", {"step": 1}, "snapshot")
    with pytest.raises(RefError, match="labels another place of this run already"):
        state.snapshot(label="first")


def test_usage_is_added_up_and_is_in_the_snapshots(state):
    state.add_usage(prompt_tokens=10, completion_tokens=5, requests=1)
    first = state.snapshot()
    state.add_usage(Usage(prompt_tokens=1, cost=0.25), cached_tokens=3)
    assert (state.usage.total_tokens, state.usage.cost) == (16, 0.25)
    second = state.snapshot()
    assert (first.usage.total_tokens, second.usage.total_tokens, second.usage.requests) == (15, 16, 1)
    state.restore(first)
    assert state.usage == second.usage, "what was paid stays paid"
    assert first.usage.total_tokens == 15
    with pytest.raises(ConfigError, match="wanted a Usage"):
        state.add_usage({"prompt_tokens": 1})


def test_a_checkpoint_is_made_by_coroutines_too(state):
    async def work():
        state["a"] = 1
        return await state.asnapshot(label="async")

    made = asyncio.run(work())
    assert (made.values, made.version) == ({"a": 1}, 1)
    assert state.latest == made


def test_checkpoint_of_an_opened_state_is_a_snapshot(tmp_path):
    with RuntimeState.open("bag") as state:
        state["a"] = [1]
        state.snapshot()
        state["a"].append(2)
        ref = state.checkpoint(tmp_path / "late", label="kept")
        assert [one.values for one in state.checkpoints()] == [{"a": [1]}, {"a": [1, 2]}]
    with History(tmp_path / "late") as history:
        assert history.checkpoint(ref).values == {"a": [1, 2]}
    with RuntimeState.open("bag", tmp_path / "late") as again:
        assert again["a"] == [1, 2]


# Going back


def test_a_restore_puts_the_values_back_in_place_and_takes_later_ones_away(state):
    state["step"], state["data"] = 1, {"list": [1]}
    first = state.snapshot()
    state["step"], state["result"] = 2, "intermediate"
    state["data"]["list"].append(2)
    state.snapshot()
    state["unsaved"] = True
    state.restore(first)
    assert dict(state) == {"step": 1, "data": {"list": [1]}}
    assert state.get("result") is None


def test_after_a_restore_the_next_snapshot_stands_on_the_restored_one_and_counts_on(state):
    state["a"] = 1
    first = state.snapshot()
    state["a"] = 2
    state.snapshot()
    state.restore(first)
    third = state.snapshot()
    fourth = state.snapshot()
    assert (third.version, third.parent_id, third.versions) == (3, first.id, {"a": 3})
    assert (fourth.version, fourth.parent_id) == (4, third.id)
    assert [one.parent_id for one in state.checkpoints()] == [None, first.id, first.id, third.id]
    state.restore("latest~1")
    assert state.snapshot().parent_id == third.id


def test_a_checkpoint_is_restored_by_version_label_id_and_ref(state):
    made = []
    for number in range(1, 5):
        state["n"] = number
        made.append(state.snapshot(label=f"l{number}"))
    for target, number in (
        (2, 2),
        ("@label:l3", 3),
        (made[0].id, 1),
        (made[3].id[-8:], 4),
        (made[1].ref, 2),
        ("latest", 4),
        ("latest~3", 1),
        ("@label:l3~1", 2),
    ):
        state.restore(target)
        assert state["n"] == number, target


@pytest.mark.parametrize(
    ("target", "error", "said"),
    [
        (9, RefError, r"'version 9' names none of the checkpoints of this branch. Candidates: 1 \(only\)"),
        ("@label:other", RefError, "names none of the checkpoints"),
        ("latest~5", RefError, "names none of the checkpoints"),
        (True, ConfigError, "True is no checkpoint; wanted a Checkpoint, the version of one, or a ref"),
        (None, ConfigError, "None is no checkpoint"),
        ({"values": {}}, ConfigError, "is no checkpoint"),
    ],
)
def test_what_names_no_checkpoint_restores_nothing(state, target, error, said):
    state["a"] = 1
    state.snapshot(label="only")
    state["a"] = 2
    with pytest.raises(error, match=said):
        state.restore(target)
    assert state["a"] == 2


def test_the_checkpoint_of_another_run_may_be_restored(state):
    with RuntimeState.open("other") as other:
        other["theirs"] = {1, 2}
        foreign = Checkpoint.from_dict(other.snapshot().to_dict())
    state["mine"] = 1
    own = state.snapshot()
    state.restore(foreign)
    assert dict(state) == {"theirs": {1, 2}}
    assert state.snapshot().parent_id == own.id, "no parent_id leads out of the run"


def test_an_error_rolls_back_what_the_block_did(state):
    state["data"], state["keep"] = {"list": [1]}, 1
    with pytest.raises(ZeroDivisionError), state.rollback_on_error() as same:
        assert same is state
        state["data"]["list"].append(2)
        state["new"] = 1
        del state["keep"]
        raise ZeroDivisionError
    assert dict(state) == {"data": {"list": [1]}, "keep": 1}
    with state.rollback_on_error():
        state["new"] = 2
    assert state["new"] == 2


def test_an_error_rolls_back_over_snapshots_and_awaits(state):
    state["a"] = 1

    async def work():
        with state.rollback_on_error():
            state["a"] = 2
            await state.asnapshot()
            await asyncio.sleep(0)
            state["a"] = 3
            raise ValueError("the tool failed")

    with pytest.raises(ValueError, match="the tool failed"):
        asyncio.run(work())
    assert state["a"] == 1
    assert state.snapshot().versions == {"a": 2}, "set to 2 and back to 1"


def test_a_rollback_over_a_snapshot_is_recorded(location):
    with RuntimeState.open("bag", location) as state:
        state["a"] = [1]
        state.snapshot()
        with pytest.raises(KeyError), state.rollback_on_error():
            state["a"].append(2)
            state.snapshot()
            raise KeyError
    with RuntimeState.open("bag", location) as state:
        assert (state["a"], state.latest.values) == ([1], {"a": [1, 2]})


def test_a_block_that_could_not_be_rolled_back_does_not_begin(state):
    state["bad"] = object()
    with pytest.raises(NotCodable, match=r"state\['bad'\]"), state.rollback_on_error():
        raise AssertionError("the block ran")


@dataclass
class Plan:
    steps: list[str]


def test_a_class_of_the_programs_own_comes_back_as_it(state):
    state["plan"] = Plan(["look"])
    first = state.snapshot()
    state["plan"].steps.append("leap")
    state.restore(first)
    assert state["plan"] == Plan(["look"])


# As plain data, and compared


def test_a_checkpoint_goes_through_json_and_comes_back_the_same(state):
    state["when"], state["pair"], state["text"] = NOON, (1, 2.0, b"x"), {"$": 1, 2: {3}}
    state.add_usage(prompt_tokens=3, cost=0.5)
    made = state.snapshot(label="x", metadata={"at": NOON})
    back = Checkpoint.from_dict(json.loads(json.dumps(made.to_dict())))
    assert back == made
    assert (back.values, back.versions, back.usage) == (made.values, made.versions, made.usage)
    assert (back.tasks, back.events()) == (made.tasks, made.events())
    assert back.to_dict() == made.to_dict()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: "text", "it is a str"),
        (lambda data: {"values": {}}, "it is a dict"),
        (lambda data: {**data, "version": "1"}, "version: "),
        (lambda data: {k: v for k, v in data.items() if k != "values"}, "values: "),
        (lambda data: {**data, "values": {"a": {"$": "datetime", "v": 5}}}, "it cannot be read"),
        (lambda data: {**data, "values": {"a": {"$": "nothing", "v": 5}}}, "unknown tag 'nothing'"),
    ],
)
def test_what_is_no_checkpoint_is_told(state, change, said):
    data = state.snapshot().to_dict()
    with pytest.raises(ConfigError, match="This is no checkpoint") as refused:
        Checkpoint.from_dict(change(data))
    assert said in str(refused.value)


def test_a_checkpoint_of_a_later_crewlite_is_told(state):
    with pytest.raises(SchemaTooNew, match="schema 2; this crewlite reads up to 1"):
        Checkpoint.from_dict({**state.snapshot().to_dict(), "schema": 2})


def test_two_checkpoints_are_compared(location):
    with RuntimeState.open("bag", location) as state:
        state["same"], state["changed"], state["goes"] = [1], {"a": 1}, 1
        state.add_usage(prompt_tokens=5)
        before = state.snapshot(label="before")
        state["changed"]["a"] = 2
        del state["goes"]
        state["new"] = (NOON,)
        state.add_usage(prompt_tokens=7, cost=0.5)
        after = state.snapshot()
    diff = before.diff(after)
    assert (diff.added, diff.removed, diff.changed) == (
        {"new": (NOON,)},
        {"goes": 1},
        {"changed": ({"a": 1}, {"a": 2})},
    )
    assert diff.usage == Usage(prompt_tokens=7, cost=0.5)
    assert after.diff(before).added == {"goes": 1}
    assert after.diff(before).usage == Usage(prompt_tokens=-7, cost=-0.5)
    with RuntimeState.open("other") as other:
        other["same"] = [1.0]
        assert after.diff(other.snapshot()).changed == {"same": ([1], [1.0])}


# Where it is kept


def test_without_a_location_no_file_is_made(tmp_path):
    with RuntimeState.open("bag") as state:
        state["a"] = 1
        state.restore(state.snapshot())
    assert list(tmp_path.iterdir()) == []


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
        with pytest.raises(BranchConflictError) as refused:
            RuntimeState.open("bag", location)
        assert "close()" in refused.value.__notes__[0]
        code = f"from crewlite.state import RuntimeState; RuntimeState.open('bag', {location!r})"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
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
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == -signal.SIGKILL
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


def test_pruning_keeps_values_versions_and_numbers(location):
    with RuntimeState.open("bag", location) as state:
        state["log"] = []
        for number in range(12):
            state["log"].append(number)
            if number == 5:
                state["once"] = 1
            made = state.snapshot(label="six" if number == 6 else None)
            if number == 8:
                state.restore("@label:six")
    with History(location) as history:
        before = {one.id: one for one in history.run("bag").checkpoints()}
        pruned = history.prune(keep_last=2)
        assert len(pruned.checkpoints) == 9
        after = history.run("bag").checkpoints()
    assert [one.version for one in after] == [7, 11, 12]
    for one in after:
        was = before[one.id]
        assert (one.values, one.versions, one.usage) == (was.values, was.versions, was.usage)
    with RuntimeState.open("bag", location) as state:
        assert dict(state) == made.values
        assert state.snapshot().version == 13


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
    facts = {"schema": 1, "seq": last.seq + 1, "at": NOON.isoformat(), "values": forged}
    store.append([Commit("bag", "main", last.seq, last.sum, (seal(facts, after=last.sum),))])
    store.close()
    with pytest.raises((JournalCorrupt, NotCodable)), RuntimeState.open("bag", location) as state:
        state["a"]


def test_a_snapshot_that_cannot_be_saved_says_so_and_comes_with_the_next(location):
    with RuntimeState.open("bag", location) as state:
        state["a"] = 1
        with (
            CrashInjector(at=1, error=OSError(28, "disk full")),
            pytest.raises(StoreError, match="not saved: .*disk full"),
        ):
            state.snapshot()
        state["a"] = 2
        assert state.snapshot().version == 2
    with RuntimeState.open("bag", location) as state:
        assert [one.values for one in state.checkpoints()] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("name", ["", "a b", "..", "latest", None, 7])
def test_a_state_needs_a_usable_name(name):
    with pytest.raises(ConfigError, match="is not a usable name"):
        RuntimeState.open(name)


def test_a_branch_that_is_not_there_is_not_opened(anywhere):
    with pytest.raises(RefError, match=r"'bag/b' names no branch; History\(location\).fork"):
        RuntimeState.open("bag/b", anywhere)
    RuntimeState.open("bag", anywhere).close()


def test_a_run_of_another_kind_is_not_opened(location):
    Agent(role="Clerk", goal="answer", llm="offline", checkpoint=CheckpointConfig(location=location)).kickoff(
        "Hello", run_id="bag"
    )
    with pytest.raises(RunMismatch, match="is of agent 'Clerk', and no state"):
        RuntimeState.open("bag", location)


def test_a_closed_state_can_be_read_and_no_more(anywhere):
    state = RuntimeState.open("bag", anywhere)
    state["a"] = 1
    state.close()
    state.close()
    assert state["a"] == 1
    for act in (state.snapshot, state.checkpoints, lambda: state.restore(1)):
        with pytest.raises(StoreError, match="has ended"):
            act()


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


# In a run


def crew_of(count, llm, config, **fields):
    agent = Agent(role="Worker", goal="work", llm=llm)
    tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=agent) for n in range(count)]
    return Crew(tasks=tasks, checkpoint=config, **fields)


def test_values_set_in_handlers_are_in_later_checkpoints_and_in_a_resumed_run(on_disk):
    seen = []

    @event_bus.on(TaskCompletedEvent)
    def note(source, event, state):
        seen.append(dict(copy.deepcopy(dict(state))))
        state.setdefault("done", []).append(event.address)

    crew = crew_of(3, ScriptedLLM(["a", "b", RuntimeError("cut"), "c"]), on_disk())
    with pytest.raises(RuntimeError):
        crew.kickoff(run_id="r")
    crew.kickoff(run_id="r")
    assert seen == [{}, {"done": ["task:t0"]}, {"done": ["task:t0", "task:t1"]}]
    with History(on_disk().location) as history:
        places = history.run("r").checkpoints()
        whole = history.run("r")._record.values
    assert [place.values for place in places] == [
        {},
        {"done": ["task:t0"]},
        {"done": ["task:t0", "task:t1"]},
    ]
    assert [place.versions for place in places] == [{}, {"done": 1}, {"done": 2}]
    assert [place.version for place in places] == [1, 2, 3]
    assert whole == {"done": ["task:t0", "task:t1", "task:t2"]}, "what was set last is recorded when the run ends"


def test_a_fork_of_a_run_has_the_values_of_its_base(config):
    setting = config()

    @event_bus.on(TaskCompletedEvent)
    def note(source, event, state):
        state["last"] = event.address

    crew = crew_of(3, ScriptedLLM(lambda messages: "x"), setting)
    crew.kickoff(run_id="r")
    with History(setting.location, setting.provider) as history:
        second = history.run("r").checkpoints()[1]
        history.fork(second, branch="b")
        assert history.run("r/b")._record.values == {"last": "task:t0"}
    crew.kickoff(from_checkpoint=CheckpointConfig(restore_from="r/b", **_where(setting)))
    with History(setting.location, setting.provider) as history:
        assert history.checkpoint("r/b").values == {"last": "task:t0"}, "handlers hear once, and that was in the first"
        assert history.run("r/b")._record.values == {"last": "task:t2"}


def _where(setting):
    return {"location": setting.location, "provider": setting.provider}


def test_snapshots_restores_and_rollbacks_in_a_handler(config):
    setting, made = config(), {}

    @event_bus.on(LLMCallCompletedEvent)
    def early(source, event, state):
        state["heard"] = state.get("heard", 0) + 1

    @event_bus.on(TaskCompletedEvent)
    async def note(source, event, state):
        if event.address == "task:t0":
            made["first"] = await state.asnapshot(label="first")
        elif event.address == "task:t1":
            with pytest.raises(ValueError), state.rollback_on_error():
                state["heard"] = "lost"
                raise ValueError
            state.restore("@label:first")
            state.add_usage(prompt_tokens=1000)
            made["usage"] = state.usage.prompt_tokens
            made["second"] = state.snapshot()
            made["listed"] = state.checkpoints()

    crew = crew_of(2, ScriptedLLM([LLMReply(text="x", usage=Usage(prompt_tokens=1, requests=1))] * 2), setting)
    crew.kickoff(run_id="r")
    first, second = made["first"], made["second"]
    assert (first.values, second.values) == ({"heard": first.values["heard"]}, first.values)
    assert second.parent_id == first.id
    assert made["listed"][-1] == second
    assert made["usage"] >= 1000
    assert second.usage.prompt_tokens >= 1000
    with History(setting.location, setting.provider) as history:
        assert history.run("r").usage.prompt_tokens == 1002


def test_a_folded_run_has_its_values_and_goes_on_with_them(on_disk):
    @event_bus.on(LLMCallCompletedEvent)
    def count(source, event, state):
        state["calls"] = state.get("calls", 0) + 1
        state["last"] = event.address

    llm = ScriptedLLM([*"abcdefgh", RuntimeError("cut"), *"ij"])
    crew = crew_of(10, llm, on_disk())
    with pytest.raises(RuntimeError):
        crew.kickoff(run_id="r")
    with History(on_disk().location) as history:
        was = history.checkpoint("r")
        assert history.prune(keep_last=1).freed > 0
        newest = history.checkpoint("r")
        assert (newest.id, newest.values, newest.version) == (was.id, was.values, 8)
        assert newest.versions == was.versions == {"calls": 8, "last": 8}
    crew.kickoff(run_id="r")
    with History(on_disk().location) as history:
        assert history.checkpoint("r").values == {"calls": 10, "last": "task:t9/llm#1"}
        assert history.checkpoint("r").version == 10


def test_a_run_without_a_store_has_values_and_snapshots():
    made = []

    @event_bus.on(TaskCompletedEvent)
    def note(source, event, state):
        state["n"] = state.get("n", 0) + 1
        made.append(state.snapshot())
        if event.address == "task:t1":
            state.restore(1)
            made.append(state.snapshot())
            made.append(state.latest)

    crew_of(2, ScriptedLLM(lambda messages: "x"), None).kickoff()
    assert [(one.version, one.values) for one in made] == [(1, {"n": 1}), (2, {"n": 2}), (3, {"n": 1}), (3, {"n": 1})]


def test_a_value_that_cannot_be_recorded_degrades_a_run_and_is_told_once(config):
    recorder = EventRecorder()

    @event_bus.on(LLMCallCompletedEvent)
    def note(source, event, state):
        state["good"] = event.address
        state["bad"] = threading.Lock()

    with recorder:
        result = crew_of(3, ScriptedLLM(lambda messages: "x"), config()).kickoff(run_id="r")
    assert result.durability == "degraded"
    failed = recorder.of(CheckpointFailedEvent)
    assert [event.error for event in failed] == [failed[0].error]
    assert "state['bad'] is a lock" in failed[0].error
    with History(config().location, config().provider) as history:
        assert history.checkpoint("r").values == {"good": "task:t2/llm#1"}


def test_a_value_that_cannot_be_recorded_stops_a_run_that_wants_it_so(config):
    @event_bus.on(LLMCallCompletedEvent)
    def note(source, event, state):
        state["bad"] = threading.Lock()

    with pytest.raises(StoreError, match=r"a save failed: state\['bad'\] is a lock"):
        crew_of(3, ScriptedLLM(lambda messages: "x"), config(on_save_error="raise")).kickoff(run_id="r")


@dataclass
class Moving:
    """A value that another thread changes while it is looked at, the first `left` times."""

    left: int

    def __getattribute__(self, name):
        left = object.__getattribute__(self, "left")
        if name == "left" and left:
            object.__setattr__(self, "left", left - 1)
            raise RuntimeError("dictionary changed size during iteration")
        return object.__getattribute__(self, name)


def test_a_value_that_another_thread_is_changing_costs_no_outcome(config):
    @event_bus.on(LLMCallCompletedEvent)
    def note(source, event, state):
        state["moving"] = Moving(2)

    setting = config()
    result = crew_of(2, ScriptedLLM(lambda messages: "x"), setting).kickoff(run_id="r")
    assert result.durability == "sync"
    with History(setting.location, setting.provider) as history:
        assert history.checkpoint("r").values == {"moving": Moving(0)}
    with RuntimeState.open("bag") as state:
        state["moving"] = Moving(99)
        with pytest.raises(NotCodable, match="another thread changes it all the time"):
            state.snapshot()


def test_what_the_last_handler_sets_is_recorded(config):
    setting = config()

    @event_bus.on(CrewKickoffCompletedEvent)
    def note(source, event, state):
        state["ended"] = True

    crew = crew_of(1, ScriptedLLM(["x"]), setting)
    crew.kickoff(run_id="r")
    assert crew.kickoff(run_id="r").raw == "x"
    with History(setting.location, setting.provider) as history:
        run = history.run("r")
        assert (run.status, run._record.values) == ("finished", {"ended": True})


def test_a_run_without_values_has_none(config):
    setting = config()
    crew_of(2, ScriptedLLM(lambda messages: "x"), setting).kickoff(run_id="r")
    with History(setting.location, setting.provider) as history:
        places = history.run("r").checkpoints()
        assert [(one.values, one.versions) for one in places] == [({}, {}), ({}, {})]
        store = history._store
        assert not any("values" in entry.facts for entry in store.read("r", "main"))


# Against a model

plain = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3) | st.just(NOON) | st.just((1, timedelta(1)))
)
some = plain | st.lists(plain, max_size=3) | st.dictionaries(st.text(max_size=2) | st.just("$"), plain, max_size=2)
names = st.sampled_from(["a", "b", "$", ""])
acts = st.one_of(
    st.tuples(st.just("set"), names, some),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("append"), names, plain),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("restore"), st.integers(0, 9)),
    st.tuples(st.just("fail"), names, some),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("prune"), st.integers(1, 3)),
)


class Model:
    """A state as a plain dict says it ought to be."""

    def __init__(self):
        self.now, self.recorded, self.versions, self.named = {}, {}, {}, 0
        self.places = []

    def record(self):
        for name in {*self.now, *self.recorded}:
            if (name in self.now) != (name in self.recorded) or not alike(self.now[name], self.recorded[name]):
                self.versions[name] = self.versions.get(name, 0) + 1
        self.recorded = copy.deepcopy(self.now)

    def snapshot(self):
        self.record()
        self.named += 1
        self.places.append((self.named, copy.deepcopy(self.now), dict(self.versions)))

    def restore(self, values):
        self.now = copy.deepcopy(values)
        self.record()


def alike(one, other):
    return json.dumps(encode(one), sort_keys=True) == json.dumps(encode(other), sort_keys=True)


def check(program, location, provider=None):
    """Do a program to a state and to the model."""
    model, state = Model(), RuntimeState.open("bag", location, provider)
    try:
        for what, *details in program:
            if what == "set":
                name, value = details
                state[name], model.now[name] = copy.deepcopy(value), copy.deepcopy(value)
            elif what == "delete" and details[0] in model.now:
                del state[details[0]], model.now[details[0]]
            elif what == "append" and isinstance(model.now.get(details[0]), list):
                state[details[0]].append(details[1])
                model.now[details[0]].append(details[1])
            elif what == "snapshot":
                model.snapshot()
                state.snapshot()
            elif what == "restore" and model.places:
                version, values, _ = model.places[details[0] % len(model.places)]
                state.restore(version)
                model.restore(values)
            elif what == "fail":
                with pytest.raises(KeyError), state.rollback_on_error():
                    state[details[0]] = details[1]
                    raise KeyError
            elif what in ("reopen", "prune") and location:
                state.close()
                if what == "prune":
                    with History(location, provider) as history:
                        history.prune(keep_last=details[0])
                    del model.places[: -details[0]]
                state = RuntimeState.open("bag", location, provider)
                model.now = copy.deepcopy(model.recorded)
            assert dict(state).keys() == model.now.keys()
            assert alike(dict(sorted(state.items())), dict(sorted(model.now.items())))
        found = state.checkpoints()
        assert [(one.version, one.versions) for one in found] == [(n, versions) for n, _, versions in model.places]
        for one, (_, values, _) in zip(found, model.places, strict=True):
            assert alike(dict(sorted(one.values.items())), dict(sorted(values.items())))
            assert Checkpoint.from_dict(one.to_dict()) == one
    finally:
        state.close()


@given(st.lists(acts, max_size=25))
@settings(max_examples=60, deadline=None)
def test_whatever_is_done_in_memory_is_what_a_dict_says(program):
    check(program, None)


@given(st.lists(acts, max_size=25))
@settings(max_examples=60, deadline=None)
def test_whatever_is_done_in_a_memory_store_is_what_a_dict_says(program):
    check(program, "somewhere", InMemoryProvider())


@pytest.mark.parametrize("kind", ["kept", "kept.db"])
@given(program=st.lists(acts, max_size=15))
@settings(max_examples=12, deadline=None)
def test_whatever_is_done_on_disk_is_what_a_dict_says(kind, program):
    with tempfile.TemporaryDirectory() as directory:
        check(program, os.path.join(directory, kind))
