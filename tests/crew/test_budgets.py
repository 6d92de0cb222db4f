"""What a crew, a task or an agent may use: a run stops there, and goes on when it is given more."""

from __future__ import annotations

import asyncio
import threading

import pytest

from crewlite import (
    Agent,
    CheckpointConfig,
    Crew,
    FailurePolicy,
    History,
    LLMReply,
    Process,
    Task,
    ToolCall,
    event_bus,
    tool,
)
from crewlite.errors import BudgetExceeded, ConfigError, CrewliteError
from crewlite.events import BudgetExceededEvent, HumanFeedbackRequestedEvent, LLMCallStartedEvent, RecoveryStartedEvent
from crewlite.flow import ask, flow, step
from crewlite.recovery import Rule
from crewlite.testing import EventRecorder, ScriptedLLM
from tests.crew.budgeted import EACH, OWNERS, crew_of, looking
from tests.cuts import Kept
from tests.parts import look

STUBBORN = FailurePolicy((Rule(frozenset({"bug", "refused", "timeout", "unavailable"}), retries=3, base=0),))


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("max_tokens", True, "max_tokens is True; wanted a number"),
        ("max_tokens", 0, "max_tokens is 0; wanted a number greater than or equal to 1"),
        ("max_cost_usd", float("nan"), "max_cost_usd is nan; wanted a"),
        ("max_execution_time", -2.5, "max_execution_time is -2.5; wanted a number greater than 0"),
        ("max_rpm", 1.5, "max_rpm is 1.5; wanted a whole number"),
    ],
)
def test_a_budget_that_is_none_is_told_with_what_was_found(field, value, problem):
    agent = Agent(role="A", goal="g", llm="offline")
    for make in (
        lambda: agent.with_(**{field: value}),
        lambda: Task(description="d", expected_output="x", agent=agent, **{field: value}),
        lambda: Crew(tasks=[Task(description="d", expected_output="x", agent=agent)], **{field: value}),
    ):
        with pytest.raises(ConfigError, match=problem):
            make()


LIMITS = {"max_tokens": (200, 500), "max_cost_usd": (0.02, 0.5), "max_iter": (2, 50)}


@pytest.mark.parametrize(
    ("owner", "setting"), [(o, s) for o in OWNERS for s in LIMITS if (o, s) != ("agent", "max_iter")]
)
def test_a_run_stops_at_its_budget_and_goes_on_with_more(on_disk, owner, setting):
    llm, (limit, more) = looking(3), LIMITS[setting]
    with EventRecorder() as heard, pytest.raises(BudgetExceeded) as caught:
        crew_of(llm, checkpoint=on_disk(), **{owner: {setting: limit}}).kickoff(run_id="r")
    error = caught.value
    assert (error.owner, error.setting, error.limit) == (OWNERS[owner], setting, limit)
    assert error.used == pytest.approx(limit)
    assert "raise " + setting + " of the " + owner in str(error)
    assert "run_id='r'" in str(error)
    [event] = heard.of(BudgetExceededEvent)
    assert (event.owner, event.setting, event.limit, event.run_id) == (OWNERS[owner], setting, limit, "r")
    assert len(heard.of(LLMCallStartedEvent)) == len(llm.calls) == 2, "the third call was not begun"
    with pytest.raises(BudgetExceeded):
        crew_of(llm, checkpoint=on_disk(), **{owner: {setting: limit}}).kickoff(run_id="r")
    run = History(on_disk().location).run("r")
    assert (run.status, run.stopped_by) == ("unfinished", error.found)
    assert "budget_exceeded" in [event.type for event in run.events()]
    assert len(llm.calls) == 2
    result = crew_of(llm, checkpoint=on_disk(on_drift="error"), **{owner: {setting: more}}).kickoff(run_id="r")
    assert (result.raw, result.token_usage.total_tokens, len(llm.calls)) == ("done", 400, 4)


def test_wherever_a_run_is_killed_before_its_budget_it_stops_at_the_same_number():
    def make(provider, limit):
        return crew_of(
            looking(3), checkpoint=CheckpointConfig(location="here", provider=provider), task={"max_tokens": limit}
        )

    kept = Kept()
    with pytest.raises(BudgetExceeded) as whole:
        make(kept, 300).kickoff(run_id="r")
    for count in range(1, len(kept.commits) + 1):
        provider = kept.cut(count)
        with pytest.raises(BudgetExceeded) as again:
            make(provider, 300).kickoff(run_id="r")
        assert str(again.value) == str(whole.value)
        result = make(provider, 1000).kickoff(run_id="r")
        assert (result.raw, result.token_usage.total_tokens) == ("done", 400)


