"""The tools of an agent: how it is offered them and calls them, what it is told of them, and which it cannot have."""

from __future__ import annotations

import asyncio

import pytest

from crewlite import Agent, BaseTool, Crew, Task, ToolCall, idempotency_key, tool
from crewlite.errors import ConfigError
from crewlite.events import LLMCallCompletedEvent, ToolUsageFinishedEvent
from crewlite.testing import EventRecorder, ScriptedLLM
from tests.agent.alone import agent, shout
from tests.parts import Stop


def test_it_calls_tools_until_it_has_its_answer():
    who = agent(ToolCall("shout", {"text": "hi", "times": 2}), "they shouted", tools=[shout])
    assert who.kickoff("Shout").raw == "they shouted"
    assistant, result = who.llm.calls[1][-2:]
    assert assistant["tool_calls"][0]["function"] == {"name": "shout", "arguments": {"text": "hi", "times": 2}}
    assert result == {"role": "tool", "tool_call_id": "call_1", "name": "shout", "content": "HI HI"}


def test_several_calls_in_one_reply_run_side_by_side_and_keep_their_order():
    running = []

    @tool
    async def wait(name: str) -> str:
        """Wait."""
        running.append(name)
        while len(running) < 3:
            await asyncio.sleep(0)
        return name

    who = agent([ToolCall("wait", {"name": n}) for n in "abc"], "done", tools=[wait])
    who.kickoff("go")
    assert [message["content"] for message in who.llm.calls[1][-3:]] == ["a", "b", "c"]


def test_wrong_arguments_unknown_tools_and_raising_tools_are_told_to_the_model():
    @tool
    def fails() -> str:
        """Fail."""
        raise OSError("disk on fire")

    calls = [ToolCall("shout", {"txt": "hi"}), ToolCall("whisper", {}), ToolCall("fails", {})]
    who = agent(*calls, "gave up", tools=[shout, fails])
    with EventRecorder() as events:
        assert who.kickoff("go").raw == "gave up"
    told = [messages[-1]["content"] for messages in who.llm.calls[1:]]
    assert "text: Field required" in told[0] and "It takes: text, times" in told[0]
    assert told[1] == "There is no tool 'whisper'. Tools you can use: fails, shout."
    assert told[2] == "Tool fails failed: OSError: disk on fire"
    assert [kind for kind in events.types if kind.startswith("tool_")] == [
        "tool_validate_input_error",
        "tool_selection_error",
        "tool_usage_started",
        "tool_execution_error",
        "tool_usage_error",
    ]


def test_a_tool_that_takes_too_long_is_an_error_the_model_hears_of():
    @tool(timeout=0.05)
    async def sleep() -> str:
        """Sleep."""
        await asyncio.sleep(5)
        return "late"

    who = agent(ToolCall("sleep"), "went on", tools=[sleep])
    assert who.kickoff("go").raw == "went on"
    assert "did not end within 0.05 s" in who.llm.calls[1][-1]["content"]


def test_a_tool_that_exits_ends_its_call_and_not_everybodys_loop():
    @tool
    def leave() -> str:
        """Leave."""
        raise SystemExit(3)

    who = agent(ToolCall("leave"), "still here", tools=[leave])
    assert who.kickoff("go").raw == "still here"
    assert "SystemExit" in who.llm.calls[1][-1]["content"]


def test_the_idempotency_key_is_the_calls_own_and_the_same_on_every_try():
    keys = []

    class Pay(BaseTool):
        name: str = "pay"
        description: str = "Pay."

        async def _arun(self, amount: int) -> str:
            keys.append(idempotency_key())
            return "paid"

    who = agent([ToolCall("pay", {"amount": 1}), ToolCall("pay", {"amount": 1})], "done", tools=[Pay()])
    who.kickoff("go")
    assert len(set(keys)) == 2
    assert all(len(key) == 32 for key in keys)
    assert idempotency_key() == ""


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="the tool shout is listed twice.*remove one"):
        agent(tools=[shout, shout])

    @tool("shout")
    def other(text: str) -> str:
        """Say it louder."""
        return text

    with pytest.raises(ConfigError, match="two tools are named shout.*rename one"):
        agent(tools=[shout, other])


