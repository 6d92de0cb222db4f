"""A step works on the arguments that are recorded as its question, whatever the caller does with its objects meanwhile."""

import asyncio
import threading
from functools import cached_property

import pytest
from pydantic import BaseModel

from crewlite import CheckpointConfig
from crewlite.errors import NonDeterminism, NotCodable
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider


@step
def total(numbers):
    numbers.append(0)
    return sum(numbers)


@step(cache=True)
def cached(numbers):
    return sum(numbers)


@step
async def total_later(numbers):
    return sum(numbers)


class Order(BaseModel):
    lines: list[int]


@step
def priced(order, lock):
    assert isinstance(lock, type(threading.Lock()))
    order.lines.append(100)
    return sum(order.lines)


def in_memory():
    return CheckpointConfig(location="here", provider=InMemoryProvider())


def test_what_the_caller_changes_after_the_request_does_not_reach_the_step():
    @flow(checkpoint=in_memory())
    async def program():
        numbers, found = [1, 2], []
        for ask in (total.submit, total_later, cached.submit):
            asked = ask(numbers)
            numbers.append(100)
            found.append(await asked)
            numbers.pop()
        order, lock = Order(lines=[1]), threading.Lock()
        mapped = total.map([numbers, numbers])
        numbers.append(100)
        asked = priced.submit(order, lock)
        order.lines.append(7)
        return [*found, *[await one for one in mapped], await asked, order.lines]

    assert program.kickoff(run_id="r") == [3, 3, 3, 3, 3, 101, [1, 7]]


def test_what_a_step_does_with_its_arguments_is_not_seen_by_the_caller_in_the_first_life_either():
    lives, setting = [True, False], in_memory()

    @flow(checkpoint=setting)
    def program():
        numbers = [1, 2]
        found = total(numbers)
        if lives.pop(0):
            raise KeyError("cut")
        return found, total(numbers), numbers

    with pytest.raises(KeyError):
        program.kickoff(run_id="r")
    assert program.kickoff(run_id="r") == (3, 3, [1, 2])


def test_inputs_that_the_caller_changes_after_the_kickoff_do_not_reach_the_run():
    async def both():
        begun, changed, numbers = asyncio.Event(), asyncio.Event(), [1, 2]

        @flow(checkpoint=in_memory())
        async def program(numbers):
            begun.set()
            await changed.wait()
            return await total_later(numbers)

        running = asyncio.create_task(program.akickoff(numbers, run_id="r"))
        await begun.wait()
        numbers.append(100)
        changed.set()
        return await running

    assert asyncio.run(both()) == 3


class Original(BaseModel):
    name: str

    def __deepcopy__(self, memo=None):
        raise RuntimeError("there is one of me")


def test_an_argument_whose_class_refuses_copies_reaches_the_run_and_its_steps_as_it_is():
    program = flow(lambda work: done(work), name="program", checkpoint=in_memory())
    assert program.kickoff(Original(name="paint"), run_id="r") == "paint"


class Job(BaseModel):
    name: str

    @cached_property
    def lock(self):
        return threading.Lock()


@step
def done(job):
    return job.name


def test_what_can_be_recorded_but_not_copied_reaches_the_run_and_its_steps_as_it_is():
    @flow(checkpoint=in_memory())
    def program(job):
        return job.lock.locked(), done(job)

    job = Job(name="paint")
    assert not job.lock.locked(), "it has a lock now, which is no part of its record"
    assert program.kickoff(job, run_id="r") == (False, "paint")


def test_what_stands_beside_an_object_that_cannot_be_recorded_is_part_of_the_question(on_disk):
    lives, lock = iter(["a", "a", "b"]), threading.Lock()

    @step
    def use(settings):
        return settings["names"][1]

    @flow(checkpoint=on_disk())
    def program():
        found = use({"lock": lock, "names": [lock, next(lives)]})
        raise KeyError(found)

    for _ in range(2):
        with pytest.raises(KeyError, match="a"):
            program.kickoff(run_id="r")
    with pytest.raises(NonDeterminism):
        program.kickoff(run_id="r")


def test_what_stands_beside_an_object_that_cannot_be_recorded_is_copied_as_well():
    @step
    def use(settings, jobs):
        return settings["lock"] is lock, settings["names"]

    lock = threading.Lock()

    @flow(checkpoint=in_memory())
    async def program():
        settings, jobs = {"lock": lock, "names": ["a"]}, [1]
        jobs[0] = jobs
        asked = use.submit(settings, jobs)
        settings["names"].append("b")
        return await asked

    assert program.kickoff(run_id="r") == (True, ["a"])


def test_a_run_without_a_store_takes_an_argument_that_cannot_be_recorded():
    @flow
    def program(lock, numbers):
        return lock, total(numbers)

    lock, numbers = threading.Lock(), [1, 2]
    assert program.kickoff(lock, numbers) == (lock, 3)
    assert program.submit([lock], numbers).result() == ([lock], 3)
    assert numbers == [1, 2]


def test_a_run_with_a_store_refuses_one_before_it_begins_as_no_resume_would_have_it(on_disk):
    @flow(checkpoint=on_disk())
    def program(lock):
        pytest.fail("it began")

    with pytest.raises(NotCodable, match="inputs.lock is a lock, which cannot be recorded"):
        program.kickoff(threading.Lock(), run_id="r")


def test_a_flow_in_a_run_takes_one_and_is_known_by_what_stands_beside_it(on_disk, caplog):
    done, ends = [], [ValueError("cut"), None, None]

    @flow
    def part(lock, number):
        assert isinstance(lock, type(threading.Lock()))
        done.append(number)
        return number

    @flow(checkpoint=on_disk())
    def program():
        found = [part.kickoff(threading.Lock(), number) for number in numbers]
        if error := ends.pop(0):
            raise error
        return found

    numbers = [1, 2]
    with pytest.raises(ValueError, match="cut"):
        program.kickoff(run_id="r")
    numbers[1] = 3
    with pytest.raises(NonDeterminism):
        program.kickoff(run_id="r")
    numbers[1] = 2
    assert program.kickoff(run_id="r") == [1, 2] == done
    assert caplog.text.count("flow part: lock is a lock, which cannot be recorded") == 1


@step
def dial(self, fn, call):
    return self, fn, call


@step
async def dial_later(fn, in_thread):
    return fn, in_thread


@flow
def dialled(definition):
    later = dial_later.submit(fn=2, in_thread=3).result()
    return definition, dial(self=1, fn=2, call=3), dial.submit(self=1, fn=2, call=3).result(), later


def test_an_argument_may_have_any_name():
    assert dialled.kickoff(definition=0) == (0, (1, 2, 3), (1, 2, 3), (2, 3))
