"""Patches: values that grow are recorded by what is new in them, exactly."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings, strategies as st

from crewlite import CheckpointConfig, History
from crewlite.codec import dumps
from crewlite.errors import JournalCorrupt
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider, RuntimeState
from crewlite.state.format.entry import seal
from crewlite.state.format.patch import patch, patched
from crewlite.state.journal.compaction import size
from crewlite.state.providers import provider_for
from crewlite.state.providers.base import Commit

data = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.just(1.0) | st.text("a/~-$", max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("a/~-$", max_size=2), inner, max_size=4),
    max_leaves=12,
)


def exact(value):
    return json.dumps(value)


@given(data, data)
@settings(max_examples=300, deadline=None)
def test_a_patch_leads_from_one_value_to_the_other_and_leaves_the_first_as_it_was(before, after):
    was = exact(before)
    for target in (after, [before, after], {"k": before, "n": after}):
        source = [before] if isinstance(target, list) else {"k": before} if isinstance(target, dict) else before
        if operations := patch(source, target):
            assert exact(patched(source, operations)) == exact(target)
            assert len(dumps(operations)) < len(dumps(target))
    assert exact(before) == was


def test_what_a_patch_says():
    long = ["x" * 40] * 3
    assert patch(long, [*long, 1, [2]]) == [
        {"op": "add", "path": "/-", "value": 1},
        {"op": "add", "path": "/-", "value": [2]},
    ]
    assert patch({"a/b": long, "gone": 1}, {"a/b": [*long, 1], "n": 2}) == [
        {"op": "remove", "path": "/gone"},
        {"op": "add", "path": "/a~1b/-", "value": 1},
        {"op": "add", "path": "/n", "value": 2},
    ]
    assert patch(long, long[1:]) == [], "nothing else is patched"
    assert patch([1], [True, 1]) == [], "True is not 1"


def written(location, provider=None, name="bag"):
    store = provider_for(location, provider).open(location)
    try:
        return store.read(name, "main")
    finally:
        store.close()


def appended(count, location):
    with RuntimeState.open("bag", location) as state:
        state["log"] = []
        for number in range(count):
            state["log"].append({"number": number, "text": "something"})
            state.snapshot()
    return size(written(location))


def test_a_list_that_grows_costs_what_is_appended(tmp_path):
    sizes = [appended(count, str(tmp_path / f"{count}.db")) for count in (100, 200, 400)]
    assert sizes[2] - sizes[1] < 2.1 * (sizes[1] - sizes[0])
    with History(str(tmp_path / "400.db")) as history:
        places = history.run("bag").checkpoints()
        assert [len(place.values["log"]) for place in places] == list(range(1, 401))
        history.prune(keep_last=2)
        assert [len(place.values["log"]) for place in history.run("bag").checkpoints()] == [399, 400]
    with RuntimeState.open("bag", str(tmp_path / "400.db")) as state:
        assert state["log"][-1]["number"] == 399


@pytest.mark.soak
def test_a_list_of_five_thousand_costs_what_is_appended(tmp_path):
    half, whole = (appended(count, str(tmp_path / f"{count}.db")) for count in (2500, 5000))
    print({"2500": half, "5000": whole})
    assert whole < 2.1 * half


def test_steps_that_append_cost_what_they_append_and_are_applied_again():
    def grown(count, provider):
        @step
        def add(n):
            RuntimeState.current().setdefault("log", []).append(f"line {n} " + "x" * 20)

        @flow(name="grown", checkpoint=CheckpointConfig(location="m", provider=provider))
        def whole(count):
            for n in range(count):
                add(n)
            return RuntimeState.current()["log"]

        return whole.kickoff(count, run_id="r")

    sizes = {}
    for count in (50, 100, 200):
        provider = InMemoryProvider()
        result = grown(count, provider)
        entries = written("m", provider, "r")
        sizes[count] = sum(len(dumps(entry.commit.get("values", {}))) for entry in entries)
        provider = InMemoryProvider()
        provider.open("m").append([Commit("r", "main", 0, "", tuple(entries[: count // 2]))])
        assert grown(count, provider) == result
    assert sizes[200] - sizes[100] < 2.2 * (sizes[100] - sizes[50])


@pytest.mark.parametrize("forged", [{"path": "/x", "op": "add", "value": 1}, {"path": "/0", "op": "remove"}])
def test_a_forged_patch_is_a_typed_error(tmp_path, forged):
    location = str(tmp_path / "kept.db")
    with RuntimeState.open("bag", location) as state:
        state["log"] = [1]
        state.snapshot()
    store = provider_for(location).open(location)
    last = store.read("bag", "main")[-1]
    commit = {"schema": 1, "seq": last.seq + 1, "at": last.commit["at"], "values": {"patch": {"log": [forged]}}}
    store.append([Commit("bag", "main", last.seq, last.sum, (seal(commit, after=last.sum),))])
    store.close()
    with pytest.raises(JournalCorrupt, match="the value 'log'"):
        RuntimeState.open("bag", location)
