"""An agent alone, and its loop of thinking and tools."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

import pytest
from pydantic import BaseModel

from crewlite import (
    Agent,
    BaseLLM,
    BaseTool,
    CheckpointConfig,
    History,
    LLMReply,
    ToolCall,
    event_bus,
    idempotency_key,
    tool,
)
from crewlite.errors import (
    ConfigError,
    InputsChanged,
    LLMEmptyReply,
    LLMUnavailable,
    MaxIterations,
    OutputInvalid,
    ScriptExhausted,
    TimeBudgetExceeded,
)
from crewlite.events import BaseEvent
from crewlite.testing import ScriptedLLM


@tool
def shout(text: str, times: int = 1) -> str:
    """Shout a text.

    Args:
        text: What to shout.
        times: How often.
    """
    return " ".join([text.upper()] * times)


def agent(*replies, **fields):
    return Agent(role="Worker", goal="work", backstory="works", llm=ScriptedLLM(list(replies)), **fields)


def heard_types():
    heard = []
    event_bus.on(BaseEvent, lambda source, event: heard.append(event))
    return heard


def test_a_lone_agent_answers_a_question_or_a_conversation():
    who = agent("fine", "fine too")
    result = who.kickoff("How are you?")
    assert (str(result), result.agent_role, result.durability) == ("fine", "Worker", "off")
    assert who.llm.calls[0][0]["role"] == "system"
    assert who.llm.calls[0][1] == {"role": "user", "content": "How are you?"}
    who.kickoff([{"role": "user", "content": "And you?"}])
    assert who.llm.calls[1][-1]["content"] == "And you?"


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

    heard = heard_types()
    who = agent(
        ToolCall("shout", {"txt": "hi"}),
        ToolCall("whisper", {}),
        ToolCall("fails", {}),
        "gave up",
        tools=[shout, fails],
    )
    assert who.kickoff("go").raw == "gave up"
    told = [messages[-1]["content"] for messages in who.llm.calls[1:]]
    assert "text: Field required" in told[0] and "It takes: text, times" in told[0]
    assert told[1] == "There is no tool 'whisper'. Tools you can use: fails, shout."
    assert told[2] == "Tool fails failed: OSError: disk on fire"
    types = [event.type for event in heard if event.type.startswith("tool_")]
    assert types == [
        "tool_validate_input_error",
        "tool_selection_error",
        "tool_usage_started",
        "tool_execution_error",
        "tool_usage_error",
    ]


def test_when_all_turns_are_used_up_the_model_is_asked_for_its_final_answer_without_tools():
    offered = []

    def reply(messages, tools):
        offered.append(len(tools))
        return ToolCall("shout", {"text": "x"}) if tools else "enough"

    who = Agent(role="Writer", goal="write", llm=ScriptedLLM(reply), tools=[shout], max_iter=2)
    assert who.kickoff("go").raw == "enough"
    assert offered == [1, 1, 0]
    assert "You cannot call tools any more" in who.llm.calls[-1][-1]["content"]


def test_the_final_answer_that_was_asked_for_has_the_shape_or_is_refused():
    class Fact(BaseModel):
        word: str

    who = agent(ToolCall("shout", {"text": "x"}), '{"word": "tide"}', tools=[shout], max_iter=1)
    assert who.kickoff("go", response_format=Fact).pydantic == Fact(word="tide")
    assert '"word"' in who.llm.calls[-1][-1]["content"]
    with pytest.raises(OutputInvalid, match="after 2 tries"):
        agent("no", "no", max_iter=1).kickoff("go", response_format=Fact)


def test_a_response_format_is_a_pydantic_class_or_the_error_says_so():
    class Fact(BaseModel):
        word: str

    for wrong in ({"a": 1}, "Fact", Fact(word="tide"), [Fact], int, dict, list[Fact]):
        who = agent("no")
        with pytest.raises(ConfigError, match="response_format is .*; wanted a pydantic class"):
            who.kickoff("go", response_format=wrong)
        assert who.llm.calls == []


def test_an_endless_tool_loop_stops_as_a_limit_and_not_as_an_answer():
    heard = heard_types()
    who = agent(*[ToolCall("shout", {"text": "x"})] * 5, tools=[shout], max_iter=3)
    with pytest.raises(MaxIterations, match="no final answer in 3 turns"):
        who.kickoff("go")
    assert len(who.llm.calls) == 4
    assert heard[-1].type == "lite_agent_execution_error"


def test_a_new_attempt_begins_where_the_old_failed_on_finished_children():
    who = agent(*[ToolCall("shout", {"text": "x"})] * 3, "answer", tools=[shout], max_iter=2, checkpoint=True)
    from crewlite import Crew, Task

    crew = Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=who)], checkpoint=True)
    with pytest.raises(MaxIterations):
        crew.kickoff(run_id="r")
    heard = heard_types()
    assert crew.kickoff(run_id="r").raw == "answer"
    assert "task:t!2/llm#1" in [event.address for event in heard]
    attempts = History().run("r").attempts
    assert [(a.address, a.number, a.error_type, a.final) for a in attempts] == [
        ("task:t", 1, "MaxIterations", True),
        ("", 1, "MaxIterations", True),
    ]


def test_structured_answers_are_checked_and_mended_or_refused():
    class Fact(BaseModel):
        word: str
        count: int

    who = agent("not json", '```json\n{"word": "tide", "count": 2}\n```')
    result = who.kickoff("go", response_format=Fact)
    assert result.pydantic == Fact(word="tide", count=2)
    assert "does not have the shape" in who.llm.calls[1][-1]["content"]
    with pytest.raises(OutputInvalid, match="after 3 tries"):
        agent("no", "no", "no").kickoff("go", response_format=Fact)


def test_blocking_and_async_models_of_ones_own_need_nothing_else():
    class Blocking(BaseLLM):
        model = "blocking"

        def call(self, messages, tools=None):
            return f"{len(tools)} tools, {messages[-1]['content']}"

    class Waiting(BaseLLM):
        async def acall(self, messages, **context):
            await asyncio.sleep(0)
            return LLMReply(text=f"for {context['agent']}")

    heard = heard_types()
    assert Agent(role="W", goal="g", llm=Blocking(), tools=[shout]).kickoff("hi").raw == "1 tools, hi"
    assert Agent(role="W", goal="g", llm=Waiting()).kickoff("hi").raw == "for W"
    assert [event.type for event in heard].count("llm_call_completed") == 2
    with pytest.raises(ConfigError, match="has no method that answers"):

        class Mute(BaseLLM):
            pass

    with pytest.raises(
        ConfigError, match="Pieces.acall is a generator; wanted code that returns the reply: take on_chunk"
    ):

        class Pieces(BaseLLM):
            async def acall(self, messages):
                yield "a"


def test_models_that_may_answer_later_are_asked_again_and_others_are_not():
    who = agent(LLMUnavailable("429", retry_after=0), LLMUnavailable("503", retry_after=0), "at last")
    assert who.kickoff("go").raw == "at last"
    who = agent("", "not empty")
    assert who.kickoff("go").raw == "not empty"
    with pytest.raises(LLMEmptyReply):
        agent(" ", "").kickoff("go")
    who = agent(PermissionError("401"), "never")
    with pytest.raises(PermissionError):
        who.kickoff("go")
    assert len(who.llm.calls) == 1
    with pytest.raises(ScriptExhausted, match="0 replies"):
        agent().kickoff("go")


def test_attempts_are_recorded_and_a_restart_does_not_refill_the_budget(tmp_path):
    failures = [LLMUnavailable("503", retry_after=0)] * 4
    who = agent(*failures, "late", checkpoint=True)
    with pytest.raises(LLMUnavailable):
        who.kickoff("go", run_id="r")
    assert len(who.llm.calls) == 4
    run = History().run("r")
    assert [(a.address, a.number, a.final) for a in run.attempts] == [
        ("llm#1", 1, False),
        ("llm#1", 2, False),
        ("llm#1", 3, False),
        ("llm#1", 4, True),
        ("", 1, True),
    ]
    assert run.status == "failed"
    assert who.kickoff(run_id="r").raw == "late"
    assert History().run("r").status == "finished"


def test_a_task_returns_within_its_limit_whether_its_code_waits_or_blocks():
    released = threading.Event()

    class Hanging(BaseLLM):
        def call(self, messages):
            assert released.wait(60), "the task waited for what is over its limit"
            return "late"

    class Stubborn(BaseLLM):
        async def acall(self, messages):
            while not released.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.05)
            return "late"

    for llm in (Hanging(), Stubborn()):
        with pytest.raises(TimeBudgetExceeded, match=r"its max_execution_time is 0\.2"):
            Agent(role="W", goal="g", llm=llm, max_execution_time=0.2).kickoff("go")
    released.set()


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


def test_a_lone_agents_run_is_recorded_and_resumed(on_disk):
    class Stop(Exception):
        pass

    who = agent(ToolCall("shout", {"text": "a"}), Stop(), "answer", tools=[shout], checkpoint=on_disk(on_events=True))
    with pytest.raises(Stop):
        who.kickoff("go", run_id="r")
    with pytest.raises(InputsChanged):
        who.kickoff("something else", run_id="r")
    assert who.kickoff(run_id="r").raw == "answer"
    assert who.kickoff("go", run_id="r").raw == "answer"
    assert len(who.llm.calls) == 3
    places = History(on_disk().location).run("r").checkpoints()
    assert [place.trigger for place in places] == ["lite_agent_execution_completed"]
    with pytest.raises(ConfigError, match="asked nothing"):
        who.kickoff()


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
    class Stop(Exception):
        pass

    said = []

    @tool(result_as_answer=True)
    def conclude(word: str) -> str:
        """Conclude."""
        said.append(word)
        return f"{word}!"

    who = agent(ToolCall("conclude", {"wrd": "x"}), Stop(), ToolCall("conclude", {"word": "so"}), tools=[conclude])
    who = who.model_copy(update={"checkpoint": config()})
    with pytest.raises(Stop):
        who.kickoff("go", run_id="r")
    assert who.kickoff(run_id="r").raw == "so!"
    assert who.kickoff(run_id="r").raw == "so!"
    assert (said, len(who.llm.calls)) == (["so"], 3)


def test_a_config_for_a_crew_warns_on_a_lone_agent(caplog, tmp_path):
    setting = CheckpointConfig(location=tmp_path / "s", on_events=["task_completed"])
    agent("x", checkpoint=setting).kickoff("go")
    assert "task_completed is never emitted" in caplog.text
    caplog.clear()
    agent("x", checkpoint=CheckpointConfig(location=tmp_path / "s", on_events=[])).kickoff("go")
    assert not caplog.text


def test_a_new_run_without_a_question_is_refused_before_anything_is_recorded():
    agent = Agent(role="W", goal="w", llm=ScriptedLLM([]), checkpoint=True)
    with pytest.raises(ConfigError, match="was asked nothing"):
        agent.kickoff(run_id="unknown")
    assert not list(Path(".checkpoints").glob("journal/*/*.jsonl"))


def test_a_lone_agent_that_gave_up_begins_its_conversation_anew(config):
    class Sum(BaseModel):
        total: int

    def agent(*replies):
        return Agent(role="Clerk", goal="add", llm=ScriptedLLM(list(replies)), max_iter=4, checkpoint=config())

    with pytest.raises(OutputInvalid):
        agent("three", "3", "III").kickoff("Add 1 and 2", response_format=Sum, run_id="one")
    second = agent('{"total": 3}')
    assert second.kickoff("Add 1 and 2", response_format=Sum, run_id="one").pydantic == Sum(total=3)
    assert len(second.llm.calls) == 1
    assert [message["role"] for message in second.llm.calls[0]] == ["system", "user"]


def test_a_lone_agent_is_told_the_shape_its_answer_must_have():
    class Sum(BaseModel):
        total: int

    llm = ScriptedLLM(['{"total": 3}'])
    Agent(role="Clerk", goal="add", llm=llm).kickoff("Add 1 and 2", response_format=Sum)
    assert "fits this JSON schema" in llm.calls[0][0]["content"]
    assert '"total"' in llm.calls[0][0]["content"]


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], r"messages is \[\]; wanted a text, or a list of"),
        (7, "messages is 7; wanted a text"),
        (["hello"], "wanted a text, or a list of"),
        ([{"role": "user"}], "wanted a text, or a list of"),
        ([{"role": "human", "content": "x"}], r"messages\[0\]: the role is 'human'; write 'user'"),
        ([{"role": "usr", "content": "x"}], r"the role is 'usr'; did you mean 'user'"),
        (
            [{"role": "user", "content": "x"}, {"role": "user", "content": 7}],
            r"messages\[1\]: the content is 7; wanted",
        ),
        ([{"role": "user", "content": None}], "the content is None; wanted a text"),
        ([{"role": "user", "content": []}], "the content is an empty list"),
        ([{"role": "user", "content": ["x"]}], "a part of the content is 'x'; wanted"),
        ([{"role": "user", "content": [{"type": "text"}]}], "wanted its text"),
    ],
)
def test_messages_that_no_model_takes_are_told_before_anything_is_paid(messages, problem):
    agent = Agent(role="A", goal="g", llm=ScriptedLLM([]))
    with pytest.raises(ConfigError, match=problem):
        agent.kickoff(messages)


def test_a_message_with_calls_needs_no_content():
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asked = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "seen"},
    ]
    llm = ScriptedLLM(["done"])
    assert Agent(role="A", goal="g", llm=llm).kickoff(asked).raw == "done"
    assert llm.calls[0][2] == {**asked[1], "content": None}


def test_a_result_says_what_a_fork_of_it_has_paid_itself(memory):
    agent = Agent(role="A", goal="g", llm=ScriptedLLM(["one", "two"]), checkpoint=memory())
    first = agent.kickoff("1?", run_id="r")
    assert first.own_usage == first.token_usage
    forked = agent.fork(memory(restore_from="r")).kickoff("2?")
    assert forked.token_usage.requests == 2
    assert forked.own_usage.requests == 1
