"""Limits on time: the seconds at work that a budget allows, over resumes and forks, and the calls of a minute."""

from __future__ import annotations

import asyncio
import time

import pytest

from crewlite import Agent, Crew, History, Task, ToolCall, tool
from crewlite.concurrency.pacing import paced_by
from crewlite.errors import Suspended, TimeBudgetExceeded
from crewlite.events import LLMCallPacedEvent
from crewlite.flow import ask
from crewlite.testing import EventRecorder, ScriptedLLM
from tests.clocks import Turning, most_within_a_minute
from tests.crew.budgeted import OWNERS, crew_of, looking
from tests.parts import look


def test_calls_of_a_crew_are_paced_together_and_those_of_an_agent_besides():
    clock, begun = Turning(), []

    def model(name):
        return ScriptedLLM(lambda messages: begun.append((name, clock.now())) or "done")

    quick, slow = (
        Agent(role=role, goal="g", llm=model(role), **more) for role, more in (("Quick", {}), ("Slow", {"max_rpm": 1}))
    )
    tasks = [
        Task(
            name=f"{who.role}{n}", description=f"{n}", expected_output="x", agent=who, async_execution=True, context=[]
        )
        for n in range(3)
        for who in (quick, slow)
    ]
    desk = Crew(tasks=tasks, max_rpm=2)
    with paced_by(clock), EventRecorder() as heard:
        desk.kickoff_for_each([{}, {}])
    assert len(begun) == 12
    waits = {(event.owner, event.max_rpm) for event in heard.of(LLMCallPacedEvent) if 0 < event.seconds <= 60}
    assert waits == {("crew 'crew'", 2), ("agent 'Slow'", 1)}
    assert most_within_a_minute([at for _, at in begun]) == 2
    assert most_within_a_minute([at for name, at in begun if name == "Slow"]) == 1


def test_an_agents_own_pace_is_not_that_of_its_coworkers():
    clock = Turning()
    boss = Agent(
        role="Boss",
        goal="g",
        allow_delegation=True,
        max_rpm=1,
        llm=ScriptedLLM(
            [ToolCall("Delegate work to coworker", {"task": "look", "context": "", "coworker": "Scout"}), "done"]
        ),
    )
    scout = Agent(role="Scout", goal="look", llm=looking(4), tools=[look])
    with paced_by(clock):
        Crew(agents=[boss, scout], tasks=[Task(description="d", expected_output="x", agent=boss)]).kickoff()
    assert clock.now() - 1000 <= 61


def test_time_at_work_counts_over_resumes_and_without_the_time_that_people_take(on_disk):
    @tool
    def wonder() -> str:
        """Ask somebody."""
        return ask("Really?")

    def desk(limit, **task):
        who = Agent(role="Scout", goal="look", llm=llm, tools=[wonder], max_execution_time=limit)
        return Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=who)], checkpoint=on_disk())

    llm = ScriptedLLM([ToolCall("wonder"), KeyError("broke"), "done"], delay=0.1)
    begun = time.monotonic()
    with pytest.raises(Suspended):
        desk(60).kickoff(run_id="r")
    time.sleep(0.6)
    with pytest.raises(KeyError):
        desk(60).kickoff(run_id="r", answers={"task:t/tool:wonder/human#1": "yes"})
    took = time.monotonic() - begun
    with pytest.raises(TimeBudgetExceeded, match="seconds at work") as caught:
        desk(0.19).kickoff(run_id="r")
    assert 0.19 <= caught.value.used <= took - 0.6
    assert len(llm.calls) == 2
    assert desk(60).kickoff(run_id="r").raw == "done"


def test_time_in_which_calls_are_paced_is_not_time_at_work():
    class Hurried(Turning):
        """Really lets more than half a second pass for each sleep."""

        async def sleep(self, seconds):
            time.sleep(0.6)
            await super().sleep(seconds)

    with paced_by(Hurried()):
        result = crew_of(looking(2), crew={"max_rpm": 1, "max_execution_time": 1}).kickoff()
    assert result.raw == "done"


def test_a_fork_has_also_used_the_time_of_what_failed_before_it(on_disk):
    with pytest.raises(ValueError, match="no"):
        crew_of(ScriptedLLM([ValueError("no")], delay=0.1), checkpoint=on_disk()).kickoff(run_id="r")
    with History(on_disk().location) as history:
        worked = max(step.milliseconds or 0 for step in history.run("r").steps)
    crew = crew_of(llm := looking(0), checkpoint=on_disk(), crew={"max_execution_time": worked * 0.9 / 1000})
    with pytest.raises(TimeBudgetExceeded):
        crew.fork("r", branch="late").kickoff()
    assert llm.calls == []


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("cut", ["model", "tool"])
def test_time_that_a_budget_has_cut_is_counted_so_the_same_kickoff_pays_nothing_again(on_disk, owner, cut):
    begun = []

    @tool
    async def dawdle() -> str:
        """Take a while."""
        begun.append("tool")
        await asyncio.sleep(0.4)
        return "ok"

    def reply(messages):
        begun.append("model")
        return ToolCall("dawdle") if cut == "tool" and messages[-1]["role"] != "tool" else "done"

    def desk(limit):
        timed = {"max_execution_time": limit}
        llm = ScriptedLLM(reply, delay=0.4 if cut == "model" else 0)
        who = Agent(role="Scout", goal="look", llm=llm, tools=[dawdle], **(timed if owner == "agent" else {}))
        task = Task(name="t", description="d", expected_output="x", agent=who, **(timed if owner == "task" else {}))
        more = timed if owner == "crew" else {}
        return Crew(tasks=[task], name="desk", checkpoint=on_disk(on_events=["*"]), **more)

    since = time.monotonic()
    with pytest.raises(TimeBudgetExceeded):
        desk(0.2).kickoff(run_id="r")
    took, paid = time.monotonic() - since, list(begun)
    for compacted in (False, True):
        if compacted:
            with History(on_disk().location) as history:
                history.prune(keep_last=1)
        with pytest.raises(TimeBudgetExceeded) as again:
            desk(0.2).kickoff(run_id="r")
        assert begun == paid, "nothing was begun"
        assert 0.2 <= again.value.used <= took
    with pytest.raises(TimeBudgetExceeded):
        desk(0.55).kickoff(run_id="r")  # which would do for what is left, were the time not counted
    assert desk(60).kickoff(run_id="r").raw == "done"
