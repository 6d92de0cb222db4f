"""A run as it happens: events and text, with `for` and `async for`, and the result at the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
import weakref

import pytest

from crewlite import Agent, BaseLLM, Crew, History, LLMReply, Task, event_bus
from crewlite.concurrency import background
from crewlite.errors import ConfigError, OnLoopThread, RunCancelled
from crewlite.events import BaseEvent, TaskCompletedEvent
from crewlite.flow import flow, step
from crewlite.runtime.kickoffs.stream import RunStream
from crewlite.testing import ScriptedLLM
from tests import children
from tests.parts import Stop


def crew_of(replies, *, tasks=2, delay=0.0, **fields):
    who = Agent(role="W", goal="g", llm=ScriptedLLM(replies, delay=delay))
    work = [Task(name=f"t{n}", description="About {topic}", expected_output="x", agent=who) for n in range(tasks)]
    return Crew(tasks=work, **fields)


def test_a_stream_gives_every_event_of_its_run_in_order_and_then_the_result():
    heard = []
    event_bus.on(BaseEvent, lambda source, event: heard.append(event))
    stream = crew_of(["a", "b"]).stream({"topic": "tides"})
    seen = list(stream)
    assert isinstance(stream, RunStream)
    assert seen == heard
    assert [seen[0].type, seen[-1].type] == ["crew_kickoff_started", "crew_kickoff_completed"]
    assert [event.address for event in seen if isinstance(event, TaskCompletedEvent)] == ["task:t0", "task:t1"]
    assert stream.result.raw == "b"
    assert {event.run_id for event in seen} == {stream.handle.run_id}


def test_in_a_coroutine_it_is_iterated_with_async_for_and_awaited():
    async def main():
        stream = crew_of(["a", "b"], delay=0.02).stream({"topic": "tides"})
        types = [event.type async for event in stream]
        assert types[-1] == "crew_kickoff_completed"
        return await stream

    assert asyncio.run(main()).raw == "b"


def test_the_result_can_be_had_without_a_look_at_the_events():
    assert crew_of(["a", "b"]).stream({"topic": "tides"}).result.raw == "b"


def test_text_comes_reply_by_reply_from_a_model_that_does_not_stream():
    assert list(crew_of(["a", "b"]).stream({"topic": "tides"}).text()) == ["a", "b"]

    async def main():
        return [piece async for piece in crew_of(["a", "b"]).stream({"topic": "tides"}).atext()]

    assert asyncio.run(main()) == ["a", "b"]


def test_text_is_what_agents_say_and_not_what_models_say_of_it():
    who = Agent(role="W", goal="g", llm=ScriptedLLM(["a", '{"valid": true, "feedback": ""}']))
    task = Task(description="d", expected_output="x", agent=who, guardrail="It is short")
    plan = json.dumps({"plans": [{"task": 1, "plan": "Begin."}]})
    crew = Crew(tasks=[task], planning=True, planning_llm=ScriptedLLM([plan]))
    assert list(crew.stream().text()) == ["a"]


def test_events_come_while_the_run_goes_on():
    go = threading.Event()

    def reply(messages):
        if "## t0" in messages[-1]["content"]:
            assert go.wait(10), "the event of the first task was not given"
        return "done"

    class Blocking(ScriptedLLM):
        async def acall(self, messages, **context):
            return await asyncio.to_thread(reply, messages)

    crew = crew_of(["x"])
    agent = crew.tasks[0].agent.model_copy(update={"llm": Blocking([])})
    crew = Crew(tasks=[task.model_copy(update={"agent": agent}) for task in crew.tasks])
    for event in crew.stream({"topic": "tides"}):
        if event.type == "task_completed":
            go.set()


def test_streams_side_by_side_do_not_mix():
    crew = crew_of(lambda messages: messages[-1]["content"].partition("\n")[0], delay=0.01)
    topics = [f"topic {n}" for n in range(8)]
    streams = [crew.stream({"topic": topic}) for topic in topics]
    for topic, stream in zip(topics, streams, strict=True):
        assert list(stream.text()) == [f"About {topic}"] * 2
        assert stream.result.tasks_output[0].description == f"About {topic}"

    async def one(topic):
        stream = crew.stream({"topic": topic})
        return {event.run_id async for event in stream}, (await stream).run_id

    async def main():
        return await asyncio.gather(*map(one, topics))

    for run_ids, run_id in asyncio.run(main()):
        assert run_ids == {run_id}


def test_forks_of_one_run_do_not_mix_either(memory):
    crew = crew_of(lambda messages: "x", checkpoint=memory())
    crew.kickoff({"topic": "tides"}, run_id="r")
    forks = [crew.fork("r", branch=name, rerun=["task:t0"]) for name in ("a", "b")]
    for branch, stream in zip("ab", [fork.stream() for fork in forks], strict=True):
        assert {event.branch for event in stream} == {branch}


def test_a_failure_is_raised_after_the_events(on_disk):
    stream = crew_of(["a", Stop("cut")], checkpoint=on_disk()).stream({"topic": "tides"}, run_id="r")
    seen = []
    with pytest.raises(Stop, match="cut"):
        seen += stream
        for event in stream:
            seen.append(event)
    with pytest.raises(Stop):
        _ = stream.result


def test_a_resumed_run_is_streamed_from_where_it_goes_on(on_disk):
    crew = crew_of(["a", Stop(), "b"], checkpoint=on_disk())
    with pytest.raises(Stop):
        crew.kickoff({"topic": "tides"}, run_id="r")
    stream = crew.stream(run_id="r")
    assert list(stream.text()) == ["b"]
    assert stream.result.raw == "b"


def test_a_stream_that_is_left_as_a_context_manager_stops_its_run(on_disk):
    crew = crew_of(lambda messages: "x", delay=0.2, tasks=20, checkpoint=on_disk())
    with crew.stream({"topic": "tides"}, run_id="r") as stream:
        next(iter(stream))
    assert stream.handle.status == "cancelled"
    with pytest.raises(RunCancelled):
        _ = stream.result
    with History(on_disk().location) as history:
        assert history.run("r").status != "finished"


def test_a_run_that_was_left_can_be_gone_on_with_at_once(on_disk):
    class Slow(BaseLLM):
        model = "slow"

        def call(self, messages, **context):
            time.sleep(0.2)
            return "x"

    agent = Agent(role="W", goal="g", llm=Slow())
    crew = Crew(tasks=[Task(description="d", expected_output="x", agent=agent)], checkpoint=on_disk())
    with crew.stream(run_id="r") as stream:
        next(iter(stream))
    assert crew.kickoff(run_id="r").raw == "x"

    async def main():
        async with crew.stream(run_id="s") as stream:
            async for _ in stream:
                break
        assert (await crew.akickoff(run_id="s")).raw == "x"
        with pytest.raises(OnLoopThread, match="async with"), crew.stream(run_id="t"):
            pass

    asyncio.run(main())


def test_agents_and_flows_stream_too():
    agent = Agent(role="W", goal="g", llm=ScriptedLLM(["alone"]))
    assert list(agent.stream("?").text()) == ["alone"]

    @step
    def double(n):
        return n * 2

    @flow
    def work(n):
        return double(n) + 1

    stream = work.stream(4)
    assert [event.type for event in stream][-1] == "flow_finished"
    assert stream.result == 9


def test_a_model_that_streams_is_read_piece_by_piece():
    class Pieces(BaseLLM):
        model = "pieces"

        async def acall(self, messages, on_chunk, **context):
            await on_chunk("hm", thinking=True)
            await on_chunk("in ")
            await on_chunk("pieces")
            return LLMReply(text="in pieces")

    agent = Agent(role="W", goal="g", llm=Pieces())
    stream = agent.stream("?")
    assert list(stream.text()) == ["in ", "pieces"]
    assert stream.result.raw == "in pieces"


def test_a_second_reader_is_refused_while_the_first_one_reads_and_takes_nothing():
    stream = crew_of(["a", "b"]).stream({"topic": "tides"})
    first, text = iter(stream), stream.text()
    begun = next(first)
    with pytest.raises(ConfigError, match="is being read"):
        next(text)
    assert [begun.type, [*first][-1].type] == ["crew_kickoff_started", "crew_kickoff_completed"]
    for again in (text, iter(stream)):
        with pytest.raises(ConfigError, match="was read to its end"):
            next(again)
    assert [*first] == []

    async def main():
        stream = crew_of(["a", "b"]).stream({"topic": "tides"})

        async def read(events):
            return [one async for one in events]

        events, text = await asyncio.gather(read(stream), read(stream.atext()), return_exceptions=True)
        assert isinstance(text, ConfigError)
        assert events[-1].type == "crew_kickoff_completed"

    asyncio.run(main())


def test_who_stops_reading_leaves_the_rest_to_the_next_one():
    stream = crew_of(["a", "b"]).stream({"topic": "tides"})
    for event in stream:
        if isinstance(event, TaskCompletedEvent):
            break
    for piece in stream.text():
        assert piece == "b"
        break
    assert [*stream][-1].type == "crew_kickoff_completed"

    async def main():
        stream = crew_of(["a", "b"]).stream({"topic": "tides"})
        async for event in stream:
            if isinstance(event, TaskCompletedEvent):
                break
        async for piece in stream.atext():
            assert piece == "b"
            break
        return [event.type async for event in stream]

    assert asyncio.run(main())[-1] == "crew_kickoff_completed"


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal to a thread")
def test_what_is_left_of_a_stream_can_be_read_after_ctrl_c():
    emitted, read, main = [], [], threading.main_thread().ident
    event_bus.on(BaseEvent, lambda source, event: emitted.append(event))

    def waits_for_more():
        return len(read) == len(emitted) and sys._current_frames()[main].f_code is background.next_of.__code__

    @step
    async def interrupt():
        await asyncio.to_thread(children.until, waits_for_more)
        signal.pthread_kill(main, signal.SIGINT)
        await asyncio.Event().wait()

    stream = flow(name="long")(interrupt).stream()
    try:
        for event in stream:
            read.append(event)
    except KeyboardInterrupt:
        with pytest.raises(RunCancelled):
            list(stream)


def test_what_cannot_be_streamed_says_so():
    with pytest.raises(ConfigError, match="inputs is 7"):
        crew_of(["a"]).stream(7)

    async def main():
        for _ in crew_of(["a", "b"]).stream({"topic": "t"}):
            pass

    with pytest.raises(OnLoopThread, match="async for event in stream"):
        asyncio.run(main())

    @flow
    def work():
        crew_of(["a", "b"]).stream({"topic": "t"})

    with pytest.raises(ConfigError, match=r"stream\(...\) was called inside a run"):
        work.kickoff()


def test_a_stream_that_nobody_reads_leaves_no_handler_behind():
    stream = crew_of(["a", "b"]).stream({"topic": "t"})
    stream.result  # noqa: B018 - it has ended
    gone = weakref.ref(stream)
    del stream
    children.until_freed(gone)
    children.until(lambda: not event_bus.hears(TaskCompletedEvent))  # the thread of the run may still be ending it
