"""The file of recorded replies: shared by threads and processes, without secrets, damaged, cut or exchanged."""

from __future__ import annotations

import sys
import threading

import pytest
from recording import ask, lines

from crewlite import Agent, BaseLLM, Crew, LLMReply, Task, ToolCall
from crewlite.errors import RecordingDamaged
from crewlite.testing import CrashInjector, RecordedLLM, ScriptedLLM
from tests import children


def test_no_secret_gets_into_the_file(replies, monkeypatch):
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

    reply = ask(RecordedLLM(replies, Keyed()), "Is own-secret-2 yours?")
    text = replies.read_text(encoding="utf-8")
    assert "env-secret-1" not in text
    assert "own-secret-2" not in text
    assert reply.text == "[secret] [secret] Is [secret] yours?"
    assert ask(RecordedLLM(replies), "Is own-secret-2 yours?").text == reply.text


def test_secrets_of_the_run_get_not_into_the_file_either(replies):
    keyed = ScriptedLLM(["unasked"])
    keyed.api_key = "hunter2-hunter2"
    parrot = ScriptedLLM(lambda messages: "It is hunter2-hunter2.")
    one = Task(name="one", description="Say", expected_output="it", agent=Agent(role="A", goal="b", llm=keyed))
    agent = Agent(role="B", goal="b", llm=RecordedLLM(replies, parrot))
    Crew(tasks=[one, Task(name="two", description="Say", expected_output="it", agent=agent)]).kickoff()
    assert "hunter2" not in replies.read_text(encoding="utf-8")


def test_threads_that_record_into_one_file_tear_no_line(replies):
    def record(name):
        llm = RecordedLLM(replies, ScriptedLLM(lambda messages: messages[-1]["content"] * 50))
        for n in range(10):
            ask(llm, f"{name} {n} ")

    threads = [threading.Thread(target=record, args=(f"thread {n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({line["text"] for line in lines(replies)}) == len(lines(replies)) == 60
    assert ask(RecordedLLM(replies), "thread 5 9 ").text == "thread 5 9 " * 50


def test_processes_that_record_into_one_file_tear_no_line(replies):
    code = """
import asyncio, sys
from crewlite.testing import RecordedLLM, ScriptedLLM
llm = RecordedLLM(sys.argv[1], ScriptedLLM(lambda messages: messages[-1]["content"] * 50))
for n in range(15):
    asyncio.run(llm.acall([{"role": "user", "content": f"{sys.argv[2]} {n} "}]))
"""
    started = [children.Child([sys.executable, "-c", code, str(replies), f"process {n}"]) for n in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert len({line["text"] for line in lines(replies)}) == len(lines(replies)) == 45


def test_what_another_recorded_meanwhile_is_replayed(replies):
    llm = RecordedLLM(replies, ScriptedLLM(["Here."]))
    assert ask(llm, "Where?").text == "Here."
    ask(RecordedLLM(replies, ScriptedLLM(["Now."])))
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
def test_a_damaged_line_is_named(replies, damage):
    llm = RecordedLLM(replies, ScriptedLLM(["one", "two"]))
    ask(llm), ask(llm)
    first, second = replies.read_bytes().splitlines()
    replies.write_bytes(b"\n".join([first, damage.encode(errors="surrogatepass"), second, b""]))
    with pytest.raises(RecordingDamaged, match="crew.jsonl, line 2 holds no recorded reply") as damaged:
        ask(RecordedLLM(replies))
    assert damaged.value.where == f"{replies}, line 2"
    with pytest.raises(RecordingDamaged):
        ask(RecordedLLM(replies, ScriptedLLM(["three"])), "Where?")
    assert replies.read_bytes().count(b"\n") == 3


def test_what_a_killed_process_left_of_a_line_is_written_over(replies):
    ask(RecordedLLM(replies, ScriptedLLM(["one"])))
    whole = replies.read_bytes()
    replies.write_bytes(whole + whole[:40])
    assert ask(RecordedLLM(replies)).text == "one"
    ask(RecordedLLM(replies, ScriptedLLM(["Here."])), "Where?")
    assert [line["text"] for line in lines(replies)] == ["one", "Here."]


def test_a_last_line_without_an_end_is_a_line(replies):
    ask(RecordedLLM(replies, ScriptedLLM(["one"])))
    replies.write_bytes(replies.read_bytes().rstrip(b"\n"))
    assert ask(RecordedLLM(replies)).text == "one"
    ask(RecordedLLM(replies, ScriptedLLM(["Here."])), "Where?")
    assert [line["text"] for line in lines(replies)] == ["one", "Here."]


def test_a_file_that_was_exchanged_is_read_anew(replies):
    ask(RecordedLLM(replies, ScriptedLLM(["old"])))
    llm = RecordedLLM(replies, ScriptedLLM(["Here."]))
    assert ask(llm).text == "old"
    replies.unlink()
    ask(RecordedLLM(replies, ScriptedLLM(["new"])), "Who?")
    assert ask(llm, "Who?").text == "new"
    assert ask(llm, "Where?").text == "Here."
    assert [line["text"] for line in lines(replies)] == ["new", "Here."]


def test_a_reply_is_on_disk_before_it_is_given(replies):
    with CrashInjector() as disk:
        ask(RecordedLLM(replies, ScriptedLLM(["one"])))
    assert [operation.verb for operation in disk.log] == ["mkdir", "fsync_dir", "write", "fsync", "fsync_dir"]
    with CrashInjector(at=1, error=OSError(28, "No space left on device")), pytest.raises(OSError, match="No space"):
        ask(RecordedLLM(replies, ScriptedLLM(["two"])), "Where?")
    assert len(lines(replies)) == 1
