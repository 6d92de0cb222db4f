"""Streams are told in pieces and recorded whole."""

from __future__ import annotations

import asyncio

import pytest
from server import CLOSE, COUNTED, chat, piece, reply, stream

from crewlite import LLM, Agent, BaseLLM, CheckpointConfig, Crew, FailurePolicy, History, Task, tool
from crewlite.errors import CrewliteError, LLMUnavailable
from crewlite.events import LLMCallCompletedEvent, LLMStreamChunkEvent, LLMThinkingChunkEvent
from crewlite.flow import flow
from crewlite.recovery import Rule
from crewlite.testing import EventRecorder

THOUGHT = [piece(reasoning_content="The moon, "), piece(reasoning_content="I think.")]
SAID = [piece("High "), piece("water "), piece("at 11:40."), piece(finish="stop")]
WHOLE = "High water at 11:40."


def pilot(llm, **more):
    return Agent(role="Pilot", goal="answer", llm=llm, **more)


def model(server, **settings):
    return LLM("openai/foo", base_url=server.base_url, **{"stream": True} | settings)


def told(events):
    return [(event.type.removeprefix("llm_"), event.chunk) for event in events.of(LLMStreamChunkEvent)]


@pytest.mark.parametrize("door", ["sync", "async"])
def test_the_pieces_are_told_in_order_thoughts_first_and_the_outcome_is_the_whole(serve, door):
    agent = pilot(model(serve(stream(*THOUGHT, *SAID, COUNTED))))
    with EventRecorder() as events:
        said = agent.kickoff("When?") if door == "sync" else asyncio.run(agent.akickoff("When?"))
    pieces = [event for event in events if isinstance(event, LLMStreamChunkEvent | LLMThinkingChunkEvent)]
    assert [event.chunk for event in pieces] == ["The moon, ", "I think.", "High ", "water ", "at 11:40."]
    assert [event.type for event in pieces] == ["llm_thinking_chunk"] * 2 + ["llm_stream_chunk"] * 3
    assert {(event.model, event.agent_role, event.address) for event in pieces} == {
        ("openai/foo", "Pilot", pieces[0].address)
    }
    assert said.raw == WHOLE
    (completed,) = events.of(LLMCallCompletedEvent)
    assert (completed.response, completed.finish_reason, completed.response_id) == (WHOLE, "stop", "chatcmpl-1")
    types = events.types
    assert types.index("llm_call_started") < types.index("llm_thinking_chunk")
    assert types.index("llm_call_completed") > len(types) - types[::-1].index("llm_stream_chunk") - 1


def test_a_server_that_does_not_stream_is_asked_once_and_its_reply_is_one_piece(serve):
    server = serve(reply(chat(WHOLE, reasoning_content="The moon, I think.")))
    with EventRecorder() as events:
        assert pilot(model(server)).kickoff("When?").raw == WHOLE
    assert len(server.requests) == 1
    assert [chunk for _, chunk in told(events)] == [WHOLE]
    assert [event.chunk for event in events.of(LLMThinkingChunkEvent)] == ["The moon, I think."]


def test_a_crew_that_is_streamed_asks_its_models_for_pieces(serve):
    agent = pilot(model(serve(stream(*SAID)), stream=False))
    task = Task(description="When?", expected_output="A time", agent=agent)
    streaming = Crew(tasks=[task], stream=True).kickoff()
    assert [chunk.content for chunk in streaming] == ["High ", "water ", "at 11:40."]
    assert streaming.result.raw == streaming.get_full_text() == WHOLE
    assert agent.llm.stream is False


def test_a_streamed_crew_inside_a_flow_asks_its_models_for_pieces_and_the_others_are_not(serve):
    server = serve(stream(*SAID), reply(chat(WHOLE)))
    crews = [
        Crew(
            tasks=[Task(description="When?", expected_output="A time", agent=pilot(model(server, stream=False)))], **how
        )
        for how in ({"stream": True}, {})
    ]

    @flow
    def ask():
        return [chunk.content for chunk in crews[0].kickoff()], crews[1].kickoff().raw

    assert ask() == (["High ", "water ", "at 11:40."], WHOLE)
    assert [request.body.get("stream", False) for request in server.requests] == [True, False]


