"""Threads of a flow's own ask for steps and models, and get their own answers back."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

import crewlite
from crewlite import Agent, BaseLLM, CheckpointConfig, Crew, History, Task, ToolCall
from crewlite.errors import ConfigError
from crewlite.flow import bound, flow, step
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from crewlite.tools import tool
from tests.cuts import RUN, cut, entries_of


@pytest.mark.parametrize("form", ["blocking", "async"])
def test_a_pool_of_ones_own_is_part_of_the_run_with_bound(stored, form):
    ran, lock, broken = [], threading.Lock(), [True]

    @step
    def fetch(page):
        with lock:
            ran.append(page)
        return page * 10

    def fetched(page):
        return fetch(page) + fetch(page + 1)

    def pooled():
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(bound(fetched), range(0, 12, 2)))
        if broken:
            raise KeyError
        return found

    async def apooled():
        return await asyncio.to_thread(pooled)

    crawl = flow(name="crawl", checkpoint=stored())(pooled if form == "blocking" else apooled)
    with pytest.raises(KeyError):
        crawl.kickoff(run_id="one")
    broken.clear()
    assert crawl.kickoff(run_id="one") == [10, 50, 90, 130, 170, 210]
    assert sorted(ran) == list(range(12))


def test_bound_outside_a_run_is_the_function_and_takes_no_coroutine():
    assert bound(len)("four") == 4
    assert crewlite.bound is bound

    async def waits():
        return 1

    with pytest.raises(ConfigError, match="A coroutine needs no"):
        bound(waits)


class Slow(BaseLLM):
    async def acall(self, messages):
        await asyncio.sleep(0.1)
        return f"I am {self.model}"


@pytest.mark.parametrize("verb", ["ask", "call"])
def test_models_asked_the_same_in_threads_of_the_loop_are_told_apart_only_one_after_another(stored, verb):
    asks, fails = [getattr(Slow(model), verb) for model in ("small", "large")], [KeyError("cut")]

    @flow(checkpoint=stored())
    async def in_a_row():
        said = [str(await asyncio.to_thread(ask, "Well?")) for ask in asks]
        if fails:
            raise fails.pop()
        return said

    @flow(checkpoint=stored())
    async def at_once():
        return await asyncio.gather(*(asyncio.to_thread(ask, "Well?") for ask in asks))

    with pytest.raises(KeyError):
        in_a_row.kickoff(run_id="row")
    assert in_a_row.kickoff(run_id="row") == ["I am small", "I am large"]
    with pytest.raises(ConfigError, match=r"requested twice side by side .* \(Slow\)"):
        at_once.kickoff()
    asks[1] = asks[0]
    assert at_once.kickoff() == ["I am small"] * 2


def test_threads_that_the_code_of_a_flow_gives_its_context_get_their_own_answers_back(stored):
    late, paid, fails = ["a"], [], [KeyError("cut")]

    class Counts(Slow):
        async def acall(self, messages):
            paid.append(messages[-1]["content"])
            return await super().acall(messages)

    llm = Counts("small")

    def asks(name):
        if name in late:
            time.sleep(0.03)
        return str(llm.call(name))

    @flow(checkpoint=stored())
    def crawl():
        async def all_of_them():
            return await asyncio.gather(*(asyncio.to_thread(asks, name) for name in "abc"))

        found = asyncio.run(all_of_them())
        with ThreadPoolExecutor(3) as pool:
            found += [job.result() for job in [pool.submit(copy_context().run, asks, name) for name in "def"]]
        if fails:
            raise fails.pop()
        return found

    with pytest.raises(KeyError):
        crawl.kickoff(run_id="r")
    late[:] = ["c", "d"]
    assert crawl.kickoff(run_id="r") == ["I am small"] * 6
    assert sorted(paid) == list("abcdef")

    @flow(checkpoint=stored())
    def at_once():
        async def both():
            asks = [Slow(model).ask for model in ("small", "large")]
            return await asyncio.gather(*(asyncio.to_thread(ask, "Well?") for ask in asks))

        return asyncio.run(both())

    with pytest.raises(ConfigError, match=r"requested twice side by side .* \(Slow\)"):
        at_once.kickoff()


@pytest.mark.parametrize("verb", ["ask", "call"])
@pytest.mark.parametrize("question", ["{}", "Well?"])
def test_threads_in_a_tool_that_are_given_their_models_get_their_own_answers_back(verb, question):
    models = {name: Slow(name) for name in ("small", "medium", "large")}

    def answers(messages, tools=()):
        return "done" if messages[-1]["role"] == "tool" else ToolCall("survey")

    def crew(setting, late):
        @tool
        def survey() -> str:
            """Ask all of them."""

            def one(job):
                name, llm = job
                if name in late:
                    time.sleep(0.03)
                return str(getattr(llm, verb)(question.format(name)))

            with ThreadPoolExecutor(3) as pool:
                return ", ".join(pool.map(bound(one), models.items()))

        agent = Agent(role="Judge", goal="judge", llm=ScriptedLLM(answers), tools=[survey])
        return Crew(tasks=[Task(description="Survey", expected_output="text", agent=agent)], checkpoint=setting)

    def told(setting):
        with History(setting.location, setting.provider) as history:
            steps = history.run(RUN).steps
        return {step.address: step.value for step in steps if "survey" in step.address and step.status == "finished"}

    whole = CheckpointConfig(location="here", provider=InMemoryProvider())
    crew(whole, ["large"]).kickoff(run_id=RUN)
    entries, expected = entries_of(whole), told(whole)
    assert len(expected) == 4
    for at in range(1, len(entries) + 1):
        again = cut(entries, at)
        crew(again, ["small"]).kickoff(run_id=RUN)
        assert told(again) == expected, f"cut after commit {at}"
