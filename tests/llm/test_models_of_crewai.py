"""Models that were written for CrewAI: classes that override `call`, and speak OpenAI's form of tool calls."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from server import COUNTED, chat, piece, reply, stream

from crewlite import LLM, Agent, BaseLLM, Flow, start, tool
from crewlite.errors import MissingKey, UnknownProvider
from crewlite.events import LLMStreamChunkEvent
from crewlite.testing import EventRecorder

ANSWER = "11:40"


@tool
def high_water(port: str) -> str:
    """Say when high water is."""
    return ANSWER


def pilot(llm, **more):
    return Agent(role="Pilot", goal="answer", llm=llm, **more)


class Counted(LLM):
    """As wrappers in CrewAI's programs are: the signature of CrewAI, all handed on by position."""

    calls = 0

    def call(self, messages, tools=None, callbacks=None, available_functions=None, from_task=None, from_agent=None):
        self.calls += 1
        return super().call(messages, tools, callbacks, available_functions, from_task, from_agent)


class Passed(LLM):
    calls = 0

    def call(self, messages, *args, **kwargs):
        self.calls += 1
        return super().call(messages, *args, **kwargs)


class Mixin:
    def call(self, messages, *args, **kwargs):
        self.calls += 1
        return super().call(messages, *args, **kwargs)


class Mixed(Mixin, LLM):
    calls = 0


class Strict(BaseLLM):
    """A model with CrewAI's signature, which takes nothing else."""

    def call(self, messages, tools=None, callbacks=None, available_functions=None, from_task=None, from_agent=None):
        return f"strict {messages[-1]['content'].splitlines()[0]}"


class Logged(Mixin, Strict):
    calls = 0


class Stub(LLM):
    """A model for tests of programs, which is never asked: early releases of CrewAI took no other class."""

    def call(self, messages, tools=None, callbacks=None, available_functions=None):
        return "stub"


@pytest.mark.parametrize("name", ["stub/stub", "stub", "gpt-4o-mini"])
def test_a_model_that_answers_by_its_own_call_needs_neither_provider_nor_key(monkeypatch, name):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert pilot(Stub(model=name)).kickoff("When?").raw == "stub"
    assert pilot(Stub(model=name), tools=[high_water]).kickoff("When?").raw == "stub"
    handed_on = type("HandedOn", (Passed,), {})(model=name)
    with pytest.raises(MissingKey if name == "gpt-4o-mini" else UnknownProvider):
        pilot(handed_on).kickoff("When?")


def test_what_a_method_hands_on_is_what_the_method_behind_it_takes(serve):
    llm = Logged()
    assert pilot(llm).kickoff("When?").raw.startswith("strict")

    class Asking(Flow):
        @start()
        def begin(self):
            return str(llm.call("Now?"))

    assert Asking(checkpoint=True).kickoff(run_id="r") == "strict Now?"
    assert llm.calls == 2


class Asynchronous(LLM):
    awaited = 0

    async def acall(self, messages, **context):
        self.awaited += 1
        return await super().acall(messages, **context)


class Both(Asynchronous, Counted):
    pass


class Below(Counted, Asynchronous):
    pass


@pytest.mark.parametrize("cls", [Counted, Passed, Mixed, Below])
def test_a_run_passes_by_the_call_that_a_subclass_of_llm_overrides(serve, cls):
    llm = cls("openai/foo", base_url=serve(reply(chat("One")), reply(chat("Two")), reply(chat("Three"))).base_url)
    assert pilot(llm).kickoff("When?").raw == "One"
    assert (llm.calls, llm.call("When?"), llm.calls) == (1, "Two", 2)
    assert asyncio.run(pilot(llm).akickoff("When?")).raw == "Three"
    assert llm.calls == 3
    if cls is Below:
        assert llm.awaited == 3


def test_each_class_that_overrides_one_of_the_two_methods_is_passed_once(serve):
    llm = Both("openai/foo", base_url=serve(reply(chat("One"))).base_url)
    assert pilot(llm).kickoff("When?").raw == "One"
    assert (llm.calls, llm.awaited) == (1, 1)


