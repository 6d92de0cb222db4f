"""Plain functions as durable runs: steps answer from the record, the code between them runs again."""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import pytest

from crewlite import Agent, Crew, History, Task
from crewlite.errors import (
    ConfigError,
    OnLoopThread,
    Suspended,
)
from crewlite.events import (
    CrewKickoffStartedEvent,
    FlowFailedEvent,
    FlowFinishedEvent,
    FlowStartedEvent,
    StepCompletedEvent,
    StepStartedEvent,
)
from crewlite.flow import ask, flow, step
from crewlite.testing import EventRecorder, ScriptedLLM
from crewlite.usage import Usage
from tests.flow.failing import Boom


def test_a_flow_returns_what_its_function_returns(config):
    @step
    def double(n):
        return 2 * n

    @flow(checkpoint=config())
    def pipeline(n, *, plus=0):
        return double(n) + plus

    assert pipeline.kickoff(3) == 6
    assert pipeline.kickoff(3, plus=1) == 7
    assert asyncio.run(pipeline.akickoff(n=4)) == 8
    handle = pipeline.submit(5, run_id="five")
    assert (handle.result(10), handle.run_id, handle.status) == (10, "five", "finished")


def test_the_run_id_that_was_given_is_known_before_the_run_has_begun(config):
    @flow(checkpoint=config())
    def order() -> int:
        return 1

    async def main() -> tuple[str, int]:
        handle = order.submit(run_id="a1")
        return handle.run_id, await handle

    assert asyncio.run(main()) == ("a1", 1)


def test_an_async_flow_awaits_its_steps(config):
    @step
    async def double(n):
        await asyncio.sleep(0)
        return 2 * n

    @step
    def blocking(n):
        return n + 1

    @flow(checkpoint=config())
    async def pipeline(n):
        return await double(n), await blocking.submit(n)

    assert pipeline.kickoff(3) == (6, 4)


def test_outside_a_flow_a_step_is_its_function(ran):
    @step(retries=3, timeout=1)
    def note(n):
        """Note it."""
        ran.append(n)
        return n

    assert (note(1), note.__name__, note.__doc__, ran) == (1, "note", "Note it.", [1])
    for verb in (note.submit, note.map, note.product):
        with pytest.raises(ConfigError, match="outside a run"):
            verb([1])


