"""Threads that `asyncio.to_thread` and the like start are told apart by the call that they execute."""

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

from crewlite import CheckpointConfig
from crewlite.flow import flow
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