class Shelf(BaseTool):
    name: str = "look up"
    description: str = "Look something up."
    shelf: str

    def _run(self, word: str) -> str:
        return f"{word} on {self.shelf}"


def test_instances_of_one_tool_class_are_numbered():
    maps, logs, charts = Shelf(shelf="maps"), Shelf(shelf="logs"), Shelf(shelf="charts", name="look_up_2")
    calls = [ToolCall(name, {"word": "tide"}) for name in ("look_up", "look_up_3", "look_up_2")]
    who = agent(calls, "done", tools=[maps, logs, charts])
    assert [tool.name for tool in who.tools] == ["look up", "look up_3", "look_up_2"]
    assert logs.name == "look up", "its own name is kept, for another agent"
    who.kickoff("go")
    told = [message["content"] for message in who.llm.calls[1] if message["role"] == "tool"]
    assert [word for text in told for word in ("maps", "logs", "charts") if word in text] == ["maps", "logs", "charts"]
    assert agent(tools=who.tools).tools == who.tools
    for tools, name in (([maps, logs, logs], "look up"), ([maps, maps], "look up")):
        with pytest.raises(ConfigError, match=f"the tool {name} is listed twice.*remove one"):
            agent(tools=tools)


def test_plain_functions_become_tools():
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    who = agent(ToolCall("add", {"a": 1, "b": 2}), "3", tools=[add])
    who.kickoff("go")
    assert who.llm.calls[1][-1]["content"] == "3"


def test_a_tool_may_answer_for_a_lone_agent_also_after_a_stop(config):
    said = []

    @tool(result_as_answer=True)
    def conclude(word: str) -> str:
        """Conclude."""
        said.append(word)
        return f"{word}!"

    calls = [ToolCall("conclude", {"wrd": "x"}), Stop(), ToolCall("conclude", {"word": "so"})]
    who = agent(*calls, tools=[conclude], checkpoint=config())
    with pytest.raises(Stop):
        who.kickoff("go", run_id="r")
    assert who.kickoff(run_id="r").raw == "so!"
    assert who.kickoff(run_id="r").raw == "so!"
    assert (said, len(who.llm.calls)) == (["so"], 3)


def test_a_name_that_services_refuse_is_offered_under_a_safe_one_and_found_under_both():
    calls = []

    @tool("Search the web", max_usage_count=2)
    def search(query: str) -> str:
        """Search."""
        calls.append(query)
        return f"found {query}"

    offered = []

    def reply(messages, tools):
        offered.append([item["function"]["name"] for item in tools])
        turns = [("Search_the_web", "a"), ("Search the web", "b"), ("Search_the_web", "c")]
        done = sum(message["role"] == "tool" for message in messages)
        return ToolCall(turns[done][0], {"query": turns[done][1]}) if done < 3 else "done"

    with EventRecorder() as events:
        Agent(role="W", goal="g", llm=ScriptedLLM(reply), tools=[search]).kickoff("go")
    assert set(map(tuple, offered)) == {("Search_the_web",)}
    assert calls == ["a", "b"]
    assert {event.tool_name for event in events.of(ToolUsageFinishedEvent)} == {"Search the web"}
    assert len(events.of(LLMCallCompletedEvent)) == 4


def test_a_tool_of_the_task_takes_the_place_of_one_of_the_agent():
    @tool("shout")
    def whisper(text: str) -> str:
        """Whisper."""
        return text.lower()

    offered = []

    def reply(messages, tools):
        offered.extend(item["function"]["description"] for item in tools)
        return "done" if messages[-1]["role"] == "tool" else ToolCall("shout", {"text": "Hi"})

    who = Agent(role="W", goal="g", llm=ScriptedLLM(reply), tools=[shout])
    Crew(tasks=[Task(description="d", expected_output="x", agent=who, tools=[whisper])]).kickoff()
    assert offered == ["Whisper.", "Whisper."]
    assert who.llm.calls[-1][-1]["content"] == "hi"
