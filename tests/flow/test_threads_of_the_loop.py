"""Threads that `asyncio.to_thread` and the like start are told apart by the call that they execute."""

import asyncio
import functools
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

from crewlite import CheckpointConfig, bound
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, cut, entries_of


def by_the_loop(work):
    async def both():
        return await asyncio.gather(*(asyncio.to_thread(work, number) for number in range(2)))

    return both


def on_a_loop_of_its_own(work):
    def both():
        return asyncio.run(by_the_loop(work)())

    return both


def by_a_pool(work):
    def both():
        with ThreadPoolExecutor(2) as pool:
            return [job.result() for job in [pool.submit(copy_context().run, work, number) for number in range(2)]]

    return both


@pytest.mark.parametrize("threads", [by_the_loop, on_a_loop_of_its_own, by_a_pool])
def test_the_same_question_of_two_threads_gets_back_the_answer_that_each_got(threads):
    said, first = itertools.count(), []
    llm = ScriptedLLM(lambda messages: f"answer {next(said)}")

    def work(number):
        """Ask twice, the thread `first` before the other one."""
        if number != first[0]:
            asked.wait(5)
        told = [str(llm.call("the same"))]
        asked.set()
        return [number, *told, str(llm.call("the same"))]

    def life(setting):
        return flow(threads(work), name="program", checkpoint=setting).kickoff(run_id=RUN)

    setting, asked, first[:] = CheckpointConfig(location="here", provider=InMemoryProvider()), threading.Event(), [0]
    whole, entries = life(setting), entries_of(setting)
    for at, first[0] in itertools.product(range(2, len(entries) + 1), range(2)):
        asked = threading.Event()
        known = [
            step["value"]["text"] for entry in entries[:at] for step in entry.commit.get("steps", ()) if step["address"]
        ]
        for before, after in zip(whole, life(cut(entries, at)), strict=True):
            assert all(now == then for then, now in zip(before, after, strict=True) if then in known), f"cut after {at}"


def test_calls_that_a_thread_hands_on_are_told_apart_whichever_thread_executes_them():
    llm = ScriptedLLM(lambda messages: "an answer")

    def work(number):
        return llm.call(f"about {number}")

    def handed_on(pool):
        llm.call("first")
        return [pool.submit(copy_context().run, work, number) for number in range(2)]

    def addresses(threads):
        setting = CheckpointConfig(location="here", provider=InMemoryProvider())

        @flow(name="program", checkpoint=setting)
        def program():
            with ThreadPoolExecutor(threads) as pool:
                for job in pool.submit(copy_context().run, handed_on, pool).result():
                    job.result()

        program.kickoff(run_id=RUN)
        return {step["address"] for entry in entries_of(setting) for step in entry.commit.get("steps", ())}

    assert addresses(1) == addresses(3)


def decorated(work):
    @functools.wraps(work)
    def call(*args, **kwargs):
        return work(*args, **kwargs)

    return call


def in_two_threads(work):
    def outer(number, out):
        in_turn(bound(lambda out: work(number, out)), out)

    return outer


def with_the_context(fn):
    return functools.partial(copy_context().run, fn)


def in_turn(fn, *args):
    thread = threading.Thread(target=fn, args=args)
    thread.start()
    thread.join()


@pytest.mark.parametrize("wrapped", [lambda work: work, decorated, in_two_threads])
@pytest.mark.parametrize("carried", [bound, with_the_context])
@pytest.mark.parametrize("by_name", [False, True])
def test_threads_that_fill_one_dict_in_any_order_get_back_their_answers(wrapped, carried, by_name):
    said = itertools.count()
    llm = ScriptedLLM(lambda messages: f"answer {next(said)}")

    def work(number, out):
        out[number] = str(llm.call("the same"))

    def life(setting, order):
        def program():
            out = {}
            for number in order:
                if by_name:
                    in_turn(functools.partial(carried(wrapped(work)), number=number, out=out))
                else:
                    in_turn(carried(wrapped(work)), number, out)
            return sorted(out.items())

        return flow(program, checkpoint=setting).kickoff(run_id=RUN)

    assert_all_answer_in_any_order(life)


def assert_all_answer_in_any_order(life):
    """Each of three gets back its answer in whichever order they ask. `life(setting, order)` has them ask."""
    setting = CheckpointConfig(location="here", provider=InMemoryProvider())
    whole, entries = life(setting, [0, 1, 2]), entries_of(setting)
    for order in itertools.permutations(range(3)):
        assert life(cut(entries, len(entries) - 1), order) == whole, order


@pytest.mark.parametrize("parts", [functools.partial, lambda work, number: functools.partial(work, number=number)])
def test_partial_functions_are_told_apart_by_the_arguments_that_they_hold(parts):
    said = itertools.count()
    llm = ScriptedLLM(lambda messages: f"answer {next(said)}")
    out = {}

    def work(number):
        out[number] = str(llm.call("the same"))

    def life(setting, order):
        def program():
            for number in order:
                in_turn(bound(parts(work, number)))
            return sorted(out.items())

        return flow(program, checkpoint=setting).kickoff(run_id=RUN)

    assert_all_answer_in_any_order(life)


def test_coroutines_on_loops_of_threads_are_told_apart_by_the_call_of_the_thread():
    said = itertools.count()

    @step
    async def tell():
        return f"answer {next(said)}"

    async def one():
        return await tell()

    async def several():
        return (await asyncio.gather(one()))[0]

    def life(setting, order):
        async def program():
            out = {}
            for number in order:
                out[number] = await asyncio.to_thread(lambda number: asyncio.run(several()), number)
            return sorted(out.items())

        return flow(program, checkpoint=setting).kickoff(run_id=RUN)

    assert_all_answer_in_any_order(life)


def test_decorated_coroutines_are_told_apart_by_the_arguments_that_the_decorator_collects():
    said = itertools.count()

    @step
    async def tell():
        return f"answer {next(said)}"

    async def one(number):
        return number, await tell()

    def passed_on(coroutine_function):
        async def call(*args):
            return await coroutine_function(*args)

        return call

    def life(setting, order):
        async def program():
            return sorted([await asyncio.create_task(passed_on(one)(number)) for number in order])

        return flow(program, checkpoint=setting).kickoff(run_id=RUN)

    assert_all_answer_in_any_order(life)
