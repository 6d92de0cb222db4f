"""What is recorded comes back exactly, as what it was; what cannot be recorded says where it is."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from functools import cached_property
from ipaddress import ip_network
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, SecretStr

from crewlite.encoding import codec, homes
from crewlite.encoding.codec import decode, digest, dumps, encode
from crewlite.errors import JournalCorrupt, NotCodable
from crewlite.texts.secrets import Secrets


class Colour(Enum):
    RED = "red"
    NONE = (1, None)


class Size(IntEnum):
    SMALL = 1


class Right(Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass(frozen=True)
class Point:
    x: object
    y: object = None


@dataclasses.dataclass(slots=True)
class Slotted:
    inner: object


class Note(BaseModel):
    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)
    title: str
    body: object = None


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    known: int = 0


class Many(RootModel):
    root: list[int]


class Stop(NamedTuple):
    name: str
    at: object = None


for _undeclared in (Colour, Size, Point, Note, Stop):
    _undeclared.__module__ = "elsewhere"  # in a module of the program a class would be found


DECLARED = (Colour, Size, Right, Point, Slotted, Note, Open, Many, Stop)

anything_textual = st.text(st.characters(exclude_categories=()), max_size=12)  # lone surrogates and NUL included
offsets = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(4990, 5010).map(lambda digits: 10**digits),
    st.floats(),
    anything_textual,
)
keyable = st.one_of(
    plain,
    st.binary(max_size=12),
    st.datetimes(),
    st.datetimes(timezones=offsets | st.just(UTC)),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(),
    st.uuids(),
    st.sampled_from([*Colour, *Size, *Right, Right.READ | Right.WRITE]),
    st.sampled_from(["/tmp/x", "a/b", "."]).map(Path),
    st.fractions(),
    st.builds(complex, st.floats(allow_nan=False), st.floats(allow_nan=False)),
    st.builds(range, st.integers(), st.integers(), st.integers(1, 9)),
    st.ip_addresses(),
    st.sampled_from(["10.0.0.0/8", "::/64"]).map(ip_network),
)
hashable = st.recursive(
    keyable.filter(lambda value: not (isinstance(value, Decimal) and value.is_snan())),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3) | inner.map(Point),
    max_leaves=4,
)
tag_like = st.fixed_dictionaries(
    {"$": st.sampled_from(["dict", "tuple", "of", "model", "enum", "str", "int", "x", 1, None])},
    optional={"v": plain, "c": st.just("os:system")},
)
values = st.recursive(
    keyable | tag_like,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.builds(deque, st.lists(inner, max_size=4), st.none() | st.integers(0, 4)),
        st.builds(OrderedDict, st.dictionaries(hashable, inner, max_size=4)),
        st.builds(defaultdict, st.sampled_from([None, list, int, dict]), st.dictionaries(hashable, inner, max_size=4)),
        st.builds(Counter, st.dictionaries(hashable, st.integers(), max_size=4)),
        st.binary(max_size=12).map(bytearray),
        st.sets(hashable, max_size=4),
        st.frozensets(hashable, max_size=4),
        st.dictionaries(anything_textual, inner, max_size=4),
        st.dictionaries(hashable, inner, max_size=4),
        st.builds(Point, inner, inner),
        st.builds(Slotted, inner),
        st.builds(Stop, name=st.text(), at=inner),
        st.builds(Note, title=st.text(), body=inner),
        st.integers().map(lambda n: Open(known=n, other=[n])),
        st.lists(st.integers(), max_size=3).map(Many),
    ),
    max_leaves=12,
)


def alike(a, b):
    """Equal, of the same types all the way down; NaN is like NaN, and -0.0 is not 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float | Decimal):
        return repr(a) == repr(b)
    if isinstance(a, defaultdict) and a.default_factory is not b.default_factory:
        return False
    if isinstance(a, deque):
        return a.maxlen == b.maxlen and alike([*a], [*b])
    if isinstance(a, complex):
        return repr(a) == repr(b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, set | frozenset):
        rest = list(b)
        for item in a:
            match = next((n for n, other in enumerate(rest) if alike(item, other)), None)
            if match is None:
                return False
            del rest[match]
        return not rest
    if isinstance(a, dict):
        return alike([*a.items()], [*b.items()])
    if dataclasses.is_dataclass(a):
        return all(alike(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, BaseModel):
        return alike(a.__dict__, b.__dict__) and alike(a.__pydantic_extra__, b.__pydantic_extra__)
    if isinstance(a, datetime):
        return a == b and a.utcoffset() == b.utcoffset()
    return a == b


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


# Classes


def _twin(module, name="Twin"):
    twin = dataclasses.make_dataclass(name, [("n", int)])
    twin.__module__ = module  # from Python 3.12 on, make_dataclass takes no other from the namespace
    return twin


@pytest.mark.parametrize(("recorded", "known"), [("__main__", "app"), ("app", "__main__")])
def test_a_class_of_a_program_that_is_run_is_that_of_the_same_file_imported(recorded, known):
    data, cls = codec.encode(_twin(recorded)(1)), _twin(known)
    assert codec.decode(data, [cls]) == cls(1)


def test_a_namesake_is_taken_for_a_class_only_if_one_of_the_two_is_the_programs_own_file_and_there_is_but_one():
    data = codec.encode(_twin("app")(1))
    assert codec.decode(data, [_twin("other")]) == {"n": 1}
    data = codec.encode(_twin("__main__")(1))
    assert codec.decode(data, [_twin("app"), _twin("other")]) == {"n": 1}


def test_a_registered_class_comes_back_as_itself():
    @codec.register
    @dataclasses.dataclass
    class Registered:
        a: int

    assert decode(encode([Registered(1)])) == [Registered(1)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Point(1, (2,)), {"x": 1, "y": (2,)}),
        (Note(title="t"), {"title": "t", "body": None}),
        (Colour.RED, "red"),
        (Size.SMALL, 1),
        ([Point(1)], [{"x": 1, "y": None}]),
        (Point(Point(1)), {"x": {"x": 1, "y": None}, "y": None}),
        (Stop("Brest"), ("Brest", None)),
    ],
    ids=["dataclass", "model", "enum", "int enum", "in a list", "nested", "named tuple"],
)
def test_an_undeclared_class_stays_plain_data_and_says_so(value, expected, caplog):
    with caplog.at_level(logging.WARNING, "crewlite.codec"):
        assert alike(decode(encode(value)), expected)
    assert "is not declared in this program" in caplog.text
    assert homes.class_name(type(value[0] if isinstance(value, list) else value)) in caplog.text