def test_what_is_recorded_is_the_same_as_unstreamed(serve):
    made = {"stream": stream(*SAID, COUNTED), "whole": reply(chat(WHOLE))}
    for name, answer in made.items():
        llm = model(serve(answer), stream=name == "stream")
        pilot(llm, checkpoint=CheckpointConfig(location=f"./{name}")).kickoff("When?", run_id="r")

    def record(name):
        with History(name) as history:
            run = history.run("r")
            steps = [(step.address, step.kind, step.status, step.usage) for step in run.steps]
            return (
                steps,
                [event.type for event in run.events()],
                [step.value for step in run.steps if step.kind == "llm"],
            )

    assert record("stream") == record("whole")
    assert not [kind for kind in record("stream")[1] if "chunk" in kind]


def test_a_resume_answers_with_the_whole_and_tells_no_pieces_again(serve):
    server = serve(stream(*SAID))
    agent = pilot(model(server), checkpoint=True)
    agent.kickoff("When?", run_id="r")
    with EventRecorder() as events:
        assert agent.kickoff("When?", run_id="r").raw == WHOLE
    assert told(events) == []
    assert len(server.requests) == 1


def test_the_pieces_of_a_stream_that_broke_off_were_heard_but_are_no_part_of_the_answer(serve):
    agent = pilot(model(serve(stream(piece("Low w"), end=[CLOSE]), stream(*SAID))), checkpoint=True)
    with EventRecorder() as events:
        said = agent.kickoff("When?", run_id="r")
    assert [chunk for _, chunk in told(events)] == ["Low w", "High ", "water ", "at 11:40."]
    assert said.raw == WHOLE
    with History(".checkpoints") as history:
        assert [attempt.error_type for attempt in history.run("r").attempts] == ["LLMUnavailable"]


def test_a_request_for_a_stream_asks_for_the_usage(serve):
    server = serve(stream(*SAID, COUNTED))
    said = pilot(model(server)).kickoff("When?")
    assert server.requests[0].body["stream"] is True
    assert server.requests[0].body["stream_options"] == {"include_usage": True}
    assert (said.token_usage.prompt_tokens, said.token_usage.completion_tokens) == (7, 5)


@pytest.mark.parametrize(("on_events", "named"), [(["llm_stream_chunk"], 3), (["*"], 0), (["task_completed"], 0)])
def test_a_chunk_names_a_checkpoint_only_if_it_is_asked_for_by_name(serve, on_events, named):
    config = CheckpointConfig(on_events=on_events)
    pilot(model(serve(stream(*SAID))), checkpoint=config).kickoff("When?", run_id="r")
    with History(".checkpoints") as history:
        triggers = [place.trigger for place in history.run("r").checkpoints()]
    assert triggers.count("llm_stream_chunk") == named


def test_the_secrets_of_a_model_are_masked_in_its_pieces(serve):
    llm = model(
        serve(stream(piece("your key is "), piece("sk-canary-12345"), piece(finish="stop"))), api_key="sk-canary-12345"
    )
    with EventRecorder() as events:
        pilot(llm).kickoff("Which?")
    assert [chunk for _, chunk in told(events)] == ["your key is ", "[secret]"]


class Blocking(BaseLLM):
    """Tells its pieces from the thread that it blocks."""

    model = "blocking"

    def call(self, messages, on_chunk):
        on_chunk("hm", thinking=True)
        for word in ("High ", "water"):
            on_chunk(word)
        return "High water"


class Waiting(BaseLLM):
    model = "waiting"

    async def acall(self, messages, on_chunk):
        await on_chunk("hm", thinking=True)
        for word in ("High ", "water"):
            await on_chunk(word)
        return "High water"


