"""A RecordedLLM says what was said before: anywhere, without whoever said it, and never something else."""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pydantic import BaseModel

from crewlite import LLM, Agent, BaseLLM, Crew, LLMReply, Task, ToolCall, Usage, tool
from crewlite.errors import ConfigError, LLMRejected, LLMUnavailable, RecordingDamaged, RecordingMissing
from crewlite.events import LLMCallCompletedEvent, LLMStreamChunkEvent
from crewlite.testing import CrashInjector, EventRecorder, RecordedLLM, ScriptedLLM
from tests import children

SCRIPT = [
    [ToolCall("add", {"a": 1, "b": 2}, "call_x1"), ToolCall("add", {"a": 5, "b": 5}, "call_x2")],
    "3 and 10",
    ToolCall("add", {"a": 3, "b": 10}, "call_x3"),
    "Thirteen in all.",
]


@tool(effect="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def crew_of(llm, **fields):
    clerk = Agent(role="Clerk", goal="count", llm=llm, tools=[add])
    reckon = Task(name="reckon", description="Reckon.", expected_output="Numbers", agent=clerk)
    announce = Task(name="announce", description="Announce.", expected_output="A line", agent=clerk, context=[reckon])
    return Crew(tasks=[reckon, announce], **fields)


def ask(llm, text="When?", **context):
    return asyncio.run(llm.acall([{"role": "user", "content": text}], **context))


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "replies" / "crew.jsonl"


def test_a_crew_with_tools_is_replayed_with_its_model_gone(path):
    source = ScriptedLLM(SCRIPT)
    first = crew_of(RecordedLLM(path, source)).kickoff()
    again = crew_of(RecordedLLM(path)).kickoff()
    assert again.raw == first.raw == "Thirteen in all."
    assert again.token_usage == first.token_usage
    assert [output.raw for output in again.tasks_output] == ["3 and 10", "Thirteen in all."]
    assert len(source.calls) == len(lines(path)) == 4


def test_a_crew_is_replayed_in_another_process_without_key_network_or_litellm(path):
    crew_of(RecordedLLM(path, ScriptedLLM(SCRIPT))).kickoff()
    code = textwrap.dedent(f"""
        import socket, sys
        def no(*_): raise AssertionError("the network was asked for")
        socket.socket.connect = socket.create_connection = no
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_recorded import RecordedLLM, crew_of
        for llm in (None, "openai/gpt-4o"):
            result = crew_of(RecordedLLM({str(path)!r}, llm)).kickoff()
            print(result.raw, result.token_usage.requests, "litellm" in sys.modules)
    """)
    done = children.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "Thirteen in all. 4 False\n" * 2, done.stderr


@pytest.fixture
def service():
    """An OpenAI-compatible server on loopback that adds up, and how often it was asked."""
    asked = []

    class Service(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            message = {"role": "assistant", "content": "Done."}
            if body["messages"][-1]["role"] != "tool":
                function = {"name": "add", "arguments": '{"a": 1, "b": 2}'}
                call = {"id": f"call_{len(asked)}", "type": "function", "function": function}
                message = {"role": "assistant", "content": None, "tool_calls": [call]}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
            reply = {"id": "r", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
            data = json.dumps(reply | {"usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def stop():
        server.shutdown()
        server.server_close()
        thread.join()

    yield f"http://127.0.0.1:{server.server_port}/v1", asked, stop
    if thread.is_alive():
        stop()


def test_a_crew_is_replayed_with_the_server_gone(path, service):
    url, asked, stop = service
    name, key = "openai/gpt-4o-mini", "sk-a-key-that-is-secret"
    first = crew_of(RecordedLLM(path, LLM(name, base_url=url, api_key=key))).kickoff()
    assert first.raw == "Done."
    assert len(asked) == 4
    stop()
    again = crew_of(RecordedLLM(path, LLM(name, base_url=url, api_key=key))).kickoff()
    assert (again.raw, again.token_usage) == (first.raw, first.token_usage)
    assert again.token_usage.total_tokens == 36
    assert key not in path.read_text(encoding="utf-8")


def test_a_line_shows_what_was_asked_and_said(path):
    crew_of(RecordedLLM(path, ScriptedLLM(SCRIPT, model="m-1"))).kickoff()
    first, second, *_ = lines(path)
    assert first["asked"].startswith("Reckon.")
    assert first["tool_calls"][1] == {"name": "add", "arguments": {"a": 5, "b": 5}, "id": "call_x2"}
    assert (second["asked"], second["text"], second["model"]) == ("10", "3 and 10", "m-1")
    assert second["usage"]["completion_tokens"] == 3
    assert list(second)[:2] == ["asked", "text"]


def test_what_was_asked_is_shown_shortened_and_on_one_line(path):
    ask(RecordedLLM(path, ScriptedLLM(["Ah."])), "Über\n\nalles: " + "x" * 5000)
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") == 1
    assert "Über alles: xxx" in text
    assert len(text) < 500


def test_ids_of_tool_calls_and_the_model_are_no_part_of_the_question(path):
    def talk(name, first, second):
        calls = [{"id": i, "type": "function", "function": {"name": "add", "arguments": {}}} for i in (first, second)]
        results = [{"role": "tool", "tool_call_id": i, "name": "add", "content": "3"} for i in (second, first)]
        thought = {"carried": {"provider": "anthropic", "fields": {"thinking_blocks": [first]}}}
        messages = [{"role": "assistant", "content": "", "tool_calls": calls} | thought, *results]
        llm = RecordedLLM(path, ScriptedLLM([name], model=name))
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
def test_other_messages_tools_or_another_schema_are_another_question(path, other):
    ask(RecordedLLM(path, ScriptedLLM(["Now."])))
    asked = {"messages": [{"role": "user", "content": "When?"}]} | other
    with pytest.raises(RecordingMissing, match="A recorded request ends in the same way") as missing:
        asyncio.run(RecordedLLM(path).acall(**asked))
    assert (missing.value.asked, missing.value.count, missing.value.path) == ("When?", 1, str(path))


def test_what_is_not_there_is_not_made_up(path):
    with pytest.raises(RecordingMissing, match=r"holds no replies, and there is no model to ask.*RecordedLLM\('"):
        ask(RecordedLLM(path))
    assert not path.exists()
    ask(RecordedLLM(path, ScriptedLLM(["Now."])))
    with pytest.raises(RecordingMissing, match="holds 1 reply, but none to 'Where\\?'"):
        ask(RecordedLLM(path), "Where?")


def test_a_missing_file_is_told_before_anything_is_asked(path):
    payer, recorded = ScriptedLLM(["1"]), RecordedLLM(path)
    first = Task(description="a", expected_output="b", agent=Agent(role="A", goal="b", llm=payer))
    second = Task(description="a", expected_output="b", agent=Agent(role="B", goal="b", llm=recorded))
    with pytest.raises(RecordingMissing):
        Crew(tasks=[first, second]).kickoff()
    assert payer.calls == []


def test_the_nth_asking_gets_the_nth_reply_then_the_last(path):
    recording = RecordedLLM(path, ScriptedLLM(["one", "two"]))
    assert [ask(recording).text for _ in range(2)] == ["one", "two"]
    replaying = RecordedLLM(path, ScriptedLLM([]))
    assert [ask(replaying).text for _ in range(4)] == ["one", "two", "two", "two"]


def test_what_is_there_is_replayed_and_what_is_new_is_recorded(path):
    ask(RecordedLLM(path, ScriptedLLM(["Now."])))
    source = ScriptedLLM(["Here."])
    llm = RecordedLLM(path, source)
    assert [ask(llm).text, ask(llm, "Where?").text, ask(llm).text] == ["Now.", "Here.", "Now."]
    assert len(source.calls) == 1
    assert ask(RecordedLLM(path), "Where?").text == "Here."


def test_a_reply_comes_back_whole(path):
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
    first = ask(RecordedLLM(path, ScriptedLLM([reply], model="m")))
    assert first == reply
    assert ask(RecordedLLM(path)) == reply.model_copy(update={"model": "m"})


def test_a_streamed_reply_is_told_as_one_chunk(path):
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

    assert chunks(RecordedLLM(path, Slow())) == ["High ", "water."]
    assert chunks(RecordedLLM(path)) == ["High water."]


def test_a_reply_that_was_not_streamed_is_told_in_no_chunk(path):
    for llm in (RecordedLLM(path, ScriptedLLM(["Now."])), RecordedLLM(path)):
        with EventRecorder() as events:
            Agent(role="Pilot", goal="answer", llm=llm).kickoff("When?")
        assert events.of(LLMStreamChunkEvent) == []


def test_a_model_without_tool_calls_is_told_of_tools_in_writing_and_replayed_alike(path):
    source = ScriptedLLM(['Action: add\nAction Input: {"a": 1, "b": 2}', "Final Answer: 3"])
    source.tool_protocol = "text"
    clerk = Agent(role="Clerk", goal="count", llm=RecordedLLM(path, source), tools=[add])
    assert clerk.kickoff("Add 1 and 2").raw == "3"
    assert "Action Input" in source.calls[0][0]["content"]
    assert Agent(role="Clerk", goal="count", llm=RecordedLLM(path), tools=[add]).kickoff("Add 1 and 2").raw == "3"
    assert lines(path)[0]["tool_calls"][0]["name"] == "add"


def test_fallbacks_are_recorded_as_well(path):
    busy = ScriptedLLM([LLMUnavailable("503", retry_after=0)] * 4, model="busy")
    busy.fallbacks = (ScriptedLLM(["I am here."], model="spare"),)
    assert Agent(role="Pilot", goal="answer", llm=RecordedLLM(path, busy)).kickoff("Anybody?").raw == "I am here."
    with EventRecorder() as events:
        assert (
            Agent(role="Pilot", goal="answer", llm=RecordedLLM(path, "offline")).kickoff("Anybody?").raw == "I am here."
        )
    assert [event.model for event in events.of(LLMCallCompletedEvent)] == ["spare"]


def test_fallbacks_of_fallbacks_are_recorded_and_asked_once_each(path):
    models = [ScriptedLLM([LLMRejected(name, 400, "no")], model=name) for name in "ab"]
    models.append(ScriptedLLM(["I am here."], model="c"))
    models[0].fallbacks, models[1].fallbacks = (models[1], models[2]), (models[2], models[0])
    for source in (models[0], None):
        llm = RecordedLLM(path, source)
        assert Agent(role="Pilot", goal="answer", llm=llm).kickoff("Anybody?").raw == "I am here."
    assert [len(model.calls) for model in models] == [1, 1, 1]
    assert len(lines(path)) == 1


def test_an_empty_answer_in_writing_is_not_recorded(path):
    source = ScriptedLLM(["Thought: I know.\nFinal Answer:", "Final Answer: 3"])
    source.tool_protocol = "text"
    clerk = Agent(role="Clerk", goal="count", llm=RecordedLLM(path, source), tools=[add])
    assert clerk.kickoff("Add 1 and 2").raw == "3"
    assert [line["text"] for line in lines(path)] == ["3"]


def test_errors_are_not_recorded(path):
    llm = RecordedLLM(path, ScriptedLLM([LLMRejected("m", 400, "no"), "Now."]))
    with pytest.raises(LLMRejected):
        ask(llm)
    assert not path.exists()
    assert ask(llm).text == "Now."


def test_the_model_is_made_ready_only_when_it_is_needed(path):
    class Late(ScriptedLLM):
        made = 0

        async def ready(self):
            self.made += 1

    source = Late(["Now.", "Here."])
    pilot = Agent(role="Pilot", goal="answer", llm=RecordedLLM(path, source))
    pilot.kickoff("When?")
    assert source.made
    replayed = Late([])
    Agent(role="Pilot", goal="answer", llm=RecordedLLM(path, replayed)).kickoff("When?")
    assert replayed.made == 0


def test_no_secret_gets_into_the_file(path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "env-secret-1")

    class Keyed(BaseLLM):
        model = "keyed"
        api_key = None

        def __init__(self):
            super().__init__()
            self.api_key = "own-secret-2"

        def call(self, messages):
            return LLMReply(
                text=f"env-secret-1 {self.api_key} {messages[-1]['content']}",
                tool_calls=(ToolCall("add", {"own-secret-2": ["env-secret-1"]}),),
            )

    reply = ask(RecordedLLM(path, Keyed()), "Is own-secret-2 yours?")
    text = path.read_text(encoding="utf-8")
    assert "env-secret-1" not in text
    assert "own-secret-2" not in text
    assert reply.text == "[secret] [secret] Is [secret] yours?"
    assert ask(RecordedLLM(path), "Is own-secret-2 yours?").text == reply.text


def test_secrets_of_the_run_get_not_into_the_file_either(path):
    keyed = ScriptedLLM(["unasked"])
    keyed.api_key = "hunter2-hunter2"
    parrot = ScriptedLLM(lambda messages: "It is hunter2-hunter2.")
    one = Task(name="one", description="Say", expected_output="it", agent=Agent(role="A", goal="b", llm=keyed))
    agent = Agent(role="B", goal="b", llm=RecordedLLM(path, parrot))
    Crew(tasks=[one, Task(name="two", description="Say", expected_output="it", agent=agent)]).kickoff()
    assert "hunter2" not in path.read_text(encoding="utf-8")


def test_threads_that_record_into_one_file_tear_no_line(path):
    def record(name):
        llm = RecordedLLM(path, ScriptedLLM(lambda messages: messages[-1]["content"] * 50))
        for n in range(10):
            ask(llm, f"{name} {n} ")

    threads = [threading.Thread(target=record, args=(f"thread {n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({line["text"] for line in lines(path)}) == len(lines(path)) == 60
    assert ask(RecordedLLM(path), "thread 5 9 ").text == "thread 5 9 " * 50


def test_processes_that_record_into_one_file_tear_no_line(path):
    code = """
import asyncio, sys
from crewlite.testing import RecordedLLM, ScriptedLLM
llm = RecordedLLM(sys.argv[1], ScriptedLLM(lambda messages: messages[-1]["content"] * 50))
for n in range(15):
    asyncio.run(llm.acall([{"role": "user", "content": f"{sys.argv[2]} {n} "}]))
"""
    started = [children.Child([sys.executable, "-c", code, str(path), f"process {n}"]) for n in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert len({line["text"] for line in lines(path)}) == len(lines(path)) == 45


def test_what_another_recorded_meanwhile_is_replayed(path):
    llm = RecordedLLM(path, ScriptedLLM(["Here."]))
    assert ask(llm, "Where?").text == "Here."
    ask(RecordedLLM(path, ScriptedLLM(["Now."])))
    assert ask(llm).text == "Now."


@pytest.mark.parametrize(
    "damage",
    [
        "{",
        "",
        "[]",
        "null",
        '{"asked": "When?"}',
        '{"asked": "When?", "key": "k", "text": 5, "usage": {}, "model": "m"}',
        '{"asked": "When?", "key": "k", "text": "", "usage": {"prompt_tokens": "many"}, "model": "m"}',
        '{"$": "pickle", "v": ""}',
        "<<<<<<< HEAD",
        "\ud8ff",
    ],
)
def test_a_damaged_line_is_named(path, damage):
    llm = RecordedLLM(path, ScriptedLLM(["one", "two"]))
    ask(llm), ask(llm)
    first, second = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, damage.encode(errors="surrogatepass"), second, b""]))
    with pytest.raises(RecordingDamaged, match="crew.jsonl, line 2 holds no recorded reply") as damaged:
        ask(RecordedLLM(path))
    assert damaged.value.where == f"{path}, line 2"
    with pytest.raises(RecordingDamaged):
        ask(RecordedLLM(path, ScriptedLLM(["three"])), "Where?")
    assert path.read_bytes().count(b"\n") == 3


def test_what_a_killed_process_left_of_a_line_is_written_over(path):
    ask(RecordedLLM(path, ScriptedLLM(["one"])))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert ask(RecordedLLM(path)).text == "one"
    ask(RecordedLLM(path, ScriptedLLM(["Here."])), "Where?")
    assert [line["text"] for line in lines(path)] == ["one", "Here."]


def test_a_last_line_without_an_end_is_a_line(path):
    ask(RecordedLLM(path, ScriptedLLM(["one"])))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert ask(RecordedLLM(path)).text == "one"
    ask(RecordedLLM(path, ScriptedLLM(["Here."])), "Where?")
    assert [line["text"] for line in lines(path)] == ["one", "Here."]


def test_a_file_that_was_exchanged_is_read_anew(path, tmp_path):
    ask(RecordedLLM(path, ScriptedLLM(["old"])))
    llm = RecordedLLM(path, ScriptedLLM(["Here."]))
    assert ask(llm).text == "old"
    path.unlink()
    ask(RecordedLLM(path, ScriptedLLM(["new"])), "Who?")
    assert ask(llm, "Who?").text == "new"
    assert ask(llm, "Where?").text == "Here."
    assert [line["text"] for line in lines(path)] == ["new", "Here."]


def test_a_reply_is_on_disk_before_it_is_given(path):
    with CrashInjector() as disk:
        ask(RecordedLLM(path, ScriptedLLM(["one"])))
    assert [operation.verb for operation in disk.log] == ["mkdir", "fsync_dir", "write", "fsync", "fsync_dir"]
    with CrashInjector(at=1, error=OSError(28, "No space left on device")), pytest.raises(OSError, match="No space"):
        ask(RecordedLLM(path, ScriptedLLM(["two"])), "Where?")
    assert len(lines(path)) == 1


def test_what_is_no_model_is_refused(path):
    with pytest.raises(ConfigError, match="wanted a model, the name of a model, or None"):
        RecordedLLM(path, 5)