def test_what_is_finished_is_finished_though_its_last_reply_went_beyond_the_budget():
    assert crew_of(looking(1), crew={"max_tokens": 101}).kickoff().token_usage.total_tokens == 200


def test_a_coworkers_budget_stops_the_run_and_no_manager_is_told(on_disk):
    def lead(messages):
        said = [message["content"] for message in messages if message["role"] == "tool"]
        wish = {"task": "look", "context": "", "coworker": "Scout"}
        return f"heard {said[0]}" if said else ToolCall("Delegate work to coworker", wish)

    def managed(limit):
        who = Agent(role="Scout", goal="look", llm=scout, tools=[look], max_tokens=limit)
        work = Task(name="t", description="d", expected_output="x", failure_policy=STUBBORN)
        return Crew(agents=[who], tasks=[work], process=Process.hierarchical, manager_llm=boss, checkpoint=on_disk())

    scout, boss = looking(2), ScriptedLLM(lead)
    with EventRecorder() as heard, pytest.raises(BudgetExceeded, match="agent 'Scout'"):
        managed(100).kickoff(run_id="r")
    assert not heard.of(RecoveryStartedEvent)
    assert (len(scout.calls), len(boss.calls)) == (1, 1)
    assert managed(1000).kickoff(run_id="r").raw == "heard done"
    assert (len(scout.calls), len(boss.calls)) == (3, 2)


def test_no_code_around_a_crew_swallows_its_budget(on_disk):
    llm, ran = looking(2), []

    @step(retries=3)
    def dear(limit):
        try:
            return crew_of(llm, crew={"max_tokens": limit}).kickoff().raw
        except Exception:
            ran.append("instead")
            return "a cheaper answer"

    @step
    def then():
        ran.append("then")

    @flow(checkpoint=on_disk(), retries=3)
    def whole():
        try:
            found = dear(LIMIT[0])
        except CrewliteError:
            found = "nothing"
        then()
        return found

    LIMIT = [100]
    with pytest.raises(BudgetExceeded):
        whole.kickoff(run_id="r")
    assert len(llm.calls) == 1
    assert "then" not in ran
    assert History(on_disk().location).run("r").status == "unfinished"


def test_all_budgets_around_a_crew_hold_also_where_it_has_a_store_of_its_own(on_disk):
    inner_llm = looking(5)

    @tool
    def have_it_done() -> str:
        """Kick off a crew."""
        try:
            return crew_of(inner_llm, checkpoint=inner).kickoff(run_id="inner" if inner else None).raw
        except Exception as error:
            return f"failed: {error}"

    for inner in (False, on_disk()):
        outer_llm = ScriptedLLM([LLMReply(text="", tool_calls=(ToolCall("have_it_done"),), usage=EACH), "told"])
        who = Agent(role="Boss", goal="g", llm=outer_llm, tools=[have_it_done])
        work = Task(name="t", description="d", expected_output="x", agent=who)
        outer = Crew(tasks=[work], name="outer", max_tokens=300)
        inner_llm.calls.clear()
        with pytest.raises(BudgetExceeded, match="crew 'outer' has used 300 tokens"):
            outer.kickoff()
        assert (len(outer_llm.calls), len(inner_llm.calls)) == (1, 2)


def test_a_budget_around_a_run_holds_in_it_also_once_a_person_has_answered_meanwhile(on_disk):
    llm, asked = ScriptedLLM(["done"] * 2), threading.Event()
    work = Crew(tasks=[Task(description=d, expected_output="x", agent=Agent(role=d, goal="g", llm=llm)) for d in "ab"])

    @step
    def asks() -> bool:
        return ask("Go on?", bool, name="go")

    @step
    def answers() -> None:
        asked.wait(60)
        with History(on_disk().location) as history:
            history.answer("r", history.run("r").waiting[0].address, True)

    @flow(checkpoint=on_disk())
    def asking() -> str:
        waits, beside = asks.submit(), answers.submit()
        beside.result()
        waits.result()
        return work.kickoff().raw

    @tool
    def begin() -> str:
        """Begin the work."""
        return asking.kickoff(run_id="r")

    outer = Agent(role="O", goal="g", llm=ScriptedLLM([ToolCall("begin", {})]), tools=[begin], max_tokens=5)
    with (
        event_bus.on(HumanFeedbackRequestedEvent, lambda source, event: asked.set()),
        pytest.raises(BudgetExceeded),
    ):
        Crew(tasks=[Task(description="d", expected_output="x", agent=outer)]).kickoff()
    assert len(llm.calls) == 1


