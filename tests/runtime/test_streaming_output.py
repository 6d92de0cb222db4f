"""`stream=True`, as programs for CrewAI set it: `kickoff` returns chunks to iterate over, which have the result."""

from __future__ import annotations

import asyncio

import pytest

from crewlite import Agent, Crew, Task, ToolCall, tool
from crewlite.errors import ConfigError, RunCancelled
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


def test_a_crew_that_is_part_of_a_run_is_streamed_by_whoever_kicked_that_off():
    class Tides(Flow):
        @start()
        def look(self):
            return crew_of("a", "b", stream=True).kickoff(PORT).raw

    with pytest.raises(
        ConfigError, match="crew 'crew' has stream=True, but .* set stream=True there, and here crew.str"
    ):
        Tides().kickoff()


def test_kickoff_for_each_says_what_to_do_instead():
    crew = crew_of("a", "b", stream=True)
    with pytest.raises(ConfigError, match=r"stream=True, but kickoff_for_each returns results: call crew.kickoff"):
        crew.kickoff_for_each([PORT])
    assert [one.raw for one in crew.with_(stream=False).kickoff_for_each([PORT])] == ["b"]
