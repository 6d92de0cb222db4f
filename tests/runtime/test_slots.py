"""Which steps can never get a slot follows from who holds what, who waits for what, and who is inside whom."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys

import pytest

from crewlite.errors import StepDeadlock
from crewlite.runtime.steps.slots import Pools, Slots, Wait, first_of
from crewlite.state.format.addresses import outers
from crewlite.step_parts import Limit


class House:
    """Steps by name, each with the step around it, what it holds and what it waits for. `width`: slots of each limit."""

    def __init__(self, width: dict[str, int], *steps: tuple[str, str, str, str]) -> None:
        self.pools = Pools()
        self.steps: dict[str, Slots] = {}
        self.waits: list[Wait] = []
        for name, around, holds, waits in steps:
            slots = self.steps[name] = Slots(self.pools, name, [], self.steps.get(around))
            if holds:
                pool = self.pools.pool(Limit(holds, width[holds]))
                slots.held.append(pool)
                pool.holders.add(slots)
            if waits:
                wanted = (self.pools.pool(Limit(waits, width[waits])),) if waits in width else waits
                self.waits.append(Wait((name, *outers(name)), wanted))
                self.pools.add(self.waits[-1])

    def stuck(self) -> set[str]:
        return {one.place[0] for wait in self.waits for one in self.pools.stuck(wait)}


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
        pytest.param({"a": 1}, [("p", "", "a", "q"), ("q", "", "", "a")], {"p", "q"}, id="a future that needs a slot"),
        pytest.param(
            {"a": 1},
            [("p", "", "a", "q"), ("q", "", "", ""), ("q/x", "q", "", "a")],
            {"p", "q/x"},
            id="a future whose step waits inside",
        ),
        pytest.param({"a": 2}, [("p", "", "a", "q"), ("q", "", "a", "")], set(), id="a future whose step is at work"),
        pytest.param(
            {"a": 2},
            [("p", "", "a", "q"), ("q", "", "", "a"), ("r", "", "a", "")],
            set(),
            id="a future that gets its slot from somebody else",
        ),
        pytest.param({}, [("p", "", "", "q"), ("q", "", "", "p")], {"p", "q"}, id="futures of each other"),
        pytest.param({}, [("p", "", "", "p")], {"p"}, id="a future of its own"),
        pytest.param({}, [("p", "", "", ""), ("p/x", "p", "", "p")], {"p/x"}, id="the future of the step around it"),
        pytest.param(
            {"a": 1},
            [("p", "", "a", "r"), ("q", "", "", "r"), ("r", "", "", "")],
            set(),
            id="several that wait for one at work",
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
        asyncio.run(first_of(house.pools.pool(Limit(key, 1))))
    last = Slots(house.pools, "q/x", [Limit("a", 1)], house.steps["q"])
    with pytest.raises(StepDeadlock) as found:
        asyncio.run(last.take())
    assert "p/x" in str(found.value) and "q/x" in str(found.value)
    assert house.pools.stuck(house.waits[0]) == []


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


def who_is_stuck(steps: list[tuple[str, str, str, str]], width: dict[str, int]) -> set[str]:
    """Let every step end that can, until none can."""
    left = {name: (holds, waits) for name, _, holds, waits in steps}
    while True:
        free = {key: n - sum(holds == key for holds, _ in left.values()) for key, n in width.items()}
        ended = [
            name
            for name, (_, waits) in left.items()
            if (not waits or free.get(waits, 0) > 0 or (waits not in width and waits not in left))
            and not any(name in outers(other) for other in left)
        ]
        if not ended:
            return {name for name, (_, waits) in left.items() if waits and not may_go_on(waits, left, free, width)}
        for name in ended:
            del left[name]


def may_go_on(waits, left, free, width) -> bool:
    return free[waits] > 0 if waits in width else waits not in left


@pytest.mark.parametrize("seed", range(300))
def test_who_is_stuck_is_who_is_left_when_all_others_have_ended(seed):
    draw = random.Random(seed)
    width = {key: draw.randint(1, 2) for key in "ab"[: draw.randint(0, 2)]}
    free, names = dict(width), list[str]()
    for n in range(draw.randint(1, 7)):
        around = draw.choice(["", *names])
        names.append(f"{around}/{n}" if around else str(n))
    steps = list[tuple[str, str, str, str]]()
    for name in names:
        holds = draw.choice(["", *[key for key in free if free[key]]])
        if holds:
            free[holds] -= 1
        steps.append((name, name.rpartition("/")[0], holds, draw.choice(["", *names, *width])))
    assert House(width, *steps).stuck() == who_is_stuck(steps, width)


def test_a_chain_of_waits_costs_no_more_than_its_length():
    count, calls = 400, 0

    def counted(frame, event, arg):
        nonlocal calls
        calls += event == "call"

    pools = Pools()
    before = sys.getprofile()
    with contextlib.ExitStack() as stack:
        sys.setprofile(counted)
        try:
            for n in range(count):
                stack.enter_context(pools.wait(f"step:link#{n + 1}", None, f"step:link#{n}"))
        finally:
            sys.setprofile(before)
    assert calls < 40 * count
