"""Encoders that are built once write exactly what `json` writes, and refuse what it refuses."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from crewlite.encoding.json_text import encoder_of

WAYS = [
    json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False),
    json.JSONEncoder(sort_keys=True, separators=(",", ":")),
]
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
data = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)


def outcome(encode, value):
    try:
        return encode(value)
    except (ValueError, TypeError) as error:
        return type(error)


@pytest.mark.parametrize("how", WAYS, ids=["compact", "sorted"])
@given(value=data | st.just(object()))
def test_it_writes_what_json_writes(how, value):
    assert outcome(encoder_of(how), value) == outcome(how.encode, value)


@pytest.mark.parametrize("how", WAYS, ids=["compact", "sorted"])
def test_without_the_part_of_json_in_c_it_is_the_encoder_itself(how, monkeypatch):
    monkeypatch.setattr(json.encoder, "c_make_encoder", None)
    assert encoder_of(how)({"b": [1], "a": "é"}) == how.encode({"b": [1], "a": "é"})
