"""How instances of a program's classes are recorded, and what comes back if the class has changed, or is not there."""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from collections import Counter
from enum import Enum
from functools import cached_property

import pytest
from pydantic import BaseModel, ConfigDict, Field

from crewlite.encoding import homes
from crewlite.encoding.codec import decode, dumps, encode, register
from crewlite.errors import NotCodable
from tests.ground.coded import Colour, Note, Point, Size, Stop, alike


def _twin(module, name="Twin"):
    twin = dataclasses.make_dataclass(name, [("n", int)])
    twin.__module__ = module  # from Python 3.12 on, make_dataclass takes no other from the namespace
    return twin


@pytest.mark.parametrize(("recorded", "known"), [("__main__", "app"), ("app", "__main__")])
def test_a_class_of_a_program_that_is_run_is_that_of_the_same_file_imported(recorded, known):
    data, cls = encode(_twin(recorded)(1)), _twin(known)
    assert decode(data, [cls]) == cls(1)


def test_a_namesake_is_taken_for_a_class_only_if_one_of_the_two_is_the_programs_own_file_and_there_is_but_one():
    data = encode(_twin("app")(1))
    assert decode(data, [_twin("other")]) == {"n": 1}
    data = encode(_twin("__main__")(1))
    assert decode(data, [_twin("app"), _twin("other")]) == {"n": 1}


def test_a_registered_class_comes_back_as_itself():
    @register
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
    ],
    ids=["set", "frozenset", "key", "key in a tuple"],
)
def test_an_undeclared_class_that_was_hashed_stays_plain_data_too(value, caplog):
    found = decode(encode(value))
    assert len(found) == len(value)
    assert {"x": 1, "y": None} in found or [{"x": 1, "y": None}, "a"] in found or [({"x": 1, "y": None},), "a"] in found
    assert "is not declared" in caplog.text


def test_a_mapping_of_instances_whose_class_is_gone_stays_pairs():
    recorded = encode(Counter({Point(1, 2): 3}))
    assert decode(recorded) == [[{"x": 1, "y": 2}, 3]]


def test_nothing_is_imported_or_called_by_what_a_record_says():
    for tag in ("model", "dataclass", "enum"):
        for name in ("os:system", "subprocess:Popen", "builtins:eval", "tests.nowhere:Thing"):
            assert decode({"$": tag, "c": name, "v": {"command": "true"}}) == {"command": "true"}


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
