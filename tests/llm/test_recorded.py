"""A RecordedLLM says what was said before: anywhere, without whoever said it, and never something else."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from pathlib import Path

import pytest
from pydantic import BaseModel
from recording import add, ask, crew_of, lines
from server import Server, call, calling, chat, reply

from crewlite import LLM, Agent, BaseLLM, Crew, LLMReply, Task, ToolCall, Usage
from crewlite.errors import ConfigError, LLMRejected, LLMUnavailable, RecordingMissing
from crewlite.events import LLMCallCompletedEvent, LLMStreamChunkEvent
from crewlite.testing import EventRecorder, RecordedLLM, ScriptedLLM
from tests import children

SCRIPT = [
    [ToolCall("add", {"a": 1, "b": 2}, "call_x1"), ToolCall("add", {"a": 5, "b": 5}, "call_x2")],
    "3 and 10",
    ToolCall("add", {"a": 3, "b": 10}, "call_x3"),
    "Thirteen in all.",
]


def test_a_crew_with_tools_is_replayed_with_its_model_gone(replies):
    source = ScriptedLLM(SCRIPT)
    first = crew_of(RecordedLLM(replies, source)).kickoff()
    again = crew_of(RecordedLLM(replies)).kickoff()
    assert again.raw == first.raw == "Thirteen in all."
    assert again.token_usage == first.token_usage
    assert [output.raw for output in again.tasks_output] == ["3 and 10", "Thirteen in all."]
    assert len(source.calls) == len(lines(replies)) == 4


def test_a_crew_is_replayed_in_another_process_without_key_network_or_litellm(replies):
    crew_of(RecordedLLM(replies, ScriptedLLM(SCRIPT))).kickoff()
    code = textwrap.dedent(f"""
        import socket, sys
        def no(*_): raise AssertionError("the network was asked for")
        socket.socket.connect = socket.create_connection = no
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from crewlite.testing import RecordedLLM
        from recording import crew_of
        for llm in (None, "openai/gpt-4o"):
            result = crew_of(RecordedLLM({str(replies)!r}, llm)).kickoff()
            print(result.raw, result.token_usage.requests, "litellm" in sys.modules)
    """)
    done = children.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "Thirteen in all. 4 False\n" * 2, done.stderr


@pytest.mark.usefixtures("clients")
def test_a_crew_is_replayed_with_the_server_gone(replies):
    turns = [reply(calling(call("add", '{"a": 1, "b": 2}'))), reply(chat("Done."))]
    key = "sk-a-key-that-is-secret"
    with Server(*turns, *turns) as server:
        llm = LLM("openai/gpt-4o-mini", base_url=server.base_url, api_key=key)
        first = crew_of(RecordedLLM(replies, llm)).kickoff()
    assert (first.raw, len(server.requests)) == ("Done.", 4)
    again = crew_of(RecordedLLM(replies, llm)).kickoff()
    assert (again.raw, again.token_usage) == (first.raw, first.token_usage)
    assert again.token_usage.total_tokens == 48
    assert key not in replies.read_text(encoding="utf-8")


def test_a_line_shows_what_was_asked_and_said(replies):
    crew_of(RecordedLLM(replies, ScriptedLLM(SCRIPT, model="m-1"))).kickoff()
    first, second, *_ = lines(replies)
    assert first["asked"].startswith("Reckon.")
    assert first["tool_calls"][1] == {"name": "add", "arguments": {"a": 5, "b": 5}, "id": "call_x2"}
    assert (second["asked"], second["text"], second["model"]) == ("10", "3 and 10", "m-1")
    assert second["usage"]["completion_tokens"] == 3
    assert list(second)[:2] == ["asked", "text"]


def test_what_was_asked_is_shown_shortened_and_on_one_line(replies):
    ask(RecordedLLM(replies, ScriptedLLM(["Ah."])), "Über\n\nalles: " + "x" * 5000)
    text = replies.read_text(encoding="utf-8")
    assert text.count("\n") == 1
    assert "Über alles: xxx" in text
    assert len(text) < 500


def test_ids_of_tool_calls_and_the_model_are_no_part_of_the_question(replies):
    def talk(name, first, second):
        calls = [{"id": i, "type": "function", "function": {"name": "add", "arguments": {}}} for i in (first, second)]
        results = [{"role": "tool", "tool_call_id": i, "name": "add", "content": "3"} for i in (second, first)]
        thought = {"carried": {"provider": "anthropic", "fields": {"thinking_blocks": [first]}}}
        messages = [{"role": "assistant", "content": "", "tool_calls": calls} | thought, *results]
        llm = RecordedLLM(replies, ScriptedLLM([name], model=name))
        return asyncio.run(llm.acall(messages)).text

    assert talk("one", "call_a", "call_b") == "one"
    assert talk("two", "toolu_1", "toolu_2") == "one"


class Answer(BaseModel):
    text: str


@pytest.mark.parametrize(
    "other",
    [
        {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "When?"}]},
        {"tools": [add.schema_for_model]},
        {"response_schema": Answer.model_json_schema()},
    ],
)
def test_other_messages_tools_or_another_schema_are_another_question(replies, other):
    ask(RecordedLLM(replies, ScriptedLLM(["Now."])))
    asked = {"messages": [{"role": "user", "content": "When?"}]} | other
    with pytest.raises(RecordingMissing, match="A recorded request ends in the same way") as missing:
        asyncio.run(RecordedLLM(replies).acall(**asked))
    assert (missing.value.asked, missing.value.count, missing.value.path) == ("When?", 1, str(replies))


def test_what_is_not_there_is_not_made_up(replies):
    with pytest.raises(RecordingMissing, match=r"holds no replies, and there is no model to ask.*RecordedLLM\('"):
        ask(RecordedLLM(replies))
    assert not replies.exists()
    ask(RecordedLLM(replies, ScriptedLLM(["Now."])))
    with pytest.raises(RecordingMissing, match="holds 1 reply, but none to 'Where\\?'"):
        ask(RecordedLLM(replies), "Where?")


def test_a_missing_file_is_told_before_anything_is_asked(replies):
    payer, recorded = ScriptedLLM(["1"]), RecordedLLM(replies)
    first = Task(description="a", expected_output="b", agent=Agent(role="A", goal="b", llm=payer))
    second = Task(description="a", expected_output="b", agent=Agent(role="B", goal="b", llm=recorded))
    with pytest.raises(RecordingMissing):
        Crew(tasks=[first, second]).kickoff()
    assert payer.calls == []


def test_the_nth_asking_gets_the_nth_reply_then_the_last(replies):
    recording = RecordedLLM(replies, ScriptedLLM(["one", "two"]))
    assert [ask(recording).text for _ in range(2)] == ["one", "two"]
    replaying = RecordedLLM(replies, ScriptedLLM([]))
    assert [ask(replaying).text for _ in range(4)] == ["one", "two", "two", "two"]


def test_what_is_there_is_replayed_and_what_is_new_is_recorded(replies):
    ask(RecordedLLM(replies, ScriptedLLM(["Now."])))
    source = ScriptedLLM(["Here."])
    llm = RecordedLLM(replies, source)
    assert [ask(llm).text, ask(llm, "Where?").text, ask(llm).text] == ["Now.", "Here.", "Now."]
    assert len(source.calls) == 1
    assert ask(RecordedLLM(replies), "Where?").text == "Here."


def test_a_reply_comes_back_whole(replies):
    usage = Usage(prompt_tokens=3, cached_tokens=1, reasoning_tokens=2, requests=1, cost=0.5)
    carried = {"provider": "anthropic", "fields": {"thinking_blocks": [{"signature": "abc", "index": 1}]}}
    reply = LLMReply(
        text="half a character \ud800, a line\u2028end and a $",
        tool_calls=(ToolCall("add", {"$": 1, "deep": {"a": [1.5, None]}}, "id-1"), ToolCall("add", "{broken")),
        usage=usage,
        finish_reason="tool_calls",
        response_id="r-1",
        carried=carried,
    )
    first = ask(RecordedLLM(replies, ScriptedLLM([reply], model="m")))
    assert first == reply
    assert ask(RecordedLLM(replies)) == reply.model_copy(update={"model": "m"})


def test_a_streamed_reply_is_told_as_one_chunk(replies):
    class Slow(BaseLLM):
        model = "slow"

        async def acall(self, messages, on_chunk):
            await on_chunk("Hm.", thinking=True)
            for word in ("High ", "water."):
                await on_chunk(word)
            return "High water."

    def chunks(llm):
        with EventRecorder() as events:
            Agent(role="Pilot", goal="answer", llm=llm).kickoff("When?")
        assert events.of(LLMCallCompletedEvent)[0].model == "slow"
        return [event.chunk for event in events.of(LLMStreamChunkEvent)]

    assert chunks(RecordedLLM(replies, Slow())) == ["High ", "water."]
    assert chunks(RecordedLLM(replies)) == ["High water."]


def test_a_reply_that_was_not_streamed_is_told_in_no_chunk(replies):
    for llm in (RecordedLLM(replies, ScriptedLLM(["Now."])), RecordedLLM(replies)):
        with EventRecorder() as events:
            Agent(role="Pilot", goal="answer", llm=llm).kickoff("When?")
        assert events.of(LLMStreamChunkEvent) == []


def test_a_model_without_tool_calls_is_told_of_tools_in_writing_and_replayed_alike(replies):
    source = ScriptedLLM(['Action: add\nAction Input: {"a": 1, "b": 2}', "Final Answer: 3"])
    source.tool_protocol = "text"
    clerk = Agent(role="Clerk", goal="count", llm=RecordedLLM(replies, source), tools=[add])
    assert clerk.kickoff("Add 1 and 2").raw == "3"
    assert "Action Input" in source.calls[0][0]["content"]
    assert Agent(role="Clerk", goal="count", llm=RecordedLLM(replies), tools=[add]).kickoff("Add 1 and 2").raw == "3"
    assert lines(replies)[0]["tool_calls"][0]["name"] == "add"


def test_fallbacks_are_recorded_as_well(replies):
    busy = ScriptedLLM([LLMUnavailable("503", retry_after=0)] * 4, model="busy")
    busy.fallbacks = (ScriptedLLM(["I am here."], model="spare"),)
    assert Agent(role="Pilot", goal="answer", llm=RecordedLLM(replies, busy)).kickoff("Anybody?").raw == "I am here."
    with EventRecorder() as events:
        spared = Agent(role="Pilot", goal="answer", llm=RecordedLLM(replies, "offline")).kickoff("Anybody?")
    assert spared.raw == "I am here."
    assert [event.model for event in events.of(LLMCallCompletedEvent)] == ["spare"]


def test_fallbacks_of_fallbacks_are_recorded_and_asked_once_each(replies):
    models = [ScriptedLLM([LLMRejected(name, 400, "no")], model=name) for name in "ab"]
    models.append(ScriptedLLM(["I am here."], model="c"))
    models[0].fallbacks, models[1].fallbacks = (models[1], models[2]), (models[2], models[0])
    for source in (models[0], None):
        llm = RecordedLLM(replies, source)
        assert Agent(role="Pilot", goal="answer", llm=llm).kickoff("Anybody?").raw == "I am here."
    assert [len(model.calls) for model in models] == [1, 1, 1]
    assert len(lines(replies)) == 1


def test_an_empty_answer_in_writing_is_not_recorded(replies):
    source = ScriptedLLM(["Thought: I know.\nFinal Answer:", "Final Answer: 3"])
    source.tool_protocol = "text"
    clerk = Agent(role="Clerk", goal="count", llm=RecordedLLM(replies, source), tools=[add])
    assert clerk.kickoff("Add 1 and 2").raw == "3"
    assert [line["text"] for line in lines(replies)] == ["3"]


def test_errors_are_not_recorded(replies):
    llm = RecordedLLM(replies, ScriptedLLM([LLMRejected("m", 400, "no"), "Now."]))
    with pytest.raises(LLMRejected):
        ask(llm)
    assert not replies.exists()
    assert ask(llm).text == "Now."


def test_the_model_is_made_ready_only_when_it_is_needed(replies):
    class Late(ScriptedLLM):
        made = 0

        async def ready(self):
            self.made += 1

    source = Late(["Now.", "Here."])
    pilot = Agent(role="Pilot", goal="answer", llm=RecordedLLM(replies, source))
    pilot.kickoff("When?")
    assert source.made
    replayed = Late([])
    Agent(role="Pilot", goal="answer", llm=RecordedLLM(replies, replayed)).kickoff("When?")
    assert replayed.made == 0


def test_what_is_no_model_is_refused(replies):
    with pytest.raises(ConfigError, match="wanted a model, the name of a model, or None"):
        RecordedLLM(replies, 5)
