"""Random programs that call a model, are cut after any commit, and make other calls in each life.

Each must end as if its last life had been its only one.
"""

import contextlib
import logging
import random
import threading

import pytest

from crewlite import CheckpointConfig, bound
from crewlite.errors import InDoubt, NonDeterminism
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, cut, entries_of
from tests.soak import SEED, in_time


def answer(messages):
    if "fail" in (said := messages[-1]["content"]):
        raise ValueError(f"no {said}")
    return f"re: {said}"


LLM, PAID, COURSE = ScriptedLLM(answer), [], []


@pytest.fixture(autouse=True)
def _quiet(caplog):
    """Each failure that is raised again says so in the log."""
    caplog.set_level(logging.CRITICAL, "crewlite")
    PAID.clear()
    COURSE.clear()


@step
def tell(text):
    return f"told {text}"


@step
def deep(number):
    return tell(ask(f"deep {number}"))


@step(effect="once")
def pay(what):
    PAID.append(what)


@step
def judge(number):
    """Come to what depends on all calls so far, although no question tells so."""
    if sum(map(ord, "".join(COURSE))) % 3 == 0:
        raise RuntimeError(f"{number} is bad after {COURSE}")
    return f"{number} is good after {COURSE}"


def ask(text):
    try:
        return str(LLM.call(text))
    except ValueError as error:
        return f"caught {error}"


def ask_in_a_thread(text):
    heard = []
    asking = threading.Thread(target=bound(lambda: heard.append(ask(text))))
    asking.start()
    asking.join()
    return heard[0]


def same_steps(chance):
    """Three worlds in which a program takes the same steps, and some calls are missing, other ones or added."""
    kinds = ["call", "call", "fail", "tell", "say", "pay", "deep", "call in a thread", "fail in a thread"]
    acts = [(chance.choice(kinds), number) for number in range(chance.randint(2, 7))]
    worlds = []
    for _ in range(3):
        world = [act for act in acts if act[0][:4] not in ("call", "fail") or chance.random() < 0.7]
        if chance.random() < 0.4:
            world.insert(chance.randint(0, len(world)), ("call", 9))
        worlds.append(world)
    return worlds


def take_the_same_steps(acts, world):
    said, results = "", []
    for act, number in acts:
        if act[:4] in ("call", "fail"):
            asking = ask_in_a_thread if "thread" in act else ask
            said = asking(f"{act[:4]} {number} in world {world if number % 2 else 'any'}")
        elif act == "pay":
            pay("a gift")
        else:
            results.append(deep(number) if act == "deep" else tell(number if act == "tell" else said))
    return [*results, said]


def other_courses(chance):
    """Two to four lists of acts, each with up to two calls, or steps, more or changed than the one before."""
    acts = [(chance.choice(["call", "fail", "judge", "judge"]), chance.randint(1, 3)) for _ in range(6)]
    courses = [acts[: chance.randint(2, 6)]]
    for _ in range(chance.randint(1, 3)):
        acts = list(courses[-1])
        for _ in range(chance.randint(0, 2)):
            new = chance.choice(["call", "fail"]), chance.randint(10, 99)
            calls = [at for at, (act, _) in enumerate(acts) if act in ("call", "fail")]
            match chance.choice(["add", "add", "change", "tell"]):
                case "change" if calls:
                    acts[chance.choice(calls)] = new
                case "tell":
                    acts.insert(chance.randint(0, len(acts)), ("tell", new[1]))
                case _:
                    acts.insert(chance.randint(0, len(acts)), new)
        courses.append(acts)
    return courses


def take_this_course(acts, world):
    COURSE.clear()
    results = []
    for act, number in acts:
        if act == "judge":
            try:
                results.append(judge(number))
            except RuntimeError as error:
                results.append(str(error))
            continue
        results.append(tell(number) if act == "tell" else ask(f"{act} {number}"))
        COURSE.append(f"{act} {number}")
    return results


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