@pytest.mark.parametrize("cls", [Counted, Passed, Mixed, Both, Below])
def test_a_method_of_a_flow_that_calls_the_model_passes_once_and_a_resume_does_not_pay_again(serve, cls):
    server = serve(reply(chat("One")))
    llm, fails = cls("openai/foo", base_url=server.base_url), [True]

    class Asking(Flow):
        @start()
        def begin(self):
            said = llm.call("When?")
            if fails.pop():
                raise ValueError("after the answer")
            return said

    with pytest.raises(ValueError, match="after the answer"):
        Asking(checkpoint=True).kickoff(run_id="r")
    assert llm.calls == 1
    fails.append(False)
    assert Asking(checkpoint=True).kickoff(run_id="r") == "One"
    assert (llm.calls, len(server.requests)) == (1, 1)


def test_a_call_that_asks_nothing_answers_itself(serve):
    class Fixed(LLM):
        def call(self, messages, *args, **kwargs):
            return "as ever"

    server = serve()
    assert pilot(Fixed("openai/foo", base_url=server.base_url)).kickoff("When?").raw == "as ever"
    assert not server.requests


def test_an_overridden_call_hands_on_the_pieces_of_a_stream(serve):
    pieces = [piece("High "), piece("water"), piece(finish="stop"), COUNTED]
    llm = Passed("openai/foo", base_url=serve(stream(*pieces)).base_url, stream=True)
    with EventRecorder() as events:
        assert pilot(llm).kickoff("When?").raw == "High water"
    assert [event.chunk for event in events.of(LLMStreamChunkEvent)] == ["High ", "water"]


def test_a_key_that_is_set_later_is_used(serve):
    server = serve(reply(chat("One")))
    llm = LLM("openai/foo", base_url=server.base_url)
    llm.api_key = " k-later "
    assert pilot(llm).kickoff("When?").raw == "One"
    assert server.requests[0].headers["authorization"] == "Bearer k-later"


class Own(BaseLLM):
    """As in CrewAI's guide to models of one's own."""

    def __init__(self, answer):
        super().__init__(model="own")
        self.answer, self.heard = answer, []

    def call(self, messages, tools=None, callbacks=None, available_functions=None, from_task=None, from_agent=None):
        self.heard.append(messages)
        return f"At {messages[-1]['content']}" if messages[-1]["role"] == "tool" else self.answer


CALLS = [
    [{"id": "c1", "type": "function", "function": {"name": "high_water", "arguments": '{"port": "Brest"}'}}],
    [{"function": {"name": "high_water", "arguments": {"port": "Brest"}}}],
    [SimpleNamespace(id="c1", function=SimpleNamespace(name="high_water", arguments='{"port": "Brest"}'))],
]


@pytest.mark.parametrize("calls", CALLS)
def test_tool_calls_may_have_the_form_of_openai_and_come_back_in_it(calls):
    llm = Own(calls)
    assert pilot(llm, tools=[high_water]).kickoff("When?").raw == f"At {ANSWER}"
    (call,) = llm.heard[-1][-2]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"port": "Brest"}
    assert call["id"] == llm.heard[-1][-1]["tool_call_id"]


@pytest.mark.parametrize(
    "wrong", [[{}], [{"function": {}}], [{"function": {"name": "x", "arguments": 3}}], [None], [7]]
)
def test_a_list_of_anything_else_is_no_reply(wrong):
    with pytest.raises(Exception, match="own returned a list; wanted text, a ToolCall"):
        pilot(Own(wrong), tools=[high_water]).kickoff("When?")


def test_a_model_without_function_calling_is_told_of_tools_in_writing():
    class Writing(Own):
        def supports_function_calling(self):
            return False

        def call(self, messages, tools=None, callbacks=None, available_functions=None):
            assert not tools
            super().call(messages)
            return f"Final Answer: At {ANSWER}" if len(self.heard) > 1 else self.answer

    llm = Writing('Thought: look\nAction: high_water\nAction Input: {"port": "Brest"}')
    assert pilot(llm, tools=[high_water]).kickoff("When?").raw == f"At {ANSWER}"
    assert ANSWER in llm.heard[1][-1]["content"]
