"""Threads that `asyncio.to_thread` and the like start are told apart by the call that they execute."""

import asyncio
import contextlib
import functools
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

from crewlite import BaseLLM, CheckpointConfig, bound
from crewlite.errors import ConfigError
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


class Asker:
    def __init__(self, topic, ask):
        self.topic, self.ask = topic, ask

    def work(self):
        return self.ask(self.topic)


WITHOUT_ARGUMENTS = {
    "variables": lambda ask: [lambda topic=topic: topic and (lambda: ask(topic)) for topic in ("one", "other")],
    "code": lambda ask: [lambda: lambda: ask("one"), lambda: lambda: ask("other")],
    "self": lambda ask: [lambda topic=topic: Asker(topic, ask).work for topic in ("one", "other")],
    "functions": lambda ask: [
        lambda topic=topic: (lambda work: lambda: work())(lambda: ask(topic)) for topic in ("one", "other")
    ],
}


def side_by_side(works, *, carried):
    """Call functions in threads of a flow that all ask before the first is answered."""
    setting = CheckpointConfig(location="here", provider=InMemoryProvider())

    async def program():
        if carried is bound:
            loop = asyncio.get_running_loop()
            return await asyncio.gather(*(loop.run_in_executor(None, bound(work)) for work in works))
        return await asyncio.gather(*map(asyncio.to_thread, works))

    return flow(program, checkpoint=setting).kickoff(run_id=RUN)


def slow_step():
    said = itertools.count()

    @step
    async def tell():
        await asyncio.sleep(0.3)
        return f"answer {next(said)}"

    return tell


@pytest.mark.parametrize("carried", [bound, asyncio.to_thread])
@pytest.mark.parametrize("differing", WITHOUT_ARGUMENTS)
def test_threads_that_differ_in_what_their_functions_hold_must_not_ask_the_same_at_once(differing, carried):
    tell = slow_step()

    def ask(topic):
        return f"{topic}: {tell()}"

    works = [made() for made in WITHOUT_ARGUMENTS[differing](ask)]
    with pytest.raises(ConfigError, match="what the functions of two threads hold"):
        side_by_side(works, carried=carried)


@pytest.mark.parametrize("carried", [bound, asyncio.to_thread])
def test_threads_of_one_function_may_ask_the_same_at_once(carried):
    tell, done, log, lock = slow_step(), 0, [], threading.Lock()

    def work():
        nonlocal done
        with lock:
            done += 1
            log.append(done)
        return tell()

    told = side_by_side([work] * 3 + [lambda: work() for _ in range(3)], carried=carried)
    assert len(set(told)) == 6


def test_what_a_thread_counts_in_an_object_of_its_own_is_no_difference():
    class Counter:
        def __init__(self):
            self.done = 0

        def work(self):
            for _ in range(3):
                tell()
                self.done += 1
            return self.done

    tell = slow_step()

    async def both():
        return await asyncio.gather(*(asyncio.to_thread(Counter().work) for _ in range(3)))

    setting = CheckpointConfig(location="here", provider=InMemoryProvider())
    assert flow(both, checkpoint=setting).kickoff(run_id=RUN) == [3, 3, 3]


class Named(BaseLLM):
    """A model that answers with its name."""

    def call(self, messages, **more):
        return f"answer of {self.model}"


@pytest.mark.parametrize("asked_by", [Named.call, Named.ask])
def test_the_answer_of_one_model_is_not_taken_for_that_of_another_one_in_another_thread(asked_by):
    models = [Named("one"), Named("other")]

    def ask(model):
        if model is not models[first]:
            asked.wait(5)
        told = str(asked_by(model, "the same"))
        asked.set()
        return told

    async def both():
        return await asyncio.gather(*(asyncio.to_thread(ask, model) for model in models))

    def life(setting):
        return flow(both, name="program", checkpoint=setting).kickoff(run_id=RUN)

    first, asked, setting = 0, threading.Event(), CheckpointConfig(location="here", provider=InMemoryProvider())
    assert life(setting) == ["answer of one", "answer of other"]
    entries = entries_of(setting)
    for at in range(1, len(entries)):
        first, asked = 1, threading.Event()
        with contextlib.suppress(ConfigError):
            assert life(cut(entries, at)) == ["answer of one", "answer of other"], f"commit {at}"
    assert at > 2


def test_threads_one_after_another_may_ask_the_same_whatever_they_hold():
    tell = slow_step()

    async def program():
        return [await asyncio.to_thread(lambda number=number: (lambda: number and tell())()) for number in (1, 2)]

    setting = CheckpointConfig(location="here", provider=InMemoryProvider())
    assert flow(program, checkpoint=setting).kickoff(run_id=RUN) == ["answer 0", "answer 1"]
