"""Encoded values are compared as their bytes would be: what a record would show as a change is one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from crewlite.encoding.codec import dumps, encode
from crewlite.state.format.operations import alike
from tests.ground.coded import values


@given(values)
def test_a_value_is_like_itself_built_anew(value):
    data = encode(value)
    assert alike(data, json.loads(dumps(data)))
    assert alike([data, data], json.loads(dumps([data, data])))  # of which only one has a part twice


@given(values, values)
def test_values_are_alike_if_their_bytes_are(one, other):
    for first, second in ((encode(one), encode(other)), ([encode(one)], [encode(other)])):
        assert alike(first, second) is (dumps(first) == dumps(second))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1], [1.0]),
        ([1], [True]),
        ([0], [False]),
        ([0.0], [-0.0]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([{"a": [1]}], [{"a": [1.0]}]),
    ],
)
def test_equal_values_that_a_record_shows_differently_are_not_alike(one, other):
    assert one == other
    assert not alike(one, other)
