"""A value was recorded, then its class was changed: what comes back is complete, or plain data; never half an object."""

from collections import namedtuple
from dataclasses import dataclass, field, make_dataclass
from enum import Enum

import pytest
from pydantic import create_model

from crewlite.encoding.codec import decode, encode

WANTED = ...


def in_a_dataclass(slots=False, **fields):
    parts = [(name, object) if default is WANTED else (name, object, default) for name, default in fields.items()]
    return make_dataclass("Report", parts, slots=slots)


def in_a_named_tuple(**fields):
    defaults = [default for default in fields.values() if default is not WANTED]
    return namedtuple("Report", fields, defaults=defaults)  # noqa: PYI024 - its fields are those of a test


def in_a_model(**fields):
    return create_model("Report", **{name: (object, default) for name, default in fields.items()})


def in_slots(**fields):
    return in_a_dataclass(slots=True, **fields)


ALL = [in_a_dataclass, in_slots, in_a_named_tuple, in_a_model]
KINDS = pytest.mark.parametrize("kind", ALL)


def read(value, cls):
    """Return a recorded value as a program reads it in which `cls` has the name of its class."""
    return decode(encode(value) | {"c": f"{cls.__module__}:{cls.__qualname__}"}, [cls])


def plain(value):
    return tuple(value) if isinstance(value, tuple) else {"port": value.port, "metres": value.metres}


@KINDS
def test_a_new_field_with_a_default_has_that(kind):
    value = kind(port=WANTED, metres=0.0)(port="Cork", metres=3.5)
    cls = kind(port=WANTED, metres=0.0, unit="m")
    assert read(value, cls) == cls(port="Cork", metres=3.5, unit="m")


@pytest.mark.parametrize("slots", [False, True])
def test_a_new_field_with_a_factory_has_a_default_of_its_own(slots):
    cls = in_a_dataclass(slots, port=WANTED, tags=field(default_factory=list))
    value = in_a_dataclass(slots, port=WANTED)("Cork")
    one, other = read(value, cls), read(value, cls)
    assert one == cls("Cork", [])
    assert one.tags is not other.tags


@KINDS
def test_a_new_field_without_a_default_leaves_plain_data(kind, caplog):
    value = kind(port=WANTED, metres=0.0)(port="Cork", metres=3.5)
    assert read(value, kind(port=WANTED, unit=WANTED, metres=0.0)) == plain(value)
    assert "Report now wants unit, which the record lacks" in caplog.text


@KINDS
def test_a_field_that_is_gone_is_left_out(kind, caplog):
    value = kind(port=WANTED, metres=0.0)(port="Cork", metres=3.5)
    cls = kind(port=WANTED)
    found = read(value, cls)
    assert encode(found) == encode(cls(port="Cork"))
    assert "Report has no metres any more: what was recorded of it is left out" in caplog.text


OTHERS = [*ALL, Enum("Report", {"A": 1}), object]
DATACLASSES = [in_a_dataclass, in_slots]


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        (kind, other)
        for kind in ALL
        for other in OTHERS
        if kind is not other and [kind, other] not in (DATACLASSES, DATACLASSES[::-1])
    ],
)
def test_a_class_of_another_kind_leaves_plain_data(kind, other, caplog):
    value = kind(port=WANTED, metres=0.0)(port="Cork", metres=3.5)
    cls = other if isinstance(other, type) else other(port=WANTED, metres=0.0)
    assert read(value, cls) == plain(value)
    assert "is another kind of class now" in caplog.text


def test_what_was_set_beside_the_fields_gives_way_to_a_property_of_its_name():
    @dataclass
    class Was:
        port: str

        def __post_init__(self):
            self.shout, self.size = self.port.upper(), len(self.port)

    @dataclass
    class Report:
        port: str

        @property
        def shout(self):
            return f"{self.port}!"

    found = read(Was("Cork"), Report)
    assert (found.shout, found.size) == ("Cork!", 4)


def test_a_field_that_had_no_value_has_none_afterwards():
    @dataclass
    class Report:
        port: str
        depth: int = field(init=False)

    found = read(Report("Cork"), Report)
    assert (found.port, hasattr(found, "depth")) == ("Cork", False)
