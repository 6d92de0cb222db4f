"""Which steps can never get a slot follows from who holds what, who waits for what, and who is inside whom."""

from __future__ import annotations

import asyncio

import pytest

from crewlite.errors import StepDeadlock
from crewlite.runtime.steps.slots import Pools, Slots
from crewlite.step_parts import Limit


class House:
    """Steps by name, each with the step around it, what it holds and what it waits for. `width`: slots of each limit."""

    def __init__(self, width: dict[str, int], *steps: tuple[str, str, str, str]) -> None:
        self.pools = Pools()
        self.steps: dict[str, Slots] = {}
        for name, around, holds, waits in steps:
            limits = [Limit(key, width[key]) for key in filter(None, (holds, waits))]
            slots = self.steps[name] = Slots(self.pools, name, limits, self.steps.get(around))
            for limit in limits[: bool(holds)]:
                pool = self.pools.pool(limit)
                slots.held.append(pool)
                pool.holders.add(slots)
            if waits:
                self.pools.waiting[slots] = self.pools.pool(limits[-1])

    def stuck(self) -> set[str]:
        return {slots.address for slots in self.pools.stuck()}


@pytest.mark.parametrize(
    ("width", "steps", "stuck"),
    [
        pytest.param(
            {"a": 1}, [("p", "", "a", ""), ("q", "", "", "a")], set(), id="a holder that waits for nobody ends"
        ),
        pytest.param(
            {"a": 1, "b": 1},
            [("p", "", "a", ""), ("q", "", "b", ""), ("p/x", "p", "", "b"), ("q/x", "q", "", "a")],
            {"p/x", "q/x"},
            id="two that wait for what the other holds around them",
        ),
        pytest.param(
            {"a": 1, "b": 2},
            [("p", "", "a", ""), ("q", "", "b", ""), ("r", "", "b", ""), ("p/x", "p", "", "b"), ("q/x", "q", "", "a")],
            set(),
            id="a slot that somebody else will give back is enough",
        ),
        pytest.param(
            {"a": 2, "b": 1},
            [
                *[("p", "", "a", ""), ("q", "", "a", ""), ("r", "", "b", "")],
                *[("p/x", "p", "", "b"), ("q/x", "q", "", "b"), ("r/x", "r", "", "a")],
            ],
            {"p/x", "q/x", "r/x"},
            id="all holders of one limit wait for the holder of another",
        ),
        pytest.param(
            {"a": 1, "b": 1, "c": 1},
            [
                *[("p", "", "a", ""), ("q", "", "b", ""), ("r", "", "c", "")],
                *[("p/x", "p", "", "b"), ("q/x", "q", "", "c"), ("r/x", "r", "", "a")],
            ],
            {"p/x", "q/x", "r/x"},
            id="a circle of three",
        ),
        pytest.param(
            {"a": 1, "b": 1, "c": 1},
            [
                *[("p", "", "a", ""), ("q", "", "b", ""), ("s", "", "c", "")],
                *[("p/x", "p", "", "b"), ("q/x", "q", "", "a"), ("t", "", "", "c")],
            ],
            {"p/x", "q/x"},
            id="a circle holds up nobody who waits elsewhere",
        ),
        pytest.param(
            {"a": 1, "b": 1},
            [
                ("p", "", "a", ""),
                ("q", "", "b", ""),
                ("p/x", "p", "", ""),
                ("p/x/y", "p/x", "", "b"),
                ("q/x", "q", "", "a"),
            ],
            {"p/x/y", "q/x"},
            id="what is held counts however deep inside somebody waits",
        ),
    ],
)
def test_who_can_never_go_on(width, steps, stuck):
    assert House(width, *steps).stuck() == stuck


def test_a_step_takes_no_second_slot_of_a_limit_that_is_held_around_it():
    house = House({"a": 1}, ("p", "", "a", ""))
    inner = Slots(house.pools, "p/x", [Limit("a", 1)], house.steps["p"])
    asyncio.run(inner.take())
    assert inner.held == []


def test_the_last_to_close_a_circle_is_told_who_is_in_it():
    house = House({"a": 1, "b": 1}, ("p", "", "a", ""), ("q", "", "b", ""), ("p/x", "p", "", "b"))
    for key in ("a", "b"):
        asyncio.run(house.pools.pool(Limit(key, 1)).free.acquire())
    last = Slots(house.pools, "q/x", [Limit("a", 1)], house.steps["q"])
    with pytest.raises(StepDeadlock) as found:
        asyncio.run(last.take())
    assert "p/x" in str(found.value) and "q/x" in str(found.value)
    assert last not in house.pools.waiting


def test_a_waiter_that_is_cancelled_passes_on_the_slot_that_it_was_just_given():
    house = House({"a": 1})
    names = ("first", "cut", "cut as it goes on", "last")
    first, cut, late, last = (Slots(house.pools, name, [Limit("a", 1)], None) for name in names)

    async def play() -> None:
        await first.take()
        waits = [asyncio.create_task(each.take()) for each in (cut, late, last)]
        await asyncio.sleep(0)
        waits[0].cancel()
        await asyncio.sleep(0)
        first.leave()
        waits[1].cancel()  # it has been given the slot, and has not gone on yet
        await asyncio.wait_for(waits[2], 5)
        assert [one.cancelled() for one in waits] == [True, True, False]
        assert [bool(one.held) for one in (first, cut, late, last)] == [False, False, False, True]
        last.leave()
        await asyncio.wait_for(first.take(), 5)

    asyncio.run(play())


def test_slots_that_are_given_back_are_free_again():
    house = House({"a": 1})
    one, other = (Slots(house.pools, name, [Limit("a", 1)], None) for name in ("p", "q"))

    async def take_turns() -> None:
        await one.take()
        one.leave()
        one.leave()  # no harm
        await asyncio.wait_for(other.take(), 5)

    asyncio.run(take_turns())
    assert house.pools.pool(Limit("a", 1)).holders == {other}
