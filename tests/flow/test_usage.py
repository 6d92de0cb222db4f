"""Every kickoff reports what it cost, wherever it stands; the total of a run counts everything once."""

from __future__ import annotations

import pytest

from crewlite import Agent, Crew, History, Task, event_bus, tool
from crewlite.events import CrewKickoffCompletedEvent, FlowFinishedEvent, LiteAgentExecutionCompletedEvent
from crewlite.flow import flow, step
from crewlite.llm.base import LLMReply, ToolCall
from crewlite.testing import ScriptedLLM
from crewlite.usage import Usage

PRICE = Usage(prompt_tokens=7, completion_tokens=3, requests=1, cost=0.5)


def paid(text):
    return LLMReply(text=text, usage=PRICE)


def crew(name, replies=2, **fields):
    """A crew of as many tasks as it has replies, each of which costs 10 tokens and half a dollar."""
    agent = Agent(role=f"{name} agent", goal="work", llm=ScriptedLLM(lambda messages: paid(f"{name} says")))
    tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=agent) for n in range(replies)]
    return Crew(name=name, tasks=tasks, **fields)


def history(stored):
    return History(stored().location, stored().provider)


def test_a_crew_in_a_flow_reports_its_own_usage_and_the_flow_counts_it_once(stored):
    ended = []
    event_bus.on(CrewKickoffCompletedEvent)(lambda source, event: ended.append(event))

    @flow(checkpoint=stored())
    def two():
        return [crew("a").kickoff().token_usage.model_dump(), crew("b", 3).kickoff().token_usage.model_dump()]

    handle = two.submit(run_id="u")
    first, second = handle.result()
    assert (first["requests"], first["prompt_tokens"], first["cost"]) == (2, 14, 1.0)
    assert (second["requests"], second["prompt_tokens"], second["cost"]) == (3, 21, 1.5)
    assert (handle.usage.requests, handle.usage.total_tokens, handle.usage.cost) == (5, 50, 2.5)
    assert [(e.total_tokens, e.output.token_usage.requests) for e in ended] == [(20, 2), (30, 3)]
    assert history(stored).run("u").usage == handle.usage


def test_an_agent_in_a_flow_reports_its_own_usage():
    ended = []
    event_bus.on(LiteAgentExecutionCompletedEvent)(lambda source, event: ended.append(event.usage.requests))
    agent = Agent(role="Guide", goal="g", llm=ScriptedLLM(lambda messages: paid("ok")))

    @flow
    def asks():
        return [agent.kickoff("one").token_usage.requests, agent.kickoff("two").token_usage.requests]

    assert asks.kickoff() == [1, 1]
    assert ended == [1, 1]


def test_a_crew_that_a_tool_kicks_off_reports_its_own_usage_and_counts_for_those_around_it():
    seen = []

    @tool
    def delegate(what: str) -> str:
        """Have others do it."""
        result = crew("inner").kickoff()
        seen.append(result.token_usage.requests)
        return result.raw

    call = LLMReply(tool_calls=(ToolCall(name="delegate", arguments={"what": "x"}),), usage=PRICE)
    boss = Agent(role="Boss", goal="g", llm=ScriptedLLM([call, paid("done")]), tools=[delegate])
    outer = Crew(tasks=[Task(description="Do", expected_output="x", agent=boss)])
    assert outer.kickoff().token_usage.requests == 4
    assert seen == [2]


def test_a_run_counts_its_own_tasks_and_not_those_of_a_crew_that_a_tool_kicked_off(stored):
    @tool
    def delegate(what: str) -> str:
        """Have others do it."""
        return crew("inner", 3).kickoff().raw

    boss = Agent(role="Boss", goal="g", llm=ScriptedLLM([ToolCall("delegate", {"what": "x"}), "ok"]), tools=[delegate])
    outer = Crew(tasks=[Task(description="Do", expected_output="x", agent=boss)], checkpoint=stored())
    outer.kickoff(run_id="u")
    found = history(stored)
    assert len(found.run("u").tasks) == 1
    assert found.checkpoint("u").tasks == found.run("u").tasks

    @flow(checkpoint=stored())
    def two():
        return [crew("a").kickoff().raw, crew("b").kickoff().raw]

    two.kickoff(run_id="f")
    assert len(found.run("f").tasks) == 4


