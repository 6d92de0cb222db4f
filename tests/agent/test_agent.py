"""An agent alone, and its loop of thinking and tools."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

import pytest

from crewlite import Agent, BaseLLM, CheckpointConfig, Crew, History, LLMReply, Task, ToolCall
from crewlite.errors import (
    ConfigError,
    InputsChanged,
    LLMEmptyReply,
    LLMUnavailable,
    MaxIterations,
    ScriptExhausted,
    TimeBudgetExceeded,
)
from crewlite.testing import EventRecorder, ScriptedLLM
from tests.agent.alone import agent, shout
from tests.parts import Stop


def test_a_lone_agent_answers_a_question_or_a_conversation():
    who = agent("fine", "fine too")
    result = who.kickoff("How are you?")
    assert (str(result), result.agent_role, result.durability) == ("fine", "Worker", "off")
    assert who.llm.calls[0][0]["role"] == "system"
    assert who.llm.calls[0][1] == {"role": "user", "content": "How are you?"}
    who.kickoff([{"role": "user", "content": "And you?"}])
    assert who.llm.calls[1][-1]["content"] == "And you?"


def test_when_all_turns_are_used_up_the_model_is_asked_for_its_final_answer_without_tools():
    offered = []

    def reply(messages, tools):
        offered.append(len(tools))
        return ToolCall("shout", {"text": "x"}) if tools else "enough"

    who = Agent(role="Writer", goal="write", llm=ScriptedLLM(reply), tools=[shout], max_iter=2)
    assert who.kickoff("go").raw == "enough"
    assert offered == [1, 1, 0]
    assert "You cannot call tools any more" in who.llm.calls[-1][-1]["content"]


def test_an_endless_tool_loop_stops_as_a_limit_and_not_as_an_answer():
    who = agent(*[ToolCall("shout", {"text": "x"})] * 5, tools=[shout], max_iter=3)
    with EventRecorder() as events, pytest.raises(MaxIterations, match="no final answer in 3 turns"):
        who.kickoff("go")
    assert len(who.llm.calls) == 4
    assert events.types[-1] == "lite_agent_execution_error"


def test_a_new_attempt_begins_where_the_old_failed_on_finished_children():
    who = agent(*[ToolCall("shout", {"text": "x"})] * 3, "answer", tools=[shout], max_iter=2, checkpoint=True)
    crew = Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=who)], checkpoint=True)
    with pytest.raises(MaxIterations):
        crew.kickoff(run_id="r")
    with EventRecorder() as events:
        assert crew.kickoff(run_id="r").raw == "answer"
    assert "task:t!2/llm#1" in [event.address for event in events]
    attempts = History().run("r").attempts
    assert [(a.address, a.number, a.error_type, a.final) for a in attempts] == [
        ("task:t", 1, "MaxIterations", True),
        ("", 1, "MaxIterations", True),
    ]


def test_blocking_and_async_models_of_ones_own_need_nothing_else():
    class Blocking(BaseLLM):
        model = "blocking"

        def call(self, messages, tools=None):
            return f"{len(tools)} tools, {messages[-1]['content']}"

    class Waiting(BaseLLM):
        async def acall(self, messages, **context):
            await asyncio.sleep(0)
            return LLMReply(text=f"for {context['agent']}")

    with EventRecorder() as events:
        assert Agent(role="W", goal="g", llm=Blocking(), tools=[shout]).kickoff("hi").raw == "1 tools, hi"
        assert Agent(role="W", goal="g", llm=Waiting()).kickoff("hi").raw == "for W"
    assert events.types.count("llm_call_completed") == 2
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


def test_a_lone_agents_run_is_recorded_and_resumed(on_disk):
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


def test_a_config_for_a_crew_warns_on_a_lone_agent(caplog, tmp_path):
    setting = CheckpointConfig(location=tmp_path / "s", on_events=["task_completed"])
    agent("x", checkpoint=setting).kickoff("go")
    assert "task_completed is never emitted" in caplog.text
    caplog.clear()
    agent("x", checkpoint=CheckpointConfig(location=tmp_path / "s", on_events=[])).kickoff("go")
    assert not caplog.text


def test_a_new_run_without_a_question_is_refused_before_anything_is_recorded():
    with pytest.raises(ConfigError, match="was asked nothing"):
        agent(checkpoint=True).kickoff(run_id="unknown")
    assert not list(Path(".checkpoints").glob("journal/*/*.jsonl"))


def test_a_result_says_what_a_fork_of_it_has_paid_itself(memory):
    who = agent("one", "two", checkpoint=memory())
    first = who.kickoff("1?", run_id="r")
    assert first.own_usage == first.token_usage
    forked = who.fork(memory(restore_from="r")).kickoff("2?")
    assert forked.token_usage.requests == 2
    assert forked.own_usage.requests == 1
