"""What the tests of the codec share: classes of a program, all that can be recorded, and when two values are alike."""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from ipaddress import ip_network
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, RootModel


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
    if isinstance(a, float | complex | Decimal):
        return repr(a) == repr(b)
    if isinstance(a, defaultdict) and a.default_factory is not b.default_factory:
        return False
    if isinstance(a, deque):
        return a.maxlen == b.maxlen and alike([*a], [*b])
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
