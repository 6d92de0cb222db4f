"""`stream=True`, as programs for CrewAI set it: `kickoff` returns chunks to iterate over, which have the result."""

from __future__ import annotations

import asyncio
import threading

import pytest

from crewlite import Agent, Crew, Task, ToolCall, tool
from crewlite.errors import ConfigError, OnLoopThread, RunCancelled
from crewlite.flow import Flow, listen, start
from crewlite.testing import ScriptedLLM
from crewlite.types.streaming import CrewStreamingOutput, FlowStreamingOutput, StreamChunk, StreamChunkType


@tool
def tide_of(port: str) -> str:
    """Look up the tide of a port."""
    return f"high at {port}"


def crew_of(*replies, delay=0.0, **fields):
    pilot = Agent(role="Pilot", goal="g", llm=ScriptedLLM([*replies], delay=delay), tools=[tide_of])
    tasks = [
        Task(name="look", description="About {port}", expected_output="x", agent=pilot),
        Task(description="Say it", expected_output="x", agent=pilot),
    ]
    return Crew(agents=[pilot], tasks=tasks, **fields)


PORT = {"port": "Dover"}
CALL = ToolCall("tide_of", {"port": "Dover"})


def test_chunks_tell_their_task_and_agent_and_then_there_is_the_result():
    streaming = crew_of(CALL, "At noon.", "Noon!", stream=True).kickoff(inputs=PORT)
    assert isinstance(streaming, CrewStreamingOutput)
    chunks = [(one.chunk_type.name, one.content, one.task_index, one.task_name, one.agent_role) for one in streaming]
    assert chunks == [
        ("TOOL_CALL", "", 0, "look", "Pilot"),
        ("TEXT", "At noon.", 0, "look", "Pilot"),
        ("TEXT", "Noon!", 1, "Say it", "Pilot"),
    ]
    call = streaming.chunks[0].tool_call
    assert (call.tool_name, call.arguments) == ("tide_of", '{"port": "Dover"}')
    assert streaming.get_full_text() == "At noon.Noon!"
    assert (streaming.is_completed, streaming.is_cancelled) == (True, False)
    assert streaming.result.raw == str(streaming.chunks[-1]) == "Noon!"


@pytest.mark.parametrize("verb", ["akickoff", "kickoff_async"])
def test_in_a_coroutine_it_is_read_with_async_for(verb):
    async def main():
        streaming = await getattr(crew_of("a", "b", stream=True), verb)(inputs=PORT)
        text = "".join([chunk.content async for chunk in streaming])
        return text, streaming.result.raw

    assert asyncio.run(main()) == ("ab", "b")


def test_it_is_set_later_and_in_copies():
    crew = crew_of("a", "b")
    crew.stream = True
    assert crew.kickoff(PORT).result.raw == "b"
    assert [*crew_of("a", "b", stream=True).with_(stream=False).kickoff(PORT).tasks_output]
    assert crew.stream(PORT).handle.run_id, "the verb stays"
    assert crew_of(stream=None).streamed is False


def test_the_error_of_the_run_is_raised_after_the_last_chunk():
    streaming = crew_of("a", ValueError("no tide"), stream=True).kickoff(PORT)
    with pytest.raises(Exception, match="no tide"):
        list(streaming)
    assert streaming.get_full_text() == "a"
    assert streaming.is_completed


def test_closing_it_cancels_the_run():
    streaming = crew_of("a", "b", delay=0.2, stream=True).kickoff(PORT)
    assert next(iter(streaming)).content == "a"
    streaming.close()
    assert (streaming.is_completed, streaming.is_cancelled) == (True, True)
    with pytest.raises(RunCancelled):
        _ = streaming.result
    streaming.close()

    async def main():
        streaming = await crew_of("a", "b", delay=0.2, stream=True).akickoff(PORT)
        await streaming.aclose()
        return streaming.is_cancelled

    assert asyncio.run(main())


def tides():
    class Tides(Flow):
        @start()
        def look(self):
            return crew_of("a", "b").kickoff(PORT).raw

        @listen(look)
        def end(self, said):
            return f"{said}!"

    return Tides


class Streamed(tides()):
    stream = True


@pytest.mark.parametrize("made", [Streamed, lambda: tides()(stream=True), "set"])
def test_a_flow_gives_every_event_with_the_text_that_is_in_it(made):
    if made == "set":
        flow = tides()()
        flow.stream = True
    else:
        flow = made()
    streaming = flow.kickoff()
    assert isinstance(streaming, FlowStreamingOutput)
    items = list(streaming)
    assert "".join(item.content for item in items) == streaming.get_full_text() == "ab"
    assert {item.channel for item in items} == {"flow", "llm", "custom"}
    assert [item.event["method_name"] for item in items if item.type == "method_execution_started"] == ["look", "end"]
    assert [item.task_name for item in items if item.content] == ["look", "Say it"]
    assert all(isinstance(item, StreamChunk) and item.chunk_type is StreamChunkType.TEXT for item in items)
    assert streaming.result == "b!"
    assert list(flow.stream())[-1].type == "flow_finished", "the verb stays"
    assert not tides()(stream=None)._streamed


