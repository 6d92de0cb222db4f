"""Whatever is done to a state, in whatever order, is what a plain dict says it is, wherever it is kept."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings, strategies as st

from crewlite import History
from crewlite.encoding.codec import encode
from crewlite.state import Checkpoint, InMemoryProvider, RuntimeState

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


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
