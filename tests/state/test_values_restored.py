"""Values that go back to a checkpoint: by a restore, or by an error in a block; recorded, and counted on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from crewlite import History
from crewlite.errors import ConfigError, NotCodable, RefError
from crewlite.state import Checkpoint, RuntimeState


def test_a_restore_puts_the_values_back_in_place_and_takes_later_ones_away(state):
    state["step"], state["data"] = 1, {"list": [1]}
    first = state.snapshot()
    state["step"], state["result"] = 2, "intermediate"
    state["data"]["list"].append(2)
    assert state.snapshot().values["data"] == {"list": [1, 2]}
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


def test_a_value_that_another_one_is_put_back_before_has_not_changed(state):
    state["first"], state["second"] = 1, 2
    before = state.snapshot()
    del state["first"]
    state.snapshot()
    state.restore(before)
    assert list(state) == ["first", "second"]
    assert state.snapshot().versions == {"first": 3, "second": 1}


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


def test_a_ref_goes_back_past_a_label_that_was_given_afterwards(tmp_path):
    with RuntimeState.open("bag", tmp_path) as state, History(tmp_path) as history:
        for number in range(1, 4):
            state["n"] = number
            state.checkpoint()
        history.label("latest", "good")
        for target, number in (("@label:good", 3), ("@label:good~1", 2)):
            state.restore(target)
            assert state["n"] == number


@pytest.mark.parametrize(
    ("target", "error", "said"),
    [
        (9, RefError, r"'version 9' names no checkpoint of this branch. Candidates: 1 \(only\)"),
        ("@label:other", RefError, "names no checkpoint of this branch"),
        ("latest~5", RefError, "goes back 5 checkpoints, which is further than the first one"),
        (True, ConfigError, "True is not a checkpoint; wanted a Checkpoint, the version of one, or a ref"),
        (None, ConfigError, "None is not a checkpoint"),
        ({"values": {}}, ConfigError, "is not a checkpoint"),
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