def test_a_setting_stream_that_is_no_switch_is_refused():
    wanted = "flow '.*': stream is 'yes'; wanted True or False"
    with pytest.raises(ConfigError, match=wanted):
        tides()(stream="yes")
    with pytest.raises(ConfigError, match=wanted):
        type("Wrong", (Flow,), {"stream": "yes"})
    assert type("Own", (Flow,), {"streams": ("Brest",)}).streams == ("Brest",), "an attribute of their own is none"


class InMethod(Flow):
    """Kicks off a streamed crew in a method, and reads its stream there."""

    @start()
    def look(self):
        streaming = crew_of("a", "b", stream=True).kickoff(PORT)
        assert isinstance(streaming, CrewStreamingOutput)
        assert (streaming.is_completed, streaming.is_cancelled) == (True, False)
        return [[chunk.task_name, chunk.content] for chunk in streaming], streaming.result.raw


class InCoroutine(Flow):
    @start()
    async def look(self):
        streaming = await crew_of("a", "b", stream=True).akickoff(PORT)
        return [[chunk.task_name, chunk.content] async for chunk in streaming], streaming.result.raw


class MovedToACoroutine(Flow):
    @start()
    async def look(self):
        streaming = crew_of("a", "b", stream=True).kickoff(PORT)
        return [[chunk.task_name, chunk.content] for chunk in streaming], streaming.result.raw


@pytest.mark.parametrize("made", [InMethod, InCoroutine, MovedToACoroutine])
def test_a_streamed_crew_in_a_method_gives_its_chunks_when_it_has_ended(made):
    assert made().kickoff() == ([["look", "a"], ["Say it", "b"]], "b")


def test_a_streamed_crew_in_a_method_is_read_from_the_record_without_chunks():
    said = []

    class Tides(Flow):
        @start()
        def look(self):
            streaming = crew_of("a", "b", stream=True).kickoff(PORT)
            said.append(([chunk.content for chunk in streaming], streaming.result.raw))
            if len(said) == 1:
                raise ValueError("ebb")
            return streaming.result.raw

    flow = Tides(checkpoint=True)
    with pytest.raises(ValueError, match="ebb"):
        flow.kickoff(run_id="r")
    assert flow.kickoff(run_id="r") == "b"
    assert said == [(["a", "b"], "b"), ([], "b")]


def test_streamed_crews_side_by_side_in_a_flow_hear_only_themselves():
    class Tides(Flow):
        @start()
        async def look(self):
            crews = [crew_of(f"a{n}", f"b{n}", stream=True) for n in range(3)]
            streams = await asyncio.gather(*(crew.akickoff(PORT) for crew in crews))
            return [[chunk.content for chunk in stream.chunks or [one async for one in stream]] for stream in streams]

    assert Tides().kickoff() == [[f"a{n}", f"b{n}"] for n in range(3)]


def test_the_failure_of_a_streamed_crew_in_a_method_is_raised_by_its_kickoff():
    class Tides(Flow):
        @start()
        def look(self):
            return crew_of("a", ValueError("no tide"), stream=True).kickoff(PORT).get_full_text()

    with pytest.raises(Exception, match="no tide"):
        Tides().kickoff()


def test_a_streamed_crew_with_a_store_of_its_own_in_a_method_is_heard_too():
    class Tides(Flow):
        @start()
        def look(self):
            streaming = crew_of("a", "b", stream=True, checkpoint=True).kickoff(PORT, run_id="own")
            return [chunk.content for chunk in streaming], streaming.result.raw, streaming.handle.run_id

    assert Tides().kickoff() == (["a", "b"], "b", "own")


def test_kickoff_for_each_gives_a_stream_for_each():
    streams = crew_of("a", "b", stream=True).kickoff_for_each([PORT])
    assert [[chunk.content for chunk in stream] for stream in streams] == [["a", "b"]]
    assert [one.raw for one in streams.results] == [stream.result.raw for stream in streams] == ["b"]
    assert crew_of(stream=True).kickoff_for_each([]).results == []


def test_kickoff_for_each_in_a_coroutine_gives_the_chunks_of_all():
    async def main():
        crew = crew_of(*"abab", stream=True)
        streams = await crew.kickoff_for_each_async([PORT, PORT], max_concurrency=1)
        return [chunk.content async for chunk in streams], [one.raw for one in streams.results]

    assert asyncio.run(main()) == ([*"abab"], ["b", "b"])


def test_kickoff_for_each_gives_a_failure_in_the_place_of_its_stream():
    crew = crew_of("a", "b", "a", ValueError("no tide"), stream=True)
    streams = crew.kickoff_for_each([PORT, PORT], max_concurrency=1, return_exceptions=True)
    assert (streams.results[0].raw, str(streams.results[1]).partition("\n")[0]) == ("b", "no tide")


def test_what_cannot_be_read_is_told_with_what_to_do_instead():
    streaming = crew_of("a", "b", stream=True).kickoff(PORT)
    assert len([*streaming]) == 2
    with pytest.raises(ConfigError, match="was read to its end already.*`chunks` and `get_full_text"):
        [*streaming]

    may_reply = threading.Event()
    pilot = Agent(role="Pilot", goal="g", llm=ScriptedLLM(lambda messages: may_reply.wait(30) and "b"))
    waits = Crew(tasks=[Task(description="Say it", expected_output="x", agent=pilot)], stream=True)

    async def early():
        begun = await waits.akickoff()
        with pytest.raises(OnLoopThread, match="await the stream"):
            _ = begun.result
        may_reply.set()
        return (await begun).raw

    assert asyncio.run(early()) == "b"
