"""An agent whose work fails goes on where it failed; one whose conversation has grown too long goes on with a summary."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from crewlite import Agent, Crew, History, Task, ToolCall, event_bus, tool
from crewlite.errors import ContextOverflow, LLMRejected, OutputInvalid, StepTimeout, TimeBudgetExceeded
from crewlite.events import BaseEvent
from crewlite.testing import ScriptedLLM

CALL = ToolCall("look", {"where": "here"})


def broken():
    return LLMRejected("small", 400, "no")


def too_long():
    return ContextOverflow("small", 400, "too long")


@tool(effect="none")
def look(where: str) -> str:
    """Look."""
    looked.append(where)
    return f"seen {where} " * 40


looked = list[str]()


@pytest.fixture(autouse=True)
def _anew():
    looked.clear()


def pilot(*script, **fields):
    return Agent(role="Pilot", goal="look", llm=ScriptedLLM(script), tools=[look], **fields)


def kicked_off(agent, config, **more):
    task = Task(name="t", description="Look", expected_output="x", agent=agent, **more)
    return Crew(tasks=[task], checkpoint=config).kickoff(run_id="r")


def recorded(config, run_id="r"):
    with History(config.location, config.provider) as history:
        run = history.run(run_id)
        return [step.address for step in run.steps], [(one.address, one.number, one.final) for one in run.attempts]


# max_retry_limit.


def test_a_failed_step_is_made_again_and_nothing_that_is_recorded(on_disk):
    agent = pilot(CALL, broken(), broken(), "done", max_retry_limit=2)
    assert kicked_off(agent, on_disk()).raw == "done"
    assert looked == ["here"]
    steps, attempts = recorded(on_disk())
    assert steps == ["task:t/llm#1", "task:t/tool:look", "task:t/llm#2", "task:t", ""]
    assert [one for one in attempts if one[0] == "task:t"] == [("task:t", 1, False), ("task:t", 2, False)]


def test_the_limit_is_counted_over_resumes_and_then_it_fails(on_disk):
    agent = pilot(CALL, broken(), broken(), broken(), "done", max_retry_limit=1)
    with pytest.raises(LLMRejected):
        kicked_off(agent, on_disk())
    assert len(agent.llm.calls) == 3
    with pytest.raises(LLMRejected):
        kicked_off(pilot(broken(), broken(), max_retry_limit=1), on_disk())
    assert kicked_off(pilot("done", max_retry_limit=1), on_disk()).raw == "done"
    assert looked == ["here"]


def test_what_fails_by_itself_begins_anew(on_disk):
    class Depth(BaseModel):
        metres: int

    agent = pilot("no", "no", "no", '{"metres": 4}', max_retry_limit=1)
    assert kicked_off(agent, on_disk(), output_pydantic=Depth).pydantic == Depth(metres=4)
    with pytest.raises(OutputInvalid):
        pilot("no", "no", "no").kickoff("How deep?", response_format=Depth)
    alone = pilot("no", "no", "no", '{"metres": 4}', max_retry_limit=1)
    assert alone.kickoff("How deep?", response_format=Depth).pydantic == Depth(metres=4)


def test_time_that_has_run_out_is_not_tried_again():
    agent = Agent(
        role="P", goal="g", llm=ScriptedLLM(["late", "late"], delay=5), max_execution_time=0.3, max_retry_limit=3
    )
    with pytest.raises((StepTimeout, TimeBudgetExceeded)):
        agent.kickoff("go")
    assert len(agent.llm.calls) == 1


def test_a_turn_of_a_conversation_goes_on_by_itself(on_disk):
    agent = pilot("one", CALL, broken(), "two", max_retry_limit=1, checkpoint=on_disk())
    agent.kickoff("1?", run_id="r")
    assert agent.kickoff("2?", run_id="r").raw == "two"
    assert looked == ["here"]


# respect_context_window.


def test_what_does_not_fit_is_summarised_once_and_the_work_goes_on(on_disk):
    heard = list[str]()
    event_bus.on(BaseEvent, lambda source, event: heard.append(event.type) if "context" in event.type else None)
    agent = pilot(CALL, CALL, too_long(), "saw here, twice", OSError("cut"), "done")
    with pytest.raises(OSError, match="cut"):
        kicked_off(agent, on_disk())
    assert kicked_off(agent, on_disk()).raw == "done"
    system, asked, summary = agent.llm.calls[-1]
    assert asked["content"].startswith("Look")
    assert "saw here, twice" in summary["content"]
    assert [len(call) for call in agent.llm.calls] == [2, 4, 6, 2, 3, 3]
    transcript = agent.llm.calls[3][1]["content"]
    assert "seen here" in transcript
    assert len(transcript) < len(str(agent.llm.calls[2]))
    assert heard == ["context_window_summarization_started", "context_window_summarization_completed"]
    assert recorded(on_disk())[0] == [
        "task:t/llm#1",
        "task:t/tool:look",
        "task:t/llm#2",
        "task:t/tool:look#2",
        "task:t/llm#3",
        "task:t/summary#1/llm#1",
        "task:t/summary#1",
        "task:t/llm#4",
        "task:t",
        "",
    ]


def test_a_prompt_that_is_too_long_by_itself_is_summarised_too():
    agent = pilot(too_long(), too_long(), "shorter", "done")
    assert agent.kickoff("word " * 1000).raw == "done"
    assert "shorter" in agent.llm.calls[-1][1]["content"]
    assert len(agent.llm.calls[2][1]["content"]) < len(agent.llm.calls[1][1]["content"])


def test_what_cannot_be_summarised_is_an_error_that_can_be_gone_on_from(on_disk):
    heard = list[str]()
    event_bus.on(BaseEvent, lambda source, event: heard.append(event.type) if "context" in event.type else None)
    agent = pilot(*[too_long()] * 5)
    with pytest.raises(ContextOverflow):
        kicked_off(agent, on_disk())
    assert heard == ["context_window_summarization_started", "context_window_summarization_failed"]
    agent = pilot(CALL, too_long(), respect_context_window=False)
    with pytest.raises(ContextOverflow):
        agent.with_(checkpoint=on_disk()).kickoff("Look", run_id="q")
    assert pilot("done", respect_context_window=False, checkpoint=on_disk()).kickoff(run_id="q").raw == "done"
    assert looked == ["here"]


def test_a_summary_that_is_refused_is_asked_for_once_by_each_further_kickoff(on_disk):
    agent = pilot(*[too_long()] * 7, "short", "done")
    question = " ".join(f"word{n}" for n in range(2000))
    for calls in (5, 6, 7):
        with pytest.raises(ContextOverflow):
            agent.with_(checkpoint=on_disk()).kickoff(question, run_id="q")
        assert len(agent.llm.calls) == calls
    assert agent.with_(checkpoint=on_disk()).kickoff(run_id="q").raw == "done"


def test_a_larger_model_is_asked_first_where_there_is_one():
    small, large = ScriptedLLM([too_long()], model="small"), ScriptedLLM(["done"], model="large")
    small.fallbacks = (large,)
    assert Agent(role="P", goal="g", llm=small).kickoff("go").raw == "done"


def test_a_fork_tells_the_whole_conversation_again(on_disk):
    agent = pilot(CALL, too_long(), "summary", "first", "second", checkpoint=on_disk())
    agent.kickoff("Look", run_id="r")
    agent.fork(on_disk(restore_from="r")).kickoff("Again?")
    assert [message["role"] for message in agent.llm.calls[-1]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
