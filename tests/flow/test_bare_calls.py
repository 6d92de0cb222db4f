"""`llm.ask(...)`: one recorded model call in a flow or step, which no resume makes again."""

import asyncio

import pytest
from pydantic import BaseModel

from crewlite import BaseLLM, CheckpointConfig, History, LLMReply, Usage, event_bus
from crewlite.errors import ConfigError, NonDeterminism, NotCodable, OutputInvalid
from crewlite.events import LLMCallCompletedEvent
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, cut, entries_of


class Port(BaseModel):
    name: str
    depth: int


class Own(BaseLLM):
    """A model of a user's own, which counts its calls."""

    model = "own"

    def __init__(self):
        super().__init__()
        self.said = []

    def call(self, messages):
        self.said.append(messages[-1]["content"])
        text = '{"name": "Brest", "depth": 7}' if messages[0]["role"] == "system" else f"re: {self.said[-1]}"
        return LLMReply(text=text, usage=Usage(prompt_tokens=4, requests=1))


def voyage(llm, setting, *, coroutine):
    @step
    def log(name):
        return llm.ask(f"log {name}")

    @step
    async def alog(name):
        return await llm.ask(f"log {name}")

    @flow(checkpoint=setting)
    def blocking():
        port = llm.ask([{"role": "user", "content": "Which port?"}], response_format=Port)
        return [port.depth, llm.ask(f"weather in {port.name}"), log(port.name)]

    @flow(checkpoint=setting)
    async def awaiting():
        port = await llm.ask([{"role": "user", "content": "Which port?"}], response_format=Port)
        return [port.depth, await llm.ask(f"weather in {port.name}"), await alog(port.name)]

    return awaiting if coroutine else blocking


@pytest.mark.parametrize("coroutine", [False, True])
def test_a_bare_call_is_a_recorded_step_wherever_the_run_is_cut(coroutine):
    setting, heard, llm = CheckpointConfig(location="here", provider=InMemoryProvider()), [], Own()
    event_bus.on(LLMCallCompletedEvent, lambda source, event: heard.append((event.address, event.model)))
    whole = voyage(llm, setting, coroutine=coroutine).kickoff(run_id=RUN)
    assert whole == [7, "re: weather in Brest", "re: log Brest"]
    inner = "step:alog/llm#1" if coroutine else "step:log/llm#1"
    assert heard == [("llm#1", "own"), ("llm#2", "own"), (inner, "own")]
    with History("here", setting.provider) as history:
        run = history.run(RUN)
        assert [one.address for one in run.steps if one.kind == "llm"] == ["llm#1", "llm#2", inner]
        assert (run.usage.prompt_tokens, run.usage.requests) == (12, 3)
        assert run.usage_of("llm#2").requests == run.usage_of(inner.partition("/")[0]).requests == 1
        assert not run.prompt("llm#2").parts and "llm#2" in history.as_html(RUN)
    entries = entries_of(setting)
    for at in range(1, len(entries) + 1):
        again = cut(entries, at)
        with History("cut", again.provider) as history:
            known = sum(one.kind == "llm" and one.status == "finished" for one in history.run(RUN).steps)
        other = Own()
        assert voyage(other, again, coroutine=coroutine).kickoff(run_id=RUN) == whole, f"cut after commit {at}"
        assert other.said == llm.said[known:], f"cut after commit {at}"
        with History("cut", again.provider) as history:
            assert history.run(RUN).usage.requests == 3


def test_an_answer_never_passes_for_the_answer_to_another_question(on_disk):
    llm, words = Own(), ["tides"]

    @flow(checkpoint=on_disk())
    def one():
        said = llm.ask(words[0])
        if len(llm.said) < 2:
            raise RuntimeError("cut")
        return said

    with pytest.raises(RuntimeError):
        one.kickoff(run_id="r")
    words[0] = "winds"
    with pytest.raises(NonDeterminism, match="found .*winds"):
        one.kickoff(run_id="r")
    assert llm.said == ["tides"]


def test_a_reply_that_does_not_fit_is_not_recorded_and_is_asked_for_again(on_disk):
    llm = ScriptedLLM(["no port", '{"name": "Brest", "depth": 7}'])

    @flow(checkpoint=on_disk())
    def one():
        return llm.ask("Which port?", Port).name

    with pytest.raises(OutputInvalid, match="scripted"):
        one.kickoff(run_id="r")
    assert one.kickoff(run_id="r") == one.kickoff(run_id="r") == "Brest"
    assert len(llm.calls) == 2


def test_a_model_is_sent_the_messages_as_they_were_when_it_was_asked(on_disk):
    llm, message = ScriptedLLM(lambda messages: f"re: {messages[-1]['content']}"), {"role": "user", "content": ""}

    @flow(checkpoint=on_disk())
    async def both():
        asked = []
        for text in ("a", "b"):
            message["content"] = text
            asked.append(llm.ask([message]))
        return await asyncio.gather(*asked)

    assert both.kickoff(run_id="r") == ["re: a", "re: b"] == both.kickoff(run_id="r")


@pytest.mark.parametrize("part", [b"bytes", {1: "mixed", "keys": 2}])
def test_messages_may_hold_what_a_record_can_hold(on_disk, part):
    @flow(checkpoint=on_disk())
    def one(part):
        return ScriptedLLM(["fine"]).ask([{"role": "user", "content": [{"type": "data", "data": part}]}])

    assert one.kickoff(part) == "fine"
    with pytest.raises(NotCodable, match=r"messages\[0\].content\[0\].data is an object, which cannot be recorded"):
        flow(lambda: ScriptedLLM([]).ask([{"role": "user", "content": [{"data": object()}]}]), name="live").kickoff()


def test_outside_a_run_it_is_a_plain_call():
    llm = Own()

    async def inside():
        return await llm.ask("b")

    assert [llm.ask("a"), asyncio.run(inside()), llm.ask("c", Port).depth] == ["re: a", "re: b", 7]
    with pytest.raises(ConfigError, match="wanted text, or a list of messages"):
        llm.ask([])
    with pytest.raises(ConfigError, match="wanted a pydantic class"):
        llm.ask("a", response_format={"type": "object"})
