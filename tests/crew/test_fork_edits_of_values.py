"""What is recorded is of a kind, and so is an edit of it: plain data becomes what was recorded, or is refused."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePosixPath
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, RootModel, create_model, model_validator

from crewlite.encoding import codec
from crewlite.errors import ConfigError
from crewlite.flow import ask, flow, step
from crewlite.state.reading.fitting import Typed
from tests.crew.listed import branches


class Rating(BaseModel):
    stars: int
    when: date | None = None


class Hue(Enum):
    RED = "red"
    BLUE = "blue"


class Level(Enum):
    LOW = 1
    HIGH = (2, "high")


class Limits(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")
    most: int = Field(ge=0, le=9, validation_alias="mostOfAll")
    names: list[str] = []
    inner: Rating | None = None

    @model_validator(mode="after")
    def is_no_seven(self):
        if self.most == 7:
            raise ValueError("seven is too many")
        return self


class Numbers(RootModel[list[int]]):
    """A list of numbers."""


class Spot(NamedTuple):
    x: int
    y: int


@dataclass
class Shelf:
    ratings: list[Rating]
    hue: Hue


MAY = date(2026, 5, 1)
LIMITS = Limits(mostOfAll=1, more=0)
OTHER_LIMITS = Limits(mostOfAll=3, names=["a"], inner=Rating(stars=2), more=1)
NOON = datetime(2026, 5, 1, 12, tzinfo=ZoneInfo("Europe/Paris"))


def giving(stored, value):
    @step
    def give():
        return value

    @step
    def show(what):
        return repr(what)

    return flow(name="f", checkpoint=stored())(lambda: show(give()))


@pytest.mark.parametrize(
    ("was", "edit", "becomes"),
    [
        (Rating(stars=1, when=MAY), {"stars": 2, "when": "2027-01-02"}, Rating(stars=2, when=date(2027, 1, 2))),
        (Rating(stars=1, when=MAY), {"stars": 2, "when": None}, Rating(stars=2)),
        (Rating(stars=1), None, None),
        (Rating(stars=1), Spot(1, 2), Spot(1, 2)),
        (
            Shelf([Rating(stars=1)], Hue.RED),
            {"ratings": [{"stars": 2, "when": None}, {"stars": 3, "when": None}], "hue": "blue"},
            Shelf([Rating(stars=2), Rating(stars=3)], Hue.BLUE),
        ),
        ({"best": Rating(stars=1)}, {"best": {"stars": 2, "when": None}, "n": 1}, {"best": Rating(stars=2), "n": 1}),
        (Spot(1, 2), [3, 4], Spot(3, 4)),
        (Spot(1, 2), {"x": 3, "y": 4}, Spot(3, 4)),
        ((1, MAY), [2, "2027-01-02"], (2, date(2027, 1, 2))),
        ({MAY}, ["2027-01-02", "2027-01-02"], {date(2027, 1, 2)}),
        (NOON, "2027-01-02T03:04:05", datetime(2027, 1, 2, 3, 4, 5, tzinfo=ZoneInfo("Europe/Paris"))),
        (datetime(2026, 1, 1, tzinfo=UTC), "2027-01-02T03:04:05", datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (time(1, tzinfo=UTC), "03:04", time(3, 4, tzinfo=UTC)),
        (datetime(2026, 1, 1), "2027-01-02T03:04:05", datetime(2027, 1, 2, 3, 4, 5)),
        (Decimal("1.50"), 2.5, Decimal("2.5")),
        (PurePosixPath("a/b"), "c", PurePosixPath("c")),
        (b"raw", "other", b"other"),
        (timedelta(1), 90, timedelta(seconds=90)),
        (AnyUrl("http://a.b/"), "http://c.d/", AnyUrl("http://c.d/")),
        (Rating(stars=1), {"stars": "2", "when": "2027-01-02"}, Rating(stars=2, when=date(2027, 1, 2))),
        (LIMITS, {"most": 3, "names": ["a"], "inner": {"stars": 2, "when": None}, "more": 1}, OTHER_LIMITS),
        (Numbers([1]), {"root": ["2", 3]}, Numbers([2, 3])),
        (Shelf([], Hue.RED), {"ratings": [{"stars": "2"}], "hue": "BLUE"}, Shelf([Rating(stars=2)], Hue.BLUE)),
        (Spot(1, 2), ["3", 4], Spot(3, 4)),
        (Level.LOW, "HIGH", Level.HIGH),
        (frozenset({(1, 2)}), [[3, 4]], frozenset({(3, 4)})),
        (Counter(a=1), {"b": 2}, Counter(b=2)),
        (Counter({MAY: 1}), {"b": 2}, Counter(b=2)),
        (deque([MAY], 3), ["2027-01-02"], deque([date(2027, 1, 2)], 3)),
        (OrderedDict(a=1, b=2), {"b": 3, "a": 4}, OrderedDict(b=3, a=4)),
        (defaultdict(list, a=[1]), {"b": []}, defaultdict(list, b=[])),
        (Fraction(1, 3), "2/3", Fraction(2, 3)),
        (bytearray(b"raw"), "other", bytearray(b"other")),
        # typed
        (5, Typed("7"), 7),
        (5, Typed("seven"), "seven"),
        ("5", Typed("7"), "7"),
        (True, Typed("no"), False),
        (MAY, Typed("2027-01-02"), date(2027, 1, 2)),
        (Decimal("1.50"), Typed("2.50"), Decimal("2.50")),
        (Fraction(1, 3), Typed("2"), Fraction(2)),
        (OrderedDict(a=1), Typed('[["b", 2]]'), OrderedDict(b=2)),
        (Hue.RED, Typed("blue"), Hue.BLUE),
        (Hue.RED, Typed("BLUE"), Hue.BLUE),
        (Level.HIGH, Typed("1"), Level.LOW),
        (Level.LOW, Typed("HIGH"), Level.HIGH),
        (timedelta(1), Typed("PT90S"), timedelta(seconds=90)),
        (Spot(1, 2), Typed("[3, 4]"), Spot(3, 4)),
        ({"a": 1}, Typed('{"a": 2}'), {"a": 2}),
    ],
    ids=str,
)
def test_plain_data_becomes_what_was_recorded(stored, was, edit, becomes):
    codec.declare(Shelf)
    codec.declare(Spot)
    giving(stored, was).kickoff(run_id="r")
    assert giving(stored, was).fork("r", branch="x", edits={"step:give": edit}).kickoff() == repr(becomes)


@pytest.mark.parametrize(
    ("was", "edit", "says"),
    [
        (
            Rating(stars=1),
            {"stars": 2},
            r"is \{\"stars\":2\}; wanted data with the fields of .*:Rating: stars, when, like the recorded",
        ),
        (Rating(stars=1), "good", 'is "good"; wanted data'),
        ([Rating(stars=1)], [7], r"step:give\[0\] is 7"),
        (Spot(1, 2), [3], "fields of .*:Spot: x, y"),
        (MAY, "soon", 'is "soon"; wanted a date, such as 2026-05-01'),
        (MAY, 7, "wanted a date"),
        (Hue.RED, "green", 'wanted a .*:Hue: "red", "blue"'),
        ({1}, 7, "wanted a list, for a set"),
        (Decimal("1.50"), Typed("much"), "wanted a Decimal"),
        (Fraction(1, 3), Typed("much"), 'wanted what a Fraction holds, such as "1/3"'),
        (deque([1]), {"a": 1}, "wanted a list"),
        (range(3), [1, 2, 0], r"wanted what a range holds, such as \[0,3,1\]"),
        (Rating(stars=1), {"stars": "many", "when": None}, r'"stars":"many".*:Rating takes \(stars: Input should be a'),
        (Rating(stars=1), {"stars": None, "when": None}, "stars: Input should be a valid integer"),
        (
            [Rating(stars=1)],
            [{"stars": [], "when": None}],
            r"step:give\[0\] is .*stars: Input should be a valid integer",
        ),
        ({"best": Rating(stars=1)}, {"best": {"stars": "x", "when": None}}, "step:give, best is .*stars: "),
        (
            LIMITS,
            {"most": 10, "names": [], "inner": None, "more": 0},
            "mostOfAll: .*less than or equal to 9|most: .*to 9",
        ),
        (LIMITS, {"most": 7, "names": [], "inner": None, "more": 0}, "seven is too many"),
        (LIMITS, {"most": 1, "names": [2], "inner": None, "more": 0}, r"names.0: Input should be a valid string"),
        (Shelf([], Hue.RED), {"ratings": "none", "hue": "red"}, "ratings: Input should be a valid list"),
        (Shelf([], Hue.RED), {"ratings": [], "hue": "green"}, 'step:give, hue is "green"; wanted a .*"red", "blue"'),
        (Spot(1, 2), ["one", 2], "x: Input should be a valid integer"),
        (Level.LOW, "TOP", r"wanted a .*:Level: 1 \(LOW\), .* \(HIGH\)"),
        ({1}, [[1]], "wanted a list of what a set can hold: no list and no dict"),
        (frozenset({"a"}), [{"a": 1}], "wanted a list of what a frozenset can hold"),
        (timedelta(1), "soon", "wanted a timedelta, such as 1 day"),
        (AnyUrl("http://a.b/"), "here", "wanted an AnyUrl, such as http://a.b/"),
    ],
    ids=str,
)
def test_plain_data_that_cannot_be_what_was_recorded_is_refused_at_the_fork(stored, was, edit, says):
    codec.declare(Shelf)
    giving(stored, was).kickoff(run_id="r")
    with pytest.raises(ConfigError, match=says):
        giving(stored, was).fork("r", branch="x", edits={"step:give": edit})
    assert branches(stored) == ["main"]


def test_a_field_that_the_class_has_no_more_may_stand_in_an_edit(stored):
    then = create_model("Harbour", __module__=__name__, port=(str, ...), depth=(int, 0))
    now = create_model("Harbour", __module__=__name__, port=(str, ...))
    giving(stored, codec.register(then)(port="Brest", depth=9)).kickoff(run_id="r")
    fork = giving(stored, codec.register(now)(port="Brest")).fork(
        "r", branch="x", edits={"step:give": {"port": "Cork", "depth": 5}}
    )
    assert fork.kickoff() == repr(now(port="Cork"))


@pytest.mark.parametrize(("said", "heard"), [("no", False), ("yes", True), ("false", False)])
def test_an_answer_that_was_typed_is_edited_as_it_is_answered(stored, said, heard):
    asks = flow(name="f", checkpoint=stored())(lambda: ask("Go on?", bool, name="go"))
    asks.kickoff(run_id="r", answers={"human:go": True})
    assert asks.fork("r", branch="x", edits={"human:go": Typed(said)}).kickoff() is heard
