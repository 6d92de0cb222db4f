"""An async method that calls a blocking kickoff, as programs for CrewAI do, runs in a thread and may block there."""

from __future__ import annotations

import asyncio
import functools
import threading
from dataclasses import dataclass
from queue import SimpleQueue

import pytest

from crewlite import Agent, Crew, History, Task
from crewlite.concurrency.own_threads import blocks
from crewlite.flow import Flow, ask, flow, keyed, listen, sleep_for, start, step
from crewlite.testing import ScriptedLLM


class Cut(BaseException):
    """Stands for a kill: nothing after it is recorded."""


class Writers:
    """A model, and crews of one task that ask it."""

    def __init__(self, cut_at=None):
        self.cut_at = cut_at
        self.llm = ScriptedLLM(self._answer)

    def _answer(self, messages):
        topic = messages[-1]["content"].partition("about ")[2].partition("\n")[0].rstrip(".")
        if topic == self.cut_at:
            return KeyboardInterrupt()
        return f"On {topic}"

    def crew(self):
        agent = Agent(role="Writer", goal="write", llm=self.llm)
        return Crew(tasks=[Task(description="Write about {topic}.", expected_output="text", agent=agent)])

    @property
    def asked(self):
        return len(self.llm.calls)


def book(writers, **settings):
    class Book(Flow[dict]):
        @start()
        async def outline(self):
            text = writers.crew().kickoff({"topic": "all"}).raw
            self.state["outline"] = await asyncio.sleep(0, text)
            return text

        @listen(outline)
        async def write(self):
            async def chapter(number):
                await asyncio.sleep(0.001 * (3 - number))
                return writers.crew().kickoff({"topic": f"chapter {number}"}).raw

            texts = await asyncio.gather(*[asyncio.create_task(chapter(number)) for number in (1, 2, 3)])
            self.state["chapters"] = texts
            return texts

        @listen(write)
        async def close(self, texts):
            return [*texts, (await writers.crew().akickoff({"topic": "the end"})).raw]

    return Book(**settings)


WHOLE = ["On chapter 1", "On chapter 2", "On chapter 3", "On the end"]


def test_async_methods_may_call_blocking_kickoffs():
    made = book(Writers())
    assert made.kickoff() == WHOLE
    assert (made.state["outline"], made.state["chapters"]) == ("On all", WHOLE[:3])
    assert asyncio.run(book(Writers()).akickoff()) == WHOLE


def test_a_method_that_overrides_one_may_block_too():
    writers = Writers()

    class Plain(Flow):
        @start()
        def outline(self):
            return "nothing"

    class Blocking(Plain):
        async def outline(self):
            return writers.crew().kickoff({"topic": "all"}).raw

    assert Blocking().kickoff() == "On all"


@pytest.mark.parametrize("at", ["all", "chapter 1", "chapter 2", "chapter 3", "the end"])
def test_a_run_that_was_cut_in_a_blocking_kickoff_goes_on_and_pays_nothing_twice(memory, at):
    config, first = memory(), Writers(cut_at=at)
    with pytest.raises((KeyboardInterrupt, RuntimeError)):
        book(first, checkpoint=config).kickoff(run_id="b")
    second = Writers()
    assert book(second, checkpoint=config).kickoff(run_id="b") == WHOLE
    assert first.asked + second.asked == 6  # five questions, of which one was cut


def test_a_key_names_what_a_coroutine_of_such_a_method_kicks_off(memory):
    config, writers = memory(), Writers()

    class Book(Flow):
        checkpoint = config

        @start()
        async def write(self):
            async def chapter(number):
                await asyncio.sleep(0)
                with keyed(number):
                    return writers.crew().kickoff({"topic": f"chapter {number}"}).raw

            return await asyncio.gather(chapter(1), chapter(2))

    Book().kickoff(run_id="b")
    with History(config.location, provider=config.provider) as history:
        crews = [one.address for one in history.run("b").steps if one.kind == "crew"]
    assert sorted(crews) == ["method:write/crew:crew#[1]", "method:write/crew:crew#[2]"]


@step
async def doubled(number):
    return 2 * number


@step
def halved(number):
    return number // 2


def test_such_a_method_awaits_steps_questions_and_pauses_as_any_other(memory):
    writers = Writers()

    class Mixed(Flow):
        checkpoint = memory()

        @start()
        async def go(self):
            text = writers.crew().kickoff({"topic": "tea"}).raw
            many = await asyncio.gather(*[doubled(number) for number in (1, 2)])
            await sleep_for(0)
            future = halved.submit(8)
            return text, many, await future, halved(4), await ask("How many?", int, name="count")

    assert Mixed().kickoff(answers={"method:go/human:count": 3}, run_id="m") == ("On tea", [2, 4], 4, 2, 3)


def test_a_function_flow_and_a_step_may_block_too():
    writers = Writers()

    @step
    async def written(topic):
        return writers.crew().kickoff({"topic": topic}).raw

    @flow
    async def both():
        return await written("one"), writers.crew().kickoff({"topic": "two"}).raw

    assert both.kickoff() == ("On one", "On two")


