"""A failure whose class says that it is false, or has no length, is a failure like any other."""

from __future__ import annotations

import asyncio

import pytest

from crewlite import Agent, CheckpointConfig, Crew, Task, bound, tool
from crewlite.errors import StoreError
from crewlite.flow import Flow, flow, listen, start, step
from crewlite.llm import ToolCall
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN

pytestmark = pytest.mark.timeout(60)


class False_(Exception):  # noqa: N801 - `False` is taken
    def __bool__(self):
        return False


class Empty(Exception):
    def __len__(self):
        return 0


@pytest.fixture(params=[False_, Empty])
def error(request):
    return request.param


@step
def fails(error):
    raise error("it fails")


@step
async def fails_on_the_loop(error):
    raise error("it fails")


def called(error):
    @flow
    def program():
        return fails(error)

    return program


def awaited(error):
    @flow
    async def program():
        return await fails_on_the_loop(error)

    return program


def submitted(error):
    @flow
    def program():
        return fails.submit(error).result()

    return program


def awaited_future(error):
    @flow
    async def program():
        return await fails_on_the_loop.submit(error)

    return program


def spawned(error):
    @flow
    def program():
        fails.submit(error)
        return "ended"

    return program


def gathered(error):
    @flow
    async def program():
        return await asyncio.gather(fails_on_the_loop(error), asyncio.to_thread(bound(fails), error))

    return program


def with_another_before_it(error):
    @flow
    def program():
        try:
            raise error("first")
        except error as first:
            raise error("it fails") from first

    return program


def of_a_class(error):
    class Program(Flow):
        @start()
        def begin(self):
            raise error("it fails")

        @start()
        async def begin_too(self):
            return "done"

        @listen(begin)
        def after(self):
            return "not reached"

    return Program()


def crew_of(llm, **options):
    agent = Agent(role="Worker", goal="work", llm=llm, **options)
    return Crew(tasks=[Task(name="t", description="Do it", expected_output="text", agent=agent)])


def asking_a_model(error):
    return crew_of(ScriptedLLM([error("it fails")]))


def with_a_callback(error):
    def callback(output):
        raise error("it fails")

    crew = crew_of(ScriptedLLM(["done"]))
    crew.task_callback = callback
    return crew


KINDS = [
    called,
    awaited,
    submitted,
    awaited_future,
    spawned,
    gathered,
    with_another_before_it,
    of_a_class,
    asking_a_model,
    with_a_callback,
]


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_raised_and_the_run_has_failed(kind, error, kept):
    definition = kind(error)
    definition.checkpoint = CheckpointConfig(location="here", provider=InMemoryProvider()) if kept else False
    for _ in range(2 if kept and kind is not asking_a_model else 1):
        with pytest.raises(error, match="it fails"):
            definition.kickoff(run_id=RUN if kept else None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_handle_says_that_it_has_failed(kind, error):
    handle = kind(error).stream().handle
    with pytest.raises(error, match="it fails"):
        handle.result()
    assert handle.status == "failed"


def test_a_tool_that_fails_so_has_failed(error):
    heard = []

    @tool
    def look(at: str) -> str:
        """Look."""
        raise error("it fails")

    def answer(messages):
        heard.append(messages[-1]["content"])
        return "done"

    llm = ScriptedLLM(
        lambda messages: answer(messages) if messages[-1]["role"] == "tool" else ToolCall("look", {"at": "it"})
    )
    crew_of(llm, tools=[look]).kickoff()
    assert "it fails" in heard[0]


def test_a_retry_follows_it(error):
    tried = []

    @step(retries=1)
    def twice():
        tried.append(1)
        if len(tried) == 1:
            raise error("it fails")
        return "done"

    @flow
    def program():
        return twice()

    assert program.kickoff() == "done"


def test_a_store_that_fails_so_has_not_saved(error):
    class Store:
        def __init__(self, inner):
            self._inner = inner

        def append(self, commits):
            if commits[0].entries[0].seq > 1:
                raise error("the disk is full")
            self._inner.append(commits)

        def __getattr__(self, name):
            return getattr(self._inner, name)

    class Provider:
        name, in_memory = "failing", True

        def __init__(self):
            self._inner = InMemoryProvider()

        def open(self, location):
            return Store(self._inner.open(location))

    setting = CheckpointConfig(location="here", provider=Provider(), on_save_error="raise")
    with pytest.raises(StoreError, match="the disk is full"):
        flow(lambda: step(lambda: 1, name="one")(), name="program", checkpoint=setting).kickoff(run_id=RUN)