def test_tasks_side_by_side_may_exceed_a_budget_by_the_calls_in_flight_and_lose_nothing(on_disk):
    def desk(limit):
        who = Agent(role="Scout", goal="look", llm=llm)
        tasks = [
            Task(name=f"t{n}", description=f"{n}", expected_output="x", agent=who, async_execution=True, context=[])
            for n in range(4)
        ]
        last = Task(name="last", description="sum up", expected_output="x", agent=who)
        return Crew(tasks=[*tasks, last], max_iter=limit, checkpoint=on_disk())

    class Together(ScriptedLLM):
        async def acall(self, messages, **context):
            reply = await super().acall(messages, **context)
            while len(self.calls) < 4:
                await asyncio.sleep(0.001)
            return reply

    llm = Together(lambda messages: "done")
    with pytest.raises(BudgetExceeded) as caught:
        desk(2).kickoff(run_id="r")
    assert caught.value.used == len(llm.calls) == 4
    assert desk(9).kickoff(run_id="r").raw == "done"
    assert len(llm.calls) == 5


def test_each_turn_of_a_conversation_has_the_budget_of_its_agent(on_disk):
    def chat(limit):
        return Agent(role="Scout", goal="g", llm=llm, max_tokens=limit, checkpoint=on_disk(), tools=[look])

    llm = looking(1)
    assert chat(250).kickoff("One?", run_id="chat").token_usage.total_tokens == 200
    llm = looking(2)
    assert chat(250).kickoff("Two?", run_id="chat").token_usage.total_tokens == 400
    llm = looking(4)
    with pytest.raises(BudgetExceeded, match="agent 'Scout' has used 100 tokens"):
        chat(100).kickoff("Three?", run_id="chat")
    assert chat(1000).kickoff("Three?", run_id="chat").raw == "done"


def test_a_cost_that_nobody_knows_is_told(caplog):
    crew_of(looking(1, prompt_tokens=5, requests=1), crew={"max_cost_usd": 1}).kickoff()
    [told] = [record.message for record in caplog.records if "max_cost_usd of crew 'desk'" in record.message]
    assert "is unknown" in told


def test_without_a_store_it_says_what_is_needed_to_go_on():
    with pytest.raises(BudgetExceeded, match="checkpoint=True"):
        Agent(role="Scout", goal="g", llm=looking(3), tools=[look], max_tokens=100).kickoff("go")


def test_a_fork_has_used_what_its_base_had_used_and_a_rebuilt_crew_may_be_given_more(on_disk):
    llm = looking(3)
    with pytest.raises(BudgetExceeded):
        crew_of(llm, checkpoint=on_disk(), crew={"max_tokens": 200}).kickoff(run_id="r")
    with pytest.raises(BudgetExceeded, match="from_checkpoint='r/dear'"):
        crew_of(llm, checkpoint=on_disk(), crew={"max_tokens": 200}).fork("r", branch="dear").kickoff()
    assert len(llm.calls) == 2
    bind = {"max_tokens": 1000, "llm": llm, "look": look}
    assert Crew.from_checkpoint(on_disk(restore_from="r"), bind=bind).kickoff().raw == "done"
    assert len(llm.calls) == 4


def test_a_handle_says_of_a_run_that_a_budget_has_stopped_what_its_record_says(on_disk):
    agent = Agent(role="A", goal="g", llm=ScriptedLLM(lambda messages: "x"))
    tasks = [Task(name=name, description="d", expected_output="x", agent=agent) for name in "ab"]
    handle = Crew(tasks=tasks, checkpoint=on_disk(), max_tokens=5).submit(run_id="r")
    with pytest.raises(BudgetExceeded):
        handle.result()
    with History(on_disk().location) as history:
        assert handle.status == history.run("r").status == "unfinished"
