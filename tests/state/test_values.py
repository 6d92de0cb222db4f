"""Values beside a run: what was set is what comes back, whatever is done in between."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from crewlite import History
from crewlite.errors import ConfigError, NotCodable, RefError
from crewlite.state import RuntimeState
from crewlite.usage import Usage


def test_a_state_is_a_mutable_mapping(state):
    assert len(state) == 0
    state["a"], noon = 1, datetime(2026, 11, 21, 12, tzinfo=UTC)
    state.update(b={"x": (1, noon)}, c=None)
    assert (list(state), len(state), "a" in state, "z" in state) == (["a", "b", "c"], 3, True, False)
    assert (state["b"], state.get("z"), state.get("z", 7)) == ({"x": (1, noon)}, None, 7)
    state.snapshot()
    del state["a"]
    assert state.pop("c") is None
    assert dict(state) == {"b": {"x": (1, noon)}}
    for missing in ("a", "never"):
        with pytest.raises(KeyError, match=missing):
            state[missing]
        with pytest.raises(KeyError, match=missing):
            del state[missing]


def test_threads_that_are_the_first_to_set_something_set_it_in_the_same_state():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            with RuntimeState.open("threads") as state, ThreadPoolExecutor(4) as pool:
                meet = threading.Barrier(4)
                list(pool.map(lambda n, meet=meet, state=state: (meet.wait(), state.update({f"{n}": n})), range(4)))
                assert len(state) == 4
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("name", [1, None, ("a",), "\ud83d\ude00"])
def test_only_a_text_names_a_value(state, name):
    with pytest.raises(ConfigError, match=r"is not a name for a value; wanted a text"):
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


def test_a_secret_that_is_no_text_is_masked_and_the_rest_is_still_there(location, monkeypatch):
    token = UUID(int=7)
    monkeypatch.setenv("SERVICE_TOKEN", str(token))
    with RuntimeState.open("work", location) as state:
        state["token"] = token
        state.snapshot(metadata={"token": token})
        state["more"] = 1
        state.snapshot()
    with RuntimeState.open("work", location) as state:
        assert dict(state) == {"token": "[secret]", "more": 1}


def test_a_name_that_holds_a_secret_is_refused_without_telling_it(state, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    with RuntimeState.open("other") as other:
        other["sk-very-secret"] = 1
        with pytest.raises(NotCodable, match=r"state\['\[secret\]'\]"):
            other.snapshot()


# Snapshots


def test_a_snapshot_sees_what_was_changed_inside_a_collection_of_the_standard_library(state):
    state["queue"], state["seen"] = deque([1], maxlen=2), Counter(a=1)
    state["order"], state["groups"] = OrderedDict(a=1, b=2), defaultdict(list)
    before = state.snapshot()
    state["queue"].append(2)
    state["seen"].update("ab")
    state["order"].move_to_end("a")
    state["groups"]["x"].append(1)
    values = state.snapshot().values
    assert values["queue"] == deque([1, 2])
    assert values["seen"] == Counter(a=2, b=1)
    assert [*values["order"]] == ["b", "a"]
    assert values["groups"] == {"x": [1]}
    state.restore(before)
    assert (state["queue"], state["seen"], state["groups"]) == (deque([1]), Counter(a=1), {})
    state["groups"]["y"].append(1)
    assert state["order"] == OrderedDict(a=1, b=2)


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
    with pytest.raises(RefError, match="labels another checkpoint of this run already"):
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


@pytest.mark.parametrize(
    ("usage", "match"),
    [
        ({"prompt_tokens": -3}, "prompt_tokens is -3; wanted a whole number, 0 or more"),
        ({"requests": "1"}, "requests is '1'; wanted a whole number"),
        ({"cached_tokens": 1.5}, "cached_tokens is 1.5; wanted a whole number"),
        ({"cost": "1"}, "cost is '1'; wanted US dollars, 0 or more"),
        ({"cost": -0.5}, "cost is -0.5; wanted US dollars"),
        ({"cost": float("nan")}, "cost is nan; wanted US dollars"),
        ({"usage": Usage(completion_tokens=-1)}, "completion_tokens is -1"),
    ],
)
def test_what_no_usage_can_be_is_refused(state, usage, match):
    with pytest.raises(ConfigError, match=match):
        state.add_usage(**usage)
    assert state.usage == Usage()


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