@pytest.mark.parametrize(
    "value",
    [
        {Point(1)},
        frozenset({Point(1), Point(2)}),
        {Point(1): "a"},
        {(Point(1),): "a"},
        {Colour.NONE: 1, Point([]).x.__class__: 2},
    ],
    ids=["set", "frozenset", "key", "key in a tuple", "live"],
)
def test_an_undeclared_class_that_was_hashed_stays_plain_data_too(value, caplog):
    if any(isinstance(item, type) for item in value):
        with pytest.raises(NotCodable):
            encode(value)
        return
    found = decode(encode(value))
    assert len(found) == len(value)
    assert {"x": 1, "y": None} in found or [{"x": 1, "y": None}, "a"] in found or [({"x": 1, "y": None},), "a"] in found
    assert "is not declared" in caplog.text


def test_nothing_is_imported_or_called_by_what_a_record_says(caplog):
    for tag in ("model", "dataclass", "enum"):
        for name in ("os:system", "subprocess:Popen", "builtins:eval", "tests.nowhere:Thing"):
            assert decode({"$": tag, "c": name, "v": {"command": "true"}}) == {"command": "true"}


def test_an_unknown_tag_is_refused():
    with pytest.raises(NotCodable, match="unknown tag 'pickle'"):
        decode({"$": "pickle", "v": ""})


