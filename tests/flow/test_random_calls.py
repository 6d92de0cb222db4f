"""Random programs that call a model, are cut after any commit, and make other calls in each life.

Each must end as if its last life had been its only one.
"""

import contextlib
import logging
import random

import pytest

from crewlite import CheckpointConfig
from crewlite.errors import InDoubt, NonDeterminism
from crewlite.flow import flow
from crewlite.state import InMemoryProvider
from tests.cuts import RUN, cut, entries_of
from tests.flow.random_calls import COURSE, PAID, other_courses, same_steps, take_the_same_steps, take_this_course
from tests.soak import SEED, in_time


@pytest.fixture(autouse=True)
def _quiet(caplog):
    """Each failure that is raised again says so in the log."""
    caplog.set_level(logging.CRITICAL, "crewlite")
    PAID.clear()
    COURSE.clear()


def lived(worlds, live, lives, chance):
    """Kick off a program in one world after another, cut after some commit in between; return its result."""
    setting = CheckpointConfig(location="cut", provider=InMemoryProvider())
    for world in lives:
        if entries := entries_of(setting):
            setting = cut(entries, chance.randint(1, len(entries) - 1))
        result = flow(lambda: live(worlds[world], world), name="program", checkpoint=setting).kickoff(run_id=RUN)  # noqa: B023
    return result


def try_the_same_steps(seeds):
    for seed in seeds:
        PAID.clear()
        chance = random.Random(seed)
        worlds, lives = same_steps(chance), [chance.randrange(3) for _ in range(chance.randint(2, 4))]
        with contextlib.suppress(InDoubt):
            result = lived(worlds, take_the_same_steps, lives, chance)
            expected = flow(lambda: take_the_same_steps(worlds[lives[-1]], lives[-1])).kickoff()  # noqa: B023
            assert result == expected, f"seed {seed}"


def try_other_courses(seeds):
    refused = 0
    for seed in seeds:
        chance = random.Random(seed)
        courses = other_courses(chance)
        try:
            result = lived(courses, take_this_course, range(len(courses)), chance)
        except NonDeterminism:  # a step was added, of which no call can be the reason
            assert any(act == "tell" for acts in courses for act, _ in acts), f"seed {seed}"
            refused += 1
        else:
            assert result == flow(lambda: take_this_course(courses[-1], 0)).kickoff(), f"seed {seed}"  # noqa: B023
    assert refused <= len(seeds) / 5, "most of them go on"


def test_programs_that_take_the_same_steps_in_each_life():
    try_the_same_steps(range(40))


def test_programs_that_take_another_course_in_each_life():
    try_other_courses(range(50))


def test_a_step_that_is_added_where_an_earlier_life_had_one_of_the_same_name():
    """That step has become void before the steps ended which the new one comes before."""
    try_other_courses([73_994_804_927])


@pytest.mark.soak
def test_many_programs_that_make_other_calls_in_each_life():
    first = SEED * 100_000
    print(f"programs from seed {first} on")
    try_the_same_steps(range(first, first + in_time(6_000)))
    try_other_courses(range(first, first + in_time(6_000)))
