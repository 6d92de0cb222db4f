"""A checkpoint of values is plain data: it goes through JSON, is checked where it comes from there, and is compared."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from crewlite.errors import ConfigError, SchemaTooNew
from crewlite.state import Checkpoint, RuntimeState
from crewlite.usage import Usage

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


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
    with pytest.raises(ConfigError, match="This is not a checkpoint") as refused:
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
