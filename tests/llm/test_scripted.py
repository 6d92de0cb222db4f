"""The scripted model answers outside a run as any other does."""

from __future__ import annotations

import pytest

from crewlite import BaseLLM
from crewlite.errors import ConfigError, OnLoopThread, ScriptExhausted
from crewlite.testing import RecordedLLM, ScriptedLLM, ToolCall


def test_a_scripted_model_can_be_called_in_blocking_code():
    llm = ScriptedLLM(["one", ToolCall("look", {"at": 1})])
    assert llm.call("Say it.").text == "one"
    assert llm.calls == [[{"role": "user", "content": "Say it."}]]
    assert llm.call([{"role": "user", "content": "Look."}]).tool_calls[0].name == "look"
    with pytest.raises(ScriptExhausted):
        llm.call("More?")


def test_any_model_that_answers_asynchronously_can_be(tmp_path):
    class Echo(BaseLLM):
        async def acall(self, messages):
            return messages[-1]["content"]

    assert Echo().call("hello").text == "hello"
    assert RecordedLLM(tmp_path / "tape.jsonl", Echo()).call("hello").text == "hello"


def test_on_a_loop_it_is_told_to_await():
    class Asking(BaseLLM):
        async def acall(self, messages):
            return ScriptedLLM(["one"]).call("Say it.")

    with pytest.raises(OnLoopThread, match="await acall"):
        Asking().call("hello")


def test_a_call_that_calls_the_one_it_overrides_is_told_so():
    class Round(BaseLLM):
        def call(self, messages, **context):
            return super().call(messages, **context)

    with pytest.raises(ConfigError, match="its own call is to answer"):
        Round().call("hello")
