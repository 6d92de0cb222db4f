"""The scripted model answers outside a run as any other does."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import weakref

import pytest

from crewlite import Agent, BaseLLM, Crew, LLMReply, Task, Usage, tool
from crewlite.encoding import codec
from crewlite.errors import ConfigError, OnLoopThread, ScriptExhausted
from crewlite.recovery import CircuitBreaker, FailurePolicy
from crewlite.testing import RecordedLLM, ScriptedLLM, ToolCall


def test_a_scripted_model_can_be_called_in_blocking_code():
    llm = ScriptedLLM(["one", ToolCall("look", {"at": 1})])
    assert llm.call("Say it.").text == "one"
    assert llm.calls == [[{"role": "user", "content": "Say it."}]]
    assert llm.call([{"role": "user", "content": "Look."}]).tool_calls[0].name == "look"
    with pytest.raises(ScriptExhausted):
        llm.call("More?")


@pytest.mark.parametrize("replies", ["one", 1])
def test_replies_that_are_no_list_are_refused(replies):
    with pytest.raises(ConfigError, match=f"ScriptedLLM was given {replies!r} as replies; wanted a list of replies"):
        ScriptedLLM(replies)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda llm: pickle.loads(pickle.dumps(llm))])
def test_a_copy_goes_on_with_the_next_line_whatever_the_original_is_asked(copied):
    llm = ScriptedLLM(["one", "two", "three"])
    llm.call("First?")
    other = copied(llm)
    assert [other.call("Copy?"), llm.call("Second?"), llm.call("Third?")] == ["two", "two", "three"]
    assert other.call("Copy?") == "three"
    assert [call[0]["content"] for call in other.calls] == ["First?", "Copy?", "Copy?"]
    assert len(llm.calls) == 3


def test_a_crew_is_copied_with_its_models_and_their_guards(tmp_path):
    recorded = RecordedLLM(tmp_path / "replies.jsonl", ScriptedLLM(["High water."] * 2))
    recorded.failure_policy = FailurePolicy(guards=[CircuitBreaker()])
    task = Task(description="d", expected_output="e", agent=Agent(role="R", goal="g", llm=recorded))
    crew = copy.deepcopy(Crew(tasks=[task]))
    assert crew.kickoff().raw == Crew(tasks=[task]).kickoff().raw == "High water."


def test_what_a_call_returns_is_the_text_and_has_the_rest():
    reply = LLMReply(text='{"a": 1}', usage=Usage(prompt_tokens=3, requests=1), tool_calls=(ToolCall("look"),))
    said = ScriptedLLM([reply]).call("Say it.")
    assert json.loads(said) == {"a": 1}
    assert (f"{said}", said.usage.prompt_tokens, said.tool_calls[0].name) == ('{"a": 1}', 3, "look")
    assert said.strip() == said.text
    with pytest.raises(AttributeError, match="nothing"):
        _ = said.nothing
    for plain in (copy.deepcopy(said), pickle.loads(pickle.dumps(said)), codec.decode(codec.encode(said))):
        assert (type(plain), plain) == (str, '{"a": 1}')


def test_a_model_that_asks_another_hands_on_the_whole_reply():
    class Around(BaseLLM):
        def __init__(self, inner):
            super().__init__("around")
            self.inner = inner

        def call(self, messages, tools=None):
            return self.inner.call(messages, tools=tools)

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    inner = ScriptedLLM([LLMReply(tool_calls=(ToolCall("look"),), usage=Usage(requests=1, prompt_tokens=5)), "done"])
    result = Agent(role="Clerk", goal="answer", llm=Around(inner), tools=[look]).kickoff("Look.")
    assert result.raw == "done"
    assert result.token_usage.prompt_tokens >= 5


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


@pytest.mark.parametrize("script", [lambda messages, a: "x", lambda: "x", lambda messages, *, role: "x", dict])
def test_a_function_that_cannot_be_called_is_refused_at_once(script):
    with pytest.raises(ConfigError, match="a function that it cannot call: .* of the messages, .* names: agent, "):
        ScriptedLLM(script)


def test_a_call_that_calls_the_one_it_overrides_is_told_so():
    class Round(BaseLLM):
        def call(self, messages, **context):
            return super().call(messages, **context)

    with pytest.raises(ConfigError, match="BaseLLM cannot answer: return the reply instead"):
        Round().call("hello")


@pytest.mark.parametrize(("content", "words"), [("two words", 2), ([{"type": "text", "text": "two words"}], 2), (7, 1)])
def test_the_words_of_any_content_are_counted(content, words):
    reply = ScriptedLLM(["fine"]).call([{"role": "user", "content": content}])
    assert reply.usage.prompt_tokens == words


def test_scripts_are_not_kept_however_many_there_were():
    def told():
        def script(messages):
            return "yes"

        ScriptedLLM(script).call("Say it.")
        return weakref.ref(script)

    first, *_ = [told() for _ in range(1100)]
    gc.collect()
    assert first() is None