@pytest.mark.parametrize("door", ["sync", "async"])
@pytest.mark.parametrize("llm", [Blocking(), Waiting()], ids=lambda llm: llm.model)
def test_a_model_of_ones_own_tells_its_pieces(llm, door):
    agent = pilot(llm)
    with EventRecorder() as events:
        said = agent.kickoff("When?") if door == "sync" else asyncio.run(agent.akickoff("When?"))
    assert said.raw == "High water"
    assert [event.chunk for event in events if event.type.endswith("_chunk")] == ["hm", "High ", "water"]


class Breaking(BaseLLM):
    """Breaks off after what may be the beginning of its key."""

    model = "breaking"
    api_key: str = "sk-canary-12345"

    async def acall(self, messages, on_chunk):
        await on_chunk("or sk-ca", thinking=True)
        await on_chunk("the sk-can")
        if messages[-1]["content"] == "Wait":
            await asyncio.Event().wait()
        raise LLMUnavailable("gone")


@pytest.mark.parametrize("how", ["fails and is tried again", "is cancelled", "takes too long"])
def test_what_was_held_back_of_a_piece_is_told_when_the_call_ends_without_a_reply(how):
    patience = FailurePolicy((Rule({"unavailable"}, retries=1, base=0),))
    agent = pilot(Breaking(failure_policy=patience), **({"max_execution_time": 0.1} if how == "takes too long" else {}))

    async def asked():
        task = asyncio.ensure_future(agent.akickoff("Go" if how.startswith("fails") else "Wait"))
        while how == "is cancelled" and not events.of(LLMStreamChunkEvent):
            await asyncio.sleep(0)
        if how == "is cancelled":
            task.cancel()
        await task

    ending = asyncio.CancelledError if how == "is cancelled" else CrewliteError
    with EventRecorder() as events, pytest.raises(ending):
        asyncio.run(asked())
    said = [event.chunk for event in events if event.type.endswith("_chunk")]
    assert said == ["or ", "sk-ca", "the ", "sk-can"] * (2 if how.startswith("fails") else 1)


def test_thoughts_go_to_the_thoughts_and_calls_are_not_told_as_text(serve):
    @tool
    def look() -> str:
        """Look."""
        return "calm"

    delta = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    server = serve(stream(*THOUGHT, piece(tool_calls=[delta]), piece(finish="tool_calls")), stream(*SAID))
    with EventRecorder() as events:
        assert pilot(model(server), tools=[look]).kickoff("When?").raw == WHOLE
    assert [chunk for _, chunk in told(events)] == ["High ", "water ", "at 11:40."]
    assert [event.chunk for event in events.of(LLMThinkingChunkEvent)] == ["The moon, ", "I think."]


def test_pieces_say_which_try_they_belong_to(serve):
    lost = stream(piece("High wa"), end=[CLOSE])
    agent = pilot(model(serve(lost, stream(*SAID, COUNTED))))
    with EventRecorder() as events:
        assert agent.kickoff("When?").raw == WHOLE
    pieces = events.of(LLMStreamChunkEvent)
    assert [(event.attempt, event.chunk) for event in pieces][:2] == [(1, "High wa"), (2, "High ")]


def test_a_secret_that_is_split_over_pieces_is_masked_in_them():
    class Repeats(BaseLLM):
        api_key = "sk-0123456789"

        async def acall(self, messages, on_chunk):
            await on_chunk("I think of s", True)
            await on_chunk("k-0123456789, yes", True)
            for said in ["the key s", "k-01", "23456", "789, and sk", "ips, s"]:
                await on_chunk(said)
            return "Said."

    with EventRecorder() as events:
        pilot(Repeats("stub")).kickoff("When?")
    thoughts = [event.chunk for event in events.of(LLMThinkingChunkEvent)]
    assert thoughts == ["I think of ", "[secret], ye", "s"]
    pieces = [event.chunk for event in events.of(LLMStreamChunkEvent)]
    assert pieces == ["the key ", "[secret], and ", "skips, ", "s"]