def test_a_class_that_has_moved_on_leaves_plain_data(caplog):
    grown = type(
        "Grown", (BaseModel,), {"__annotations__": {"a": int, "b": int}, "__module__": "m", "__qualname__": "G"}
    )
    assert decode({"$": "model", "c": "m:G", "v": {"a": 1}}, [grown]) == {"a": 1}
    assert "now wants b" in caplog.text
    fewer = Enum("E", {"A": 1}, module="m", qualname="E")
    assert decode({"$": "enum", "c": "m:E", "v": 2}, [fewer]) == 2
    assert "m:E" in caplog.text


def test_a_model_is_not_validated_again():
    class Shouting(BaseModel):
        text: str

        def model_post_init(self, _):
            object.__setattr__(self, "text", self.text + "!")

    value = Shouting(text="a")
    assert decode(encode(value), [Shouting]).text == "a!"


def test_what_a_model_changes_in_place_when_it_is_made_is_not_changed_again():
    class Order(BaseModel):
        log: list[str] = []
        seen: dict[str, list[int]] = {}
        tags: set[str] = set()

        def model_post_init(self, _):
            self.log.append("made")
            self.seen.setdefault("at", []).append(0)
            self.tags.add(f"{len(self.tags)}")

    value = Order()
    again = decode(encode(value), [Order])
    assert (again, again.log, again.seen, again.tags) == (value, ["made"], {"at": [0]}, {"0"})
    assert again.model_fields_set == value.model_fields_set


def test_what_a_model_worked_out_is_not_part_of_its_record():
    class Lazy(BaseModel):
        n: int

        @cached_property
        def lock(self):
            return threading.Lock()

    value = Lazy(n=1)
    assert value.lock
    assert encode(value)["v"] == {"n": 1}


class Aliased(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = Field(alias="x")


@dataclasses.dataclass
class Job:
    name: str
    speed: dataclasses.InitVar[int] = 1

    def __post_init__(self, speed):
        self.seconds = 10 * speed

    @cached_property
    def lock(self):
        return threading.Lock()


class Base:
    __slots__ = ("below",)


@dataclasses.dataclass(slots=True)
class Above(Base):
    n: int


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


def test_a_dataclass_keeps_what_it_holds_beyond_its_fields():
    job, above = Job("a", 3), Above(1)
    above.below = 2
    assert job.lock  # which could not be recorded, and follows from the rest
    assert vars(decode(encode(job), [Job])) == {"name": "a", "seconds": 30}
    assert decode(encode(above), [Above]).below == 2
    assert encode(Job("a")) != encode(job)
    old = {"$": "dataclass", "c": homes.class_name(Job), "v": {"name": "a"}}
    assert vars(decode(old, [Job])) == {"name": "a"}


def test_of_what_a_dataclass_holds_beyond_its_fields_only_that_is_left_out_which_cannot_be_recorded():
    job = Job("a")
    job.live, job.jobs, job.owner = print, [Job("b")], job
    job.jobs[0].owner = job
    assert encode([job])[0]["attributes"].keys() == {"seconds"}
    job.jobs[0].owner = None
    assert encode([job])[0]["attributes"].keys() == {"seconds", "jobs"}
    job.name = print
    with pytest.raises(NotCodable, match=r"^name is"):
        encode(job)


def test_an_extra_value_of_a_model_may_have_the_name_or_the_alias_of_a_field():
    for extra in ({"z": 1, "a": 2, "y": 3}, {"x": 2}):
        model = Aliased.model_validate({"x": 1})
        model.__pydantic_extra__.update(extra)
        back = decode(json.loads(dumps(encode(model))), [Aliased])
        assert (back.__dict__, back.model_extra, back.model_fields_set) == ({"a": 1}, extra, model.model_fields_set)


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


def test_a_mapping_of_instances_whose_class_is_gone_stays_pairs():
    recorded = encode(Counter({Point(1, 2): 3}))
    assert decode(recorded) == [[{"x": 1, "y": 2}, 3]]


# What cannot be recorded


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