@pytest.mark.parametrize(
    "options",
    [{"retries": -1}, {"retry_delay": -1}, {"timeout": 0}, {"max_concurrency": 0}],
    ids=lambda options: next(iter(options)),
)
def test_an_option_that_cannot_be_is_told_when_the_function_is_decorated(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        step(**options)(lambda: None)
    if "timeout" not in options:
        with pytest.raises(ConfigError, match=next(iter(options))):
            flow(**options)(lambda: None)


def test_wrong_arguments_are_told_before_a_run_begins(config):
    @flow(checkpoint=config())
    def pipeline(topic):
        return topic

    for wrong in ({"args": ()}, {"args": (1, 2)}, {"args": (1,), "subject": 2}):
        args = wrong.pop("args")
        with pytest.raises(ConfigError, match="pipeline"):
            pipeline.kickoff(*args, **wrong)


def test_a_blocking_step_called_on_the_loop_says_what_to_call_instead(config):
    @step
    def blocking():
        return 1

    @flow(checkpoint=config())
    async def pipeline():
        return blocking()

    with pytest.raises(OnLoopThread, match=r"blocking\.submit"):
        pipeline.kickoff()


def test_types_of_steps_show_in_events_and_history(on_disk):
    @step(type="llm_call")
    def think():
        return "thought"

    @flow(checkpoint=on_disk())
    def pipeline():
        return think()

    with EventRecorder() as heard:
        pipeline.kickoff(run_id="one")
    told = [*heard.of(StepStartedEvent), *heard.of(StepCompletedEvent)]
    assert [event.step_type for event in told] == ["llm_call", "llm_call"]
    with History(pipeline.checkpoint.location) as history:
        assert {view.address: view.type for view in history.run("one").steps}["step:think"] == "llm_call"


def test_a_flow_tells_when_it_begins_ends_and_fails(config):
    @flow(checkpoint=config())
    def pipeline(well):
        if not well:
            raise Boom("no")
        return 1

    with EventRecorder() as heard:
        pipeline.kickoff(True)
        with pytest.raises(Boom):
            pipeline.kickoff(False)
    assert [event.inputs for event in heard.of(FlowStartedEvent)] == [{"well": True}, {"well": False}]
    assert [event.result for event in heard.of(FlowFinishedEvent)] == [1]
    assert [event.error for event in heard.of(FlowFailedEvent)] == ["no"]


def test_crews_and_flows_in_a_flow_are_steps_of_it(config):
    llm = ScriptedLLM(["a poem"])
    poet = Agent(role="Poet", goal="rhyme", llm=llm)
    crew = Crew(name="poets", tasks=[Task(name="write", description="Write", expected_output="a poem", agent=poet)])
    broken = [True]

    @step
    def count(text):
        return len(text)

    @flow
    def inner(text):
        return count(text)

    @flow(checkpoint=config())
    def pipeline():
        poem = crew.kickoff().raw
        size = inner(poem), inner.kickoff(poem)
        if broken:
            raise Boom
        return poem, size

    with pytest.raises(Boom):
        pipeline.kickoff(run_id="one")
    broken.clear()
    with EventRecorder() as heard:
        assert pipeline.kickoff(run_id="one") == ("a poem", (6, 6))
    assert len(llm.calls) == 1
    assert heard.of(CrewKickoffStartedEvent) == []


def test_without_a_store_nothing_is_on_disk(tmp_path):
    @step
    def work(n):
        return n

    @flow
    def pipeline():
        return work.map(range(3)).result()

    assert pipeline.kickoff() == [0, 1, 2]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a#2", "a/b", "a!2", ""])
def test_a_name_that_no_address_can_hold_is_refused(name):
    with pytest.raises(ConfigError, match="not blank, without / # and !"):
        step(name=name)(lambda: None)
    with pytest.raises(ConfigError, match="not blank, without / # and !"):
        flow(name=name)(lambda: None)


def test_a_misspelt_effect_is_refused():
    with pytest.raises(ConfigError, match="none, idempotent, once"):
        step(effect="Once")(lambda: None)


def test_what_a_crew_or_agent_came_to_comes_back_as_itself_without_being_named(config, caplog):
    @step
    def both():
        poet = Agent(role="Poet", goal="rhyme", llm=ScriptedLLM(["a poem"] * 2))
        crew = Crew(tasks=[Task(name="write", description="Write", expected_output="a poem", agent=poet)])
        return crew.kickoff(), poet.kickoff("Rhyme")

    @flow(checkpoint=config())
    def pipeline():
        return both()

    first, again = pipeline.kickoff(run_id="one"), pipeline.kickoff(run_id="one")
    assert first == again
    crew, agent = again
    assert (crew["write"].raw, agent.raw, type(crew.token_usage)) == ("a poem", "a poem", Usage)
    assert "not declared" not in caplog.text


def test_a_handle_is_awaited_and_who_gives_up_waiting_does_not_stop_the_run(config):
    go = threading.Event()

    @step
    def work():
        go.wait(20)
        return 7

    @flow(checkpoint=config())
    def pipeline():
        return work()

    handle = pipeline.submit(run_id="one")

    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(handle, 0.01)
        assert handle.status == "running"
        go.set()
        return await handle

    assert asyncio.run(main()) == 7
    assert handle.status == "finished"


def test_a_handle_tells_that_its_run_waits_for_people(on_disk, monkeypatch):
    @flow(checkpoint=on_disk())
    def pipeline():
        return ask("Publish?", bool, name="publish")

    with open(os.devnull) as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        handle = pipeline.submit(run_id="one")
        with pytest.raises(Suspended):
            handle.result(20)
    assert handle.status == "waiting"


def test_a_result_of_the_flow_that_cannot_be_recorded_is_told_as_the_flows(on_disk, caplog):
    assert len(flow(name="pipeline", checkpoint=on_disk())(lambda: [object()]).kickoff(run_id="one")) == 1
    assert "one/main: the flow itself cannot be recorded" in caplog.text
