"""What is recorded comes back exactly, as what it was; what cannot be recorded says where it is."""

from __future__ import annotations

import json
import math
import threading
from collections import defaultdict
from datetime import datetime, time, timedelta, timezone

import pytest
from hypothesis import given, strategies as st
from pydantic import SecretStr

from crewlite.encoding.codec import decode, digest, dumps, encode
from crewlite.errors import JournalCorrupt, NotCodable
from crewlite.texts.secrets import Secrets
from tests.ground.coded import DECLARED, Colour, Note, Point, Slotted, alike, values


@given(values)
def test_what_is_decoded_is_what_was_encoded(value):
    assert alike(decode(encode(value), DECLARED), value)


@given(values)
def test_nothing_is_lost_on_the_way_through_bytes(value):
    stored = dumps(encode(value))
    stored.decode("utf-8")
    assert b"\n" not in stored
    assert alike(decode(json.loads(stored), DECLARED), value)


@given(values)
def test_what_is_encoded_is_plain_json(value):
    def check(data):
        assert type(data) in (type(None), bool, int, float, str, list, dict)
        if isinstance(data, float):
            assert math.isfinite(data)
        for item in data if isinstance(data, list) else data.values() if isinstance(data, dict) else ():
            check(item)
        if isinstance(data, dict):
            assert all(type(key) is str for key in data)

    check(encode(value))


@given(values, st.randoms(use_true_random=False))
def test_a_digest_does_not_depend_on_the_order_of_keys(value, random):
    def shuffled(data):
        if isinstance(data, list):
            return [shuffled(item) for item in data]
        if isinstance(data, dict):
            keys = list(data)
            random.shuffle(keys)
            return {key: shuffled(data[key]) for key in keys}
        return data

    data = encode(value)
    assert digest(data) == digest(shuffled(data)) == digest(json.loads(dumps(data)))


def test_digests_tell_apart_what_only_looks_alike():
    looks = [1, "1", True, 1.0, "True", None, "None", "", [], {}, [[]], (1,), [1], {1}, {"1": 1}, {1: 1}, b"1", 0, -0.0]
    assert len({digest(encode(value)) for value in looks}) == len(looks)
    assert len(digest(None)) == 32


@pytest.mark.parametrize(
    "value",
    ["\ud800", "a\udfffb", "\ud83d\ude00", {"\ud83d\ude00": 1}, ["\ud83d\ude00😀"], 10**5000, -(10**5000), 2**64, -0.0],
    ids=["high", "low", "pair", "key", "both", "huge", "huge negative", "64 bits", "zero"],
)
def test_awkward_values_survive_bytes(value):
    assert alike(decode(json.loads(dumps(encode(value)))), value)


def test_a_secret_is_masked_beside_awkward_text():
    data = Secrets(["hunter22"]).mask_data(encode("\ud83d\ude00 hunter22"))
    assert decode(data) == "\ud83d\ude00 [secret]"


def test_a_configuration_secret_is_never_written():
    data = encode({"key": SecretStr("hunter22"), "note": Note(title="x", body=SecretStr("hunter22"))})
    assert b"hunter22" not in dumps(data)


def test_an_unknown_tag_is_refused():
    with pytest.raises(NotCodable, match="unknown tag 'pickle'"):
        decode({"$": "pickle", "v": ""})


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 10, 25, 2, 30, fold=1),
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=timezone(timedelta(hours=1), "CET")),
        time(1, 2, fold=1, tzinfo=timezone(timedelta(hours=-1, seconds=-5), "\ud83d\ude00")),
    ],
)
def test_a_moment_keeps_its_fold_and_the_name_of_its_zone(value):
    back = decode(json.loads(dumps(encode(value))))
    assert (repr(back), back.fold, back.tzname()) == (repr(value), value.fold, value.tzname())


@pytest.mark.parametrize(
    "forged",
    [
        {"$": "deque", "v": 3, "maxlen": None},
        {"$": "deque", "v": []},
        {"$": "defaultdict", "v": {}, "factory": "open"},
        {"$": "range", "v": [1, 2, 0]},
        {"$": "complex", "v": [1, 2, 3]},
        {"$": "Fraction", "v": "1/0"},
        {"$": "IPv4Address", "v": "elsewhere"},
    ],
    ids=lambda forged: forged["$"],
)
def test_a_value_of_the_standard_library_that_nobody_has_recorded_is_damage(forged):
    with pytest.raises(JournalCorrupt):
        decode(forged)


@pytest.mark.parametrize(
    "live",
    [
        threading.Lock(),
        lambda: None,
        print,
        object(),
        json,
        iter(()),
        (n for n in ()),
        ValueError("x"),
        type,
        Point,
        Note,
        Colour,
        memoryview(b"x"),
        type("Own", (dict,), {})(),
        type("deque", (list,), {})(),
        defaultdict(lambda: 0),
        NotImplemented,
        ...,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_live_object_is_refused_with_the_path_that_leads_to_it(live):
    with pytest.raises(NotCodable) as raised:
        encode({"results": [1, {"deep": (live,)}]}, "inputs")
    assert raised.value.path == "inputs.results[1].deep[0]"
    assert raised.value.found == type(live).__qualname__
    assert "inputs.results[1].deep[0]" in str(raised.value)


def test_the_path_leads_into_models_dataclasses_and_odd_keys():
    def path(value):
        with pytest.raises(NotCodable) as raised:
            encode(value)
        return raised.value.path

    live = object()
    assert path(Note(title="x", body=[live])) == "body[0]"
    assert path(Point(1, {"a": live})) == "y.a"
    assert path({1: live}) == "[1]"
    assert path({(live,): 1}).startswith(".<key>")
    assert path(live) == ""


def test_what_holds_itself_is_refused():
    for loop in ([], {}, {1: 2}):
        loop.append(loop) if isinstance(loop, list) else loop.update({"again" if not loop else 3: loop})
        with pytest.raises(NotCodable, match="contains itself"):
            encode(loop)
    point = Slotted(None)
    point.inner = point
    with pytest.raises(NotCodable, match="contains itself"):
        encode(point)


@pytest.mark.parametrize(
    "wrap",
    [lambda v: [v], lambda v: (v,), lambda v: {"k": v}, lambda v: {1: v}, Point, Slotted, lambda v: frozenset([v])],
    ids=["list", "tuple", "dict", "odd dict", "dataclass", "slots", "frozenset"],
)
def test_deep_nesting_is_recorded_whole_or_refused_never_half(wrap):
    """Also by those who work on the data after it was coded: masking, storing, reading."""
    value, levels = "x", 0
    while True:
        value, levels = wrap(value), levels + 1
        try:
            data = encode(value)
        except NotCodable as error:
            assert "nested deeper" in str(error)
            break
        masked = Secrets(["hunter22"]).mask_data(data)
        assert masked == data
        assert alike(decode(json.loads(dumps(masked)), DECLARED), value)
    assert levels > 60
