"""Code that asks for steps from several tasks or threads at once: which comes first is chance, and a resume bears it."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter

import pytest
from hypothesis import given, settings, strategies as st

import crewlite
from crewlite import CheckpointConfig, History, durable
from crewlite.errors import NonDeterminism, Suspended
from crewlite.flow import ask, flow, step
from crewlite.state import InMemoryProvider, SqliteProvider
from tests.cuts import RUN, cut, entries_of


class World:
    """Which step ran how often, and how long each takes in this life."""

    def __init__(self, seed):
        self.runs = Counter()
        self.chance = random.Random(seed)

    async def work(self):
        self.runs[durable.scope().address] += 1
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)


world = World(0)


@step
async def leaf(value):
    await world.work()
    return value


@step
async def both(values):
    await world.work()
    return await asyncio.gather(*[line([value, value]) for value in values])


async def line(values):
    """Plain code that a flow runs side by side with more of its kind."""
    return [await (both(value) if isinstance(value, list) else leaf(value)) for value in values]


def side_by_side(setting):
    @flow(name="beside", checkpoint=setting)
    async def side_by_side(lines):
        first = await leaf(0)
        return first, await asyncio.gather(*[line(values) for values in lines]), await leaf(0)

    return side_by_side


numbers = st.integers(0, 3)


lines = st.lists(st.lists(numbers | st.lists(numbers, max_size=2), max_size=4), max_size=3)


@given(lines=lines, seeds=st.tuples(st.integers(), st.integers()))
@settings(max_examples=40, deadline=None)
def test_lines_of_steps_that_are_cut_after_any_commit_end_the_same_whichever_is_faster(lines, seeds):
    global world
    whole = CheckpointConfig(location="x", provider=InMemoryProvider())
    world = World(seeds[0])
    result = side_by_side(whole).kickoff(lines, run_id=RUN)
    runs, entries = world.runs, entries_of(whole)
    assert set(runs.values()) <= {1}
    for at in range(1, len(entries)):
        recorded = {step["address"] for entry in entries[:at] for step in entry.commit.get("steps", ())}
        world = World(seeds[1] + at)
        assert side_by_side(cut(entries, at)).kickoff(run_id=RUN) == result
        assert not recorded & world.runs.keys(), "a recorded step ran again"
        assert recorded | world.runs.keys() >= runs.keys(), "a step changed its place"


def test_what_is_in_doubt_keeps_its_key_whichever_line_comes_first(stored):
    keys, hurry = {}, ["a"]

    @step
    async def pay(who):
        keys.setdefault(who, set()).add(crewlite.idempotency_key())
        raise KeyError(who)

    async def pays(who):
        await asyncio.sleep(0 if who in hurry else 0.01)
        return await pay(who)

    @flow(checkpoint=stored())
    async def payday():
        await asyncio.gather(pays("a"), pays("b"), return_exceptions=True)
        raise KeyError

    for hurry[:] in (["a"], ["b"]):
        with pytest.raises(KeyError):
            payday.kickoff(run_id="one")
    assert [len(found) for found in keys.values()] == [1, 1]
    assert keys["a"] != keys["b"]


def test_a_step_of_a_line_that_is_not_asked_for_any_more_is_an_error(stored):
    word = ["a"]

    async def says():
        return await leaf(word[0])

    @flow(checkpoint=stored())
    async def talk():
        found = await asyncio.gather(says())
        if word == ["a"]:
            raise KeyError
        return found

    with pytest.raises(KeyError):
        talk.kickoff(run_id="one")
    word[:] = ["b"]
    with pytest.raises(
        NonDeterminism, match=r"expected step:leaf#.* known by its question and by the coroutine .* `with k"
    ):
        talk.kickoff(run_id="one")


def test_when_one_line_fails_the_others_end_and_are_recorded(stored):
    ran, broken = [], [True]

    @step
    async def work(n):
        await asyncio.sleep(0.02)
        ran.append(n)
        return n

    async def fails():
        await asyncio.sleep(0.01)
        if broken:
            raise KeyError
        return "well"

    async def goes_on():
        return [await work(n) for n in range(3)]

    @flow(checkpoint=stored())
    async def pipeline():
        return await asyncio.gather(goes_on(), fails())

    with pytest.raises(KeyError):
        pipeline.kickoff(run_id="one")
    assert ran == [0, 1, 2]
    broken.clear()
    assert pipeline.kickoff(run_id="one") == [[0, 1, 2], "well"]
    assert ran == [0, 1, 2]


def test_when_one_of_gathered_steps_fails_the_others_end_and_are_recorded(stored):
    ran, broken = [], [True]

    @step
    async def work(n):
        await asyncio.sleep(0.02)
        ran.append(n)
        return n

    @step
    async def fails():
        if broken:
            raise KeyError
        return "well"

    @flow(checkpoint=stored())
    async def pipeline():
        return await asyncio.gather(work(1), fails(), work(2))

    with pytest.raises(KeyError):
        pipeline.kickoff(run_id="one")
    broken.clear()
    assert pipeline.kickoff(run_id="one") == [1, "well", 2]
    assert ran == [1, 2]


async def gathered(*steps):
    return await asyncio.gather(*steps)


async def grouped(*steps):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in steps]
    return [task.result() for task in tasks]


@pytest.mark.parametrize("delay", [0, 0.02])
@pytest.mark.parametrize("beside", [gathered, grouped])
def test_when_several_steps_side_by_side_fail_all_of_them_are_tried_again(stored, beside, delay):
    ran, broken = [], [True]

    @step
    async def work(n):
        await asyncio.sleep(delay * n)
        ran.append(n)
        if broken:
            raise KeyError(n)
        return n

    async def line(n):
        return await work(n)

    @flow(checkpoint=stored())
    async def pipeline():
        return await beside(*map(line, range(3)))

    with pytest.raises((KeyError, ExceptionGroup)):
        pipeline.kickoff(run_id="one")
    begun = [*ran]
    assert begun == [0, 1, 2] or (beside is grouped and begun[0] == 0)  # which cancels the others
    broken.clear()
    assert pipeline.kickoff(run_id="one") == [0, 1, 2]
    assert ran == [*begun, 0, 1, 2]


def test_a_flow_ends_when_the_steps_that_nobody_awaited_have_ended(stored):
    tasks = []

    @step
    async def work():
        await asyncio.sleep(0.02)

    @flow(checkpoint=stored())
    async def pipeline():
        tasks.append(asyncio.ensure_future(work()))
        await asyncio.sleep(0)

    pipeline.kickoff(run_id="one")
    with History(stored().location, stored().provider) as history:
        assert [found.address for found in history.run("one").steps] == ["step:work", ""]


def test_questions_of_lines_are_told_apart_whichever_comes_first(on_disk):
    order = ["a", "b"]

    async def asks(name):
        await asyncio.sleep(0.01 * order.index(name))
        return await ask(f"{name}?"), await ask("Sure?", name=f"sure-{name}")

    @flow(checkpoint=on_disk())
    async def quiz():
        return await asyncio.gather(asks("a"), asks("b"), return_exceptions=True)

    with pytest.raises(Suspended) as caught:
        quiz.kickoff(run_id="one")
    answers = {address: question[0].upper() for address, question in caught.value.waiting.items()}
    order.reverse()
    ahead = {"human:sure-a": "yes", "human:sure-b": "no"}
    assert quiz.kickoff(run_id="one", answers=answers | ahead) == [("A", "yes"), ("B", "no")]


def test_a_line_that_is_awaited_with_a_limit_and_steps_that_are_gathered_are_still_in_order(stored):
    @flow(checkpoint=stored())
    async def plain():
        one = await asyncio.wait_for(leaf(1), 5)
        return [one, *await asyncio.gather(leaf(2), leaf.submit(3))]

    assert plain.kickoff(run_id="one") == [1, 2, 3]
    with History(plain.checkpoint.location, provider=plain.checkpoint.provider) as history:
        assert {view.address for view in history.run("one").steps} >= {"step:leaf", "step:leaf#2", "step:leaf#3"}


@given(count=st.integers(1, 4), seeds=st.tuples(st.integers(), st.integers()))
@settings(max_examples=25, deadline=None)
def test_code_that_goes_on_with_whichever_step_is_first_goes_on_so_after_a_cut(count, seeds):
    global world
    whole = CheckpointConfig(location="x", provider=InMemoryProvider())

    def first_come(setting):
        @flow(name="first_come", checkpoint=setting)
        async def first_come():
            return sorted([await leaf(-await one) for one in asyncio.as_completed([leaf(n + 1) for n in range(count)])])

        return first_come

    world = World(seeds[0])
    result = first_come(whole).kickoff(run_id=RUN)
    entries = entries_of(whole)
    for at in range(1, len(entries)):
        recorded = {step["address"] for entry in entries[:at] for step in entry.commit.get("steps", ())}
        world = World(seeds[1] + at)
        assert first_come(cut(entries, at)).kickoff(run_id=RUN) == result
        assert not recorded & world.runs.keys(), "a recorded step ran again"


async def through_other_tasks(asked):
    (result,) = await asyncio.wait_for(asyncio.gather(asked), 60)
    return result


@pytest.mark.parametrize("awaited", [asyncio.shield, through_other_tasks])
def test_code_that_waits_for_whichever_step_ends_first_goes_on_so_after_a_cut(awaited):
    global world
    whole = CheckpointConfig(location="x", provider=InMemoryProvider())
    gates = {}

    @step
    async def gated(number):
        await gates[number].wait()
        return number

    async def through(number):
        return await awaited(gated(number))

    def in_turns(setting):
        @flow(name="in_turns", checkpoint=setting)
        async def in_turns():
            order, came = [3, 1, 4, 2], []
            gates.update((number, asyncio.Event()) for number in order)
            left = {asyncio.create_task(through(number)) for number in order}
            while left:
                gates[order[sum(map(len, came))]].set()
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                came.append([await leaf(-one.result()) for one in done])
            return came

        return in_turns

    world = World(1)
    result = [[-3], [-1], [-4], [-2]]
    assert in_turns(whole).kickoff(run_id=RUN) == result
    entries = entries_of(whole)
    for at in range(1, len(entries)):
        world = World(at)
        assert in_turns(cut(entries, at)).kickoff(run_id=RUN) == result


@pytest.mark.parametrize("form", ["task", "submitted", "sometimes failing", "after a step"])
def test_steps_that_end_at_the_same_time_are_handed_over_alike_after_a_cut(form, tmp_path):
    """While the code awaits another step, results gather: as many when the steps run as when they are recorded."""
    whole = CheckpointConfig(
        location=str(tmp_path / "whole.db"), provider=SqliteProvider()
    )  # commits take a while there

    @step
    async def work(number):
        if form == "sometimes failing" and number % 2:
            raise KeyError(number)
        return number

    @step
    async def follow(batch):
        return batch

    async def asked(number):
        return await (work.submit(number) if form == "submitted" else work(number))

    def in_batches(setting):
        @flow(name="in_batches", checkpoint=setting)
        async def in_batches():
            left, came = {asyncio.create_task(asked(number)) for number in range(5)}, []
            if form == "after a step":
                await work(5)
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                came.append(await follow(sorted(repr(one.exception() or one.result()) for one in done)))
            return came

        return in_batches

    result = in_batches(whole).kickoff(run_id=RUN)
    assert form == "after a step" or len(result[0]) == 1
    entries, followed = entries_of(whole), 0
    for at in range(1, len(entries)):
        followed += any(one["address"].startswith("step:follow") for one in entries[at - 1].commit.get("steps", ()))
        assert in_batches(cut(entries, at)).kickoff(run_id=RUN)[:followed] == result[:followed]
    assert followed == len(result)


def test_a_result_that_cannot_be_recorded_is_handed_over_beside_recorded_ones(stored):
    failing = [True]

    @step
    async def opaque():
        return threading.Lock()

    @flow(checkpoint=stored())
    async def mixed():
        one, other = await asyncio.gather(line([1]), asyncio.ensure_future(opaque()))
        if failing:
            failing.clear()
            raise KeyError
        return one, type(other).__name__

    with pytest.raises(KeyError):
        mixed.kickoff(run_id="one")
    assert mixed.kickoff(run_id="one") == ([1], "lock")


def test_code_may_hold_what_it_likes_if_whom_it_asks_is_alike(stored):
    count = 0

    async def one(held):
        nonlocal count
        await asyncio.sleep(0.001 * count)
        count += 1
        return await leaf(0)

    @flow(checkpoint=stored())
    async def rounds():
        found = [await asyncio.gather(one(object()), one(object())) for _ in "ab"]
        return found, [await asyncio.create_task(one(threading.Lock())) for _ in "ab"]

    assert rounds.kickoff() == ([[0, 0], [0, 0]], [0, 0])
