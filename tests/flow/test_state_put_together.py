"""Objects and lists of the state that steps side by side change: different parts are put together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, PrivateAttr

from crewlite import Flow, and_, listen, start
from crewlite.errors import StateConflict
from crewlite.events import StepStateConflictEvent
from crewlite.flow import flow, step
from crewlite.state import RuntimeState
from crewlite.state.journal.conflicts import CLASH, merged
from crewlite.testing import EventRecorder
from tests.cuts import RUN, cut_anywhere, values_of


class Leg(BaseModel):
    departure: str | None = None
    arrival: str | None = None
    _seen: int = PrivateAttr(0)


class Trip(BaseModel):
    legs: list[Leg] = []
    notes: list[str] = []
    cost: dict[str, int] = {}


class TripState(BaseModel):
    trip: Trip = Trip(legs=[Leg()])


@dataclass
class Tally:
    left: int = 0
    right: int = 0
    names: list[str] = field(default_factory=list)


def state():
    return RuntimeState.current()


def trip_of(setting, **options):
    class Plan(Flow[TripState]):
        checkpoint = setting

        @start()
        def begin(self):
            pass

        @listen(begin, **options)
        async def leave(self):
            await asyncio.sleep(0.01)
            self.state.trip.legs[0].departure = "Brest"
            self.state.trip.notes.append("leave")
            self.state.trip.cost["train"] = 3

        @listen(begin, **options)
        async def arrive(self):
            await asyncio.sleep(0.02)
            self.state.trip.legs[0].arrival = "Cork"
            self.state.trip.notes.append("arrive")
            self.state.trip.cost["ferry"] = 4

        @listen(and_(leave, arrive))
        def told(self):
            return self.state.trip

    return Plan


WHOLE = Trip(legs=[Leg(departure="Brest", arrival="Cork")], notes=["leave", "arrive"], cost={"train": 3, "ferry": 4})


@pytest.mark.parametrize("on_conflict", ["last", "error"])
def test_methods_side_by_side_change_different_parts_of_one_model(stored, on_conflict):
    with EventRecorder() as heard:
        found = trip_of(stored(on_conflict=on_conflict))().kickoff(run_id=RUN)
    assert found == WHOLE
    assert not heard.of(StepStateConflictEvent)
    assert values_of(stored())["trip"] == found
    assert trip_of(stored())().kickoff(run_id=RUN) == found


def test_a_run_that_is_cut_anywhere_comes_to_the_same(stored):
    assert trip_of(stored())().kickoff(run_id=RUN) == WHOLE

    def whole(setting):
        return trip_of(setting)()

    cut_anywhere(whole, stored(), WHOLE)


def test_a_step_that_a_fork_has_run_again_leaves_nothing_of_its_first_time(stored):
    class Notes(Flow[TripState]):
        checkpoint = stored()

        @start()
        def begin(self):
            pass

        @listen(begin)
        async def one(self):
            self.state.trip.notes.append("one")

        @listen(begin)
        async def two(self):
            await asyncio.sleep(0.01)
            self.state.trip.notes.append("two")

        @listen(and_(one, two))
        def told(self):
            return self.state.trip.notes

    assert Notes().kickoff(run_id=RUN) == ["one", "two"]
    with EventRecorder() as heard:
        assert Notes().fork(RUN, rerun=["method:one@begin"]).kickoff() == ["one"]
    assert [event.names for event in heard.of(StepStateConflictEvent)] == [("trip",)]
    assert Notes().fork(RUN, rerun=["method:begin"]).kickoff() == ["one", "two"]


def test_of_a_model_in_which_both_changed_one_part_the_later_commit_counts(stored):
    @step
    async def change(n):
        leg = state()["leg"]
        await asyncio.sleep(n / 50)
        leg.departure = f"port {n}"
        leg.arrival = f"port {n}" if n == 1 else leg.arrival

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        async def work():
            state()["leg"] = Leg()
            await asyncio.gather(change(1), change(2))
            return state()["leg"]

        return work

    with EventRecorder() as heard:
        assert whole(stored()).kickoff(run_id=RUN) == Leg(departure="port 2")
    assert [event.names for event in heard.of(StepStateConflictEvent)] == [("leg",)]
    with pytest.raises(StateConflict):
        whole(stored(on_conflict="error")).kickoff(run_id="other")


def test_two_steps_change_a_dataclass_and_the_items_of_a_list(stored):
    @step
    async def change(name):
        await asyncio.sleep(0.01)
        setattr(state()["tally"], name, 1)
        state()["tally"].names.append(name)
        state()["rows"][["left", "right"].index(name)]["n"] = 1

    @flow(checkpoint=stored(on_conflict="error"))
    async def work():
        state()["tally"], state()["rows"] = Tally(), [{"n": 0}, {"n": 0}]
        await asyncio.gather(change("left"), change("right"))
        return state()["tally"], state()["rows"]

    tally, rows = work.kickoff(run_id=RUN)
    assert (tally.left, tally.right, sorted(tally.names)) == (1, 1, ["left", "right"])
    assert rows == [{"n": 1}, {"n": 1}]


def test_what_a_step_with_a_cache_leaves_is_of_itself_alone(stored):
    @step(cache=True)
    async def leave():
        state()["leg"].departure = "Brest"
        await asyncio.sleep(0.03)

    @step
    async def arrive():
        state()["leg"].arrival = "Cork"

    @flow(name="work", checkpoint=stored())
    async def work(both):
        state()["leg"] = Leg()
        await asyncio.gather(leave(), *([arrive()] if both else []))
        return state()["leg"]

    work.kickoff(both=True, run_id=RUN)
    assert work.kickoff(both=False, run_id="other") == Leg(departure="Brest")


TREES = st.recursive(
    st.integers(0, 3), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner)
)


@given(TREES, TREES, TREES)
def test_merging_is_symmetrical_but_for_what_both_append(before, one, other):
    assert merged(before, before, one) == one
    assert merged(before, one, before) == one
    there, back = merged(before, one, other), merged(before, other, one)
    assert (there is CLASH) == (back is CLASH)


def test_values_that_cannot_be_put_together_clash():
    model = {"$": "model", "c": "m:A", "v": {"x": 1, "y": 1}}
    assert merged({"$": "tuple", "v": [1, 2]}, {"$": "tuple", "v": [3, 2]}, {"$": "tuple", "v": [1, 3]}) is CLASH
    assert merged(model, model | {"c": "m:B"}, model | {"v": {"x": 1, "y": 2}}) is CLASH
    assert merged({"$": "Counter", "v": {"a": 1}}, {"$": "Counter", "v": {"a": 2}}, {"$": "Counter", "v": {}}) is CLASH
    assert merged([1, 2], [2, 1], [1]) is CLASH
    some = model | {"set": ["x"]}
    assert merged(model | {"set": []}, some, model | {"set": ["y"]}) == model | {"set": ["x", "y"]}
