"""Runs work on the loop of uvloop, which servers use, as they do on asyncio's own. There is none for Windows."""

import asyncio
import os

import pytest

from crewlite import Agent, CheckpointConfig, Crew, Task, bound
from crewlite.flow import flow, step
from crewlite.testing import ScriptedLLM

uvloop = pytest.importorskip("uvloop", reason="there is no uvloop for Windows")


@step
async def chapter(number: int) -> str:
    await asyncio.sleep(0.01)
    return f"chapter {number}"


@step
def cover() -> str:
    return "cover"


@pytest.fixture(params=["a directory", "a database"])
def store(request, tmp_path):
    return CheckpointConfig(location=os.path.join(tmp_path, "runs.db" if request.param == "a database" else "runs"))


@pytest.fixture
def book(store):
    @flow(checkpoint=store)
    async def book() -> list[str]:
        return [*[await chapter(number) for number in (1, 2, 3)], await asyncio.to_thread(bound(cover))]

    return book


BOOK = ["chapter 1", "chapter 2", "chapter 3", "cover"]


async def read(stream):
    async with stream:
        async for _ in stream:
            pass
        return await stream


def test_every_verb_gives_the_result(book, store):
    agent = Agent(role="Writer", goal="write", llm=ScriptedLLM(["a", "b"], delay=0.01))
    tasks = [Task(name=name, description=name, expected_output="A line", agent=agent) for name in ("first", "second")]
    crew = Crew(tasks=tasks, checkpoint=store)

    async def program():
        joined = [book.akickoff(run_id="one", wait=True) for _ in range(3)]
        books = await asyncio.gather(*joined, book.akickoff(), book.submit(), read(book.stream()))
        return books, (await crew.akickoff()).raw, book.kickoff()

    assert uvloop.run(program()) == ([BOOK] * 6, "b", BOOK)


def test_a_run_that_is_cut_by_a_time_limit_goes_on(book):
    async def program():
        for _ in range(30):
            try:
                async with asyncio.timeout(0.015):
                    return await book.akickoff(run_id="one")
            except TimeoutError:
                continue
        return await book.akickoff(run_id="one")

    assert uvloop.run(program()) == BOOK


def test_a_run_whose_loop_was_closed_goes_on_on_another(book):
    loop = uvloop.new_event_loop()
    task = loop.create_task(book.akickoff(run_id="one"))
    loop.run_until_complete(asyncio.sleep(0.03))
    loop.close()
    task._log_destroy_pending = False  # what the test does, and asyncio would tell
    assert uvloop.run(book.akickoff(run_id="one", wait=True)) == BOOK