def test_crews_side_by_side_report_each_its_own_usage():
    @step
    def work(name, tasks):
        return crew(name, tasks).kickoff().token_usage.requests

    @flow
    def many():
        return work.map(["a", "b", "c"], [1, 2, 3]).result()

    assert many.kickoff() == [1, 2, 3]


def test_flow_finished_says_what_the_flow_has_cost():
    ended = []
    event_bus.on(FlowFinishedEvent)(lambda source, event: ended.append(event.usage))

    @flow
    def once():
        return crew("a").kickoff().raw

    once.kickoff()
    assert [(usage.requests, usage.cost) for usage in ended] == [(2, 1.0)]


def test_a_flow_that_failed_says_what_it_has_cost():
    @flow
    def fails():
        crew("a").kickoff()
        raise ValueError("no")

    handle = fails.submit()
    with pytest.raises(ValueError, match="no"):
        handle.result()
    assert handle.usage.requests == 2


def broken_flow(stored, fail):
    @flow(checkpoint=stored())
    def goes_on():
        first = crew("a").kickoff().token_usage.requests
        agent = Agent(role="Guide", goal="g", llm=ScriptedLLM(lambda messages: paid("ok")))
        second = agent.kickoff("one").token_usage.requests
        if fail:
            raise ValueError("no")
        return first, second, crew("b", 3).kickoff().token_usage.requests

    return goes_on


def test_usage_is_the_same_when_it_answers_from_the_record(stored):
    with pytest.raises(ValueError, match="no"):
        broken_flow(stored, True).kickoff(run_id="u")
    handle = broken_flow(stored, False).submit(run_id="u")
    assert handle.result() == (2, 1, 3)
    assert handle.usage.requests == history(stored).run("u").usage.requests == 6
    assert broken_flow(stored, False).submit(run_id="u").usage.requests == 6  # finished: nothing is paid again


def test_usage_is_the_same_after_a_compaction(stored):
    with pytest.raises(ValueError, match="no"):
        broken_flow(stored, True).kickoff(run_id="u")
    for _ in range(2):  # also of what is compact already
        with history(stored) as found:
            found.prune(keep_last=1)
            assert "llm" not in [step.kind for step in found.run("u").steps]
    handle = broken_flow(stored, False).submit(run_id="u")
    assert handle.result() == (2, 1, 3)
    assert handle.usage.requests == history(stored).run("u").usage.requests == 6


@pytest.mark.parametrize("cut", range(3))
def test_a_crew_that_was_cut_in_a_flow_reports_all_it_cost_when_it_has_gone_on(memory, cut):
    fails = True

    @flow(checkpoint=memory())
    def cut_short():
        calls = []

        def reply(messages):
            calls.append(1)
            return KeyError("cut") if fails and len(calls) > cut else paid("ok")

        agent = Agent(role="a", goal="work", llm=ScriptedLLM(reply))
        tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=agent) for n in range(3)]
        return Crew(name="a", tasks=tasks).kickoff().token_usage.requests

    with pytest.raises(KeyError):
        cut_short.kickoff(run_id="u")
    fails = False
    assert cut_short.kickoff(run_id="u") == 3


def test_a_recorded_crew_in_a_flow_without_a_record_reports_its_usage_and_the_flow_counts_it(stored, capsys):
    ended = []
    event_bus.on(FlowFinishedEvent)(lambda source, event: ended.append(event.usage.requests))

    def begun():
        @flow
        def unrecorded():
            crew("b").kickoff()
            return crew("a", 3, checkpoint=stored(), verbose=True).kickoff(run_id="own").token_usage.requests

        handle = unrecorded.submit()
        return handle.result(), handle.usage.requests

    assert begun() == (3, 5)
    assert history(stored).run("own").usage.requests == 3
    assert "crew a has finished: 30 tokens" in capsys.readouterr().out
    assert begun() == (3, 5)  # answered from the record: what it has cost stays what it has cost
    assert ended == [5, 5]