def test_such_a_method_can_be_given_up_after_its_time():
    class Slow(Flow):
        @start(timeout=0.05)
        async def go(self):
            if self is None:
                Writers().crew().kickoff()
            await asyncio.sleep(30)

    with pytest.raises(TimeoutError):
        Slow().kickoff()


def test_a_function_flow_that_blocks_calls_other_flows_by_their_names():
    writers = Writers()

    @flow
    async def chapter(number):
        return writers.crew().kickoff({"topic": f"chapter {number}"}).raw, await doubled(number)

    @flow
    def title():
        return writers.crew().kickoff({"topic": "title"}).raw

    @flow
    async def whole():
        text = writers.crew().kickoff({"topic": "all"}).raw
        return text, title(), await chapter(1), await asyncio.gather(chapter(2), chapter(3))

    written = "On all", "On title", ("On chapter 1", 2), [("On chapter 2", 4), ("On chapter 3", 6)]
    assert whole.kickoff() == asyncio.run(whole.akickoff()) == written


def test_such_methods_inside_each_other_do_not_wait_for_each_other(monkeypatch):
    monkeypatch.setenv("CREWLITE_MAX_CONCURRENCY", "1")

    def nested(levels):
        class Level(Flow):
            @start(timeout=10)
            async def go(self):
                return nested(levels - 1).kickoff() if levels else "the innermost"

        return Level()

    assert nested(3).kickoff() == "the innermost"


def waiting(ended, config=None, begun=None):
    class Slow(Flow):
        checkpoint = config

        @start(timeout=None if config else 1)
        async def go(self):
            if self is None:
                Writers().crew().kickoff()
            try:
                if begun:
                    begun.set()
                await asyncio.sleep(30)
            finally:
                await asyncio.sleep(0)
                ended.put(threading.current_thread())

    return Slow()


def test_such_a_method_is_cancelled_where_it_awaits_when_its_time_is_up():
    ended = SimpleQueue()
    with pytest.raises(TimeoutError):
        waiting(ended).kickoff()
    assert ended.get(timeout=10)


def test_such_a_method_is_cancelled_where_it_awaits_when_its_run_is(memory):
    ended, begun = SimpleQueue(), threading.Event()

    async def cancelled():
        running = asyncio.create_task(waiting(ended, memory(), begun).akickoff(run_id="s"))
        await asyncio.to_thread(begun.wait, 10)
        running.cancel()
        await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    thread = ended.get(timeout=10)
    thread.join(10)
    assert not thread.is_alive()


def functions():
    crew = Writers().crew()

    async def awaits():
        return await crew.akickoff()

    async def direct():
        return crew.kickoff()

    async def for_each():
        return crew.kickoff_for_each([{}])

    async def inside():
        async def inner():
            return crew.kickoff()

        return await inner()

    async def of_a_model():
        return str(crew.call("x"))

    async def with_options(**options):
        return crew.kickoff(**options)

    async def in_several_lines():
        return (
            crew.copy()
            .kickoff({"topic": await awaits()})
            .raw
        )  # fmt: skip

    async def awaits_a_method_of_that_name(**options):
        return await crew.call("x"), [await crew.call(1, **options) for _ in range(2)]

    async def in_a_list():
        return [crew.kickoff() for _ in range(2)]

    async def in_a_generator():
        return list(crew.kickoff() for _ in range(2))  # noqa: C400

    async def in_comprehensions():
        return {1: [crew.kickoff() for _ in range(2)] for _ in range(2)}

    async def in_an_async_generator():
        async def results():
            yield crew.kickoff()

        return [result async for result in results()]

    @functools.wraps(inside)
    async def wrapper():
        return await inside()

    @functools.wraps(awaits)
    async def blocking_wrapper():
        return crew.kickoff(), await awaits()

    class Called:
        async def __call__(self):
            return crew.kickoff()

    async def handed_to_a_thread():
        return await asyncio.to_thread(crew.kickoff)

    async def in_a_lambda():
        return await asyncio.to_thread(lambda: crew.kickoff())

    def plain():
        return crew.kickoff()

    return {
        direct: True,
        for_each: True,
        inside: True,
        of_a_model: True,
        with_options: True,
        in_several_lines: True,
        in_a_list: True,
        in_a_generator: True,
        in_comprehensions: True,
        in_an_async_generator: True,
        wrapper: True,
        blocking_wrapper: True,
        functools.partial(direct): True,
        Called(): True,
        awaits_a_method_of_that_name: False,
        handed_to_a_thread: False,
        in_a_lambda: False,
        awaits: False,
        plain: False,
    }


def test_what_blocks_is_read_from_the_code():
    for function, wanted in functions().items():
        assert blocks(function) is wanted, function


@dataclass
class Addition:
    """A callable object without a hash, as it is compared by its fields."""

    number: int

    async def __call__(self, other):
        return self.number + other


def test_a_callable_object_without_a_hash_may_be_a_step():
    add = step(name="add")(Addition(2))

    @flow
    async def five():
        return await add(3)

    assert five.kickoff() == 5
