"""An argument that is passed as its default is the same as one that is left out."""

from __future__ import annotations

import uuid

import pytest
from pydantic import BaseModel, Field

from crewlite import History
from crewlite.errors import InputsChanged
from crewlite.flow import Flow, flow, start
from tests.parts import Stop

MARK = object()


def adding(config, default=2, *, broken=None):
    @flow(checkpoint=config, name="adding")
    def add(x=1, *, y=default, mark=MARK):
        if broken:
            raise Stop
        return x, y, mark is MARK

    return add


GIVEN = [((), {}), ((1,), {}), ((1,), {"y": 2}), ((), {"y": 2})]


@pytest.mark.parametrize("first", GIVEN)
@pytest.mark.parametrize("second", GIVEN)
def test_a_default_may_be_passed_or_left_out(memory, first, second):
    config = memory()
    assert adding(config).kickoff(*first[0], **first[1], run_id="r") == (1, 2, True)
    assert adding(config).kickoff(*second[0], **second[1], run_id="r") == (1, 2, True)


@pytest.mark.parametrize("other", [{"y": 3}, {"y": 2.0}, {"y": True}, {"x": 2, "y": 2}])
def test_another_value_is_another_question(memory, other):
    config = memory()
    adding(config).kickoff(1, run_id="r")
    with pytest.raises(InputsChanged) as changed:
        adding(config).kickoff(run_id="r", **other)
    assert changed.value.names == (("x",) if "x" in other else ("y",))


def test_what_counts_is_the_default_with_which_the_run_began(memory):
    config = memory()
    adding(config, 2).kickoff(1, run_id="r")
    with pytest.raises(InputsChanged):
        adding(config, 3).kickoff(1, y=3, run_id="r")
    assert adding(config, 3).kickoff(1, y=2, run_id="r") == (1, 2, True)


def test_the_newest_unfinished_run_is_found_by_a_default_too(memory):
    config, broken = memory(), [True]
    with pytest.raises(Stop):
        adding(config, broken=broken).kickoff(1, run_id="r")
    broken.clear()
    assert adding(config, broken=broken).kickoff(1, y=2, resume=True) == (1, 2, True)
    with History(config.location, config.provider) as history:
        assert [run.run_id for run in history.runs()] == ["r"]


class Trip(BaseModel):
    topic: str = "tides"
    words: int = 3
    stops: list[str] = Field(default_factory=lambda: [uuid.uuid4().hex])


class Write(Flow[Trip]):
    @start()
    def first(self, how="well", words=4):
        return self.state.topic, self.state.words, how, words


class Told(Write):
    initial_state = {"topic": "winds"}


@pytest.mark.parametrize(
    ("cls", "given"),
    [
        (Write, {}),
        (Write, {"topic": "tides"}),
        (Write, {"topic": "tides", "how": "well"}),
        (Told, {"topic": "winds"}),
    ],
)
def test_a_default_of_a_class_flow_may_be_passed_or_left_out(memory, cls, given):
    config = memory()
    result = cls(checkpoint=config).kickoff(run_id="left-out")
    assert cls(checkpoint=config).kickoff(given, run_id="left-out") == result
    assert (
        cls(checkpoint=config, **{name: given[name] for name in given if name == "topic"}).kickoff(run_id="left-out")
        == result
    )
    assert cls(checkpoint=config).kickoff(given, run_id="given") == result
    assert cls(checkpoint=config).kickoff({}, run_id="given") == result


@pytest.mark.parametrize(
    ("cls", "given"),
    [
        (Write, {"topic": "winds"}),
        (Write, {"words": 3}),  # an argument, too, of another default
        (Write, {"words": 4}),
        (Write, {"how": "badly"}),
        (Write, {"stops": []}),
        (Told, {"topic": "tides"}),
    ],
)
def test_another_value_of_a_class_flow_is_another_question(memory, cls, given):
    config = memory()
    cls(checkpoint=config).kickoff(run_id="r")
    with pytest.raises(InputsChanged):
        cls(checkpoint=config).kickoff(given, run_id="r")
    if "topic" in given:
        with pytest.raises(InputsChanged):
            cls(checkpoint=config, initial_state=given).kickoff(run_id="r")


def test_a_default_of_an_open_state_is_a_key_of_it(memory):
    class Open(Flow):
        checkpoint = memory()

        @start()
        def first(self, how="well"):
            return sorted(self.state)

    assert Open().kickoff(run_id="r") == ["id"]
    with pytest.raises(InputsChanged):
        Open().kickoff({"how": "well"}, run_id="r")
