"""A remedy for work is applied by the nearest task, agent, step or flow around the failure, and its hint is told once."""

from __future__ import annotations

import pytest

from crewlite import Agent, CheckpointConfig, Crew, FailurePolicy, History, Task, ToolCall, tool
from crewlite.errors import LLMUnavailable, RecoveryAborted, RecoveryEscalated
from crewlite.events import (
    BaseEvent,
    FailureClassifiedEvent,
    RecoveryCompletedEvent,
    RecoveryFailedEvent,
    RecoveryStartedEvent,
)
from crewlite.flow import flow, step
from crewlite.recovery import (
    Abort,
    Escalate,
    FailureType,
    Replan,
    Retry,
    escalate,
    replan,
    retry,
    retry_with_tool_manifest,
    sequence,
)
from crewlite.testing import EventRecorder, ScriptedLLM
from tests.cuts import lives

HINT = "Use the tide table of 1911."
STORE = ".checkpoints"


class Says:
    """Chooses these remedies in turn, and notes what it was asked."""

    def __init__(self, *remedies):
        self.remedies, self.asked = remedies, []

    def decide(self, failure, past):
        self.asked.append((failure.address, tuple(past)))
        return self.remedies[len(past)] if len(past) < len(self.remedies) else Abort()


def attempts():
    with History(STORE) as history:
        return [(one.address, one.number, one.remedy) for one in history.run("r").attempts]


def recovery(events):
    """The events of recovering, in order."""
    return [one for one in events.of(BaseEvent) if one.type.startswith(("recovery_", "failure_"))]


@tool
def look(port: str) -> str:
    """Look up high water."""
    raise KeyError(port)


def crew(failing, policy, *, checkpoint=True):
    """A crew whose second task fails in its first attempt: a call of its model, of its tool, or the task itself."""
    asked = []

    def reply(messages):
        told, last = messages[1]["content"], messages[-1]
        asked.append(told)
        if told.startswith("The first"):
            return "one"
        if "earlier attempt" in told:
            return "two"
        if failing == "llm":
            raise LLMUnavailable("no line")
        if failing == "tool" and last["role"] == "user":
            return ToolCall("look", {"port": "Brest"})
        return "not JSON" if failing == "task" else "told of it"

    agent = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(reply), tools=[look])
    tasks = [
        Task(name=name, description=f"The {name} question", expected_output="A time", agent=agent)
        for name in ("first", "second")
    ]
    if failing == "task":
        tasks[1] = tasks[1].model_copy(update={"guardrail": lambda output: ("two" in output.raw, output.raw)})
        tasks[1] = tasks[1].model_copy(update={"guardrail_max_retries": 0})
    return Crew(tasks=tasks, failure_policy=policy, checkpoint=checkpoint), asked


PLACES = {"llm": "task:second/llm#1", "tool": "task:second/tool:look", "task": "task:second"}


@pytest.mark.parametrize("failing", PLACES)
@pytest.mark.parametrize("remedy", [Replan(HINT), Retry(hint=HINT)], ids=["replan", "retry"])
def test_the_task_is_done_again_with_the_hint_whatever_in_it_fails(failing, remedy):
    policy = Says(remedy)
    team, asked = crew(failing, policy)
    with EventRecorder() as events:
        result = team.kickoff(run_id="r")
    assert (result.raw, [one.raw for one in result.tasks_output]) == ("two", ["one", "two"])
    assert policy.asked == [(PLACES[failing], ())]
    assert HINT in asked[-1]
    assert asked[-1].startswith("The second question")
    assert [one for one in asked if one.startswith("The first")] == asked[:1], "what stands before it is done once"
    assert HINT not in "".join(asked[:-1])
    *inside, (address, number, applied) = attempts()
    assert (address, number, type(applied), applied.hint) == ("task:second", 1, type(remedy), HINT)
    assert [at for at, *_ in inside] == ([] if failing == "task" else [PLACES[failing]])
    [begun], [done] = events.of(RecoveryStartedEvent), events.of(RecoveryCompletedEvent)
    assert (begun.address, begun.kind, begun.attempt, begun.hint) == ("task:second", "task", 1, HINT)
    assert (done.address, done.attempt, done.remedy) == ("task:second", 2, begun.remedy)


@pytest.mark.parametrize("failing", PLACES)
def test_killed_after_any_commit_the_remedy_is_applied_once_and_nothing_recorded_is_done_again(failing):
    paid = []

    def make(checkpoint):
        team, asked = crew(failing, FailurePolicy(default=replan(HINT, max_replans=1)), checkpoint=checkpoint)
        paid.append(asked)
        return team

    cuts = list(lives(make))
    assert len(cuts) > 6
    for whole, again in cuts:
        assert [one.raw for one in again.tasks_output] == [one.raw for one in whole.tasks_output]
    whole, *resumed = paid
    assert all(asked == whole[len(whole) - len(asked) :] for asked in resumed), "asked on as if never killed"


def test_a_budget_of_replans_is_counted_over_attempts_and_over_kills():
    calls = []

    def reply(messages):
        calls.append(messages[1]["content"])
        raise LLMUnavailable("no line")

    def make(checkpoint):
        agent = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(reply))
        task = Task(name="t", description="d", expected_output="e", agent=agent)
        policy = FailurePolicy(EXTERNAL_FAULT=replan(HINT, max_replans=2), default=escalate())
        return Crew(tasks=[task], failure_policy=policy, checkpoint=checkpoint)

    def verb(team, run_id):
        calls.clear()
        with pytest.raises(RecoveryEscalated, match="budget of 2 remedies") as caught:
            team.kickoff(run_id=run_id)
        assert isinstance(caught.value.__cause__, LLMUnavailable)
        return len(calls), caught.value.failure.type, caught.value.failure.address

    made = list(lives(make, verb))
    assert made[0][0] == (3, FailureType.EXTERNAL_FAULT, "task:t!3/llm#1")
    assert [again[0] for _, again in made][0] == 3
    assert all(again[0] <= 3 for _, again in made)


def test_a_step_is_done_again_with_the_hint_that_its_own_code_reads():
    from crewlite.flow import recovery, recovery_hint

    told = []

    @step
    def process(records: int) -> int:
        told.append(recovery_hint())
        if not told[-1]:
            raise ValueError("made up")
        assert recovery().attempt == 2
        return records

    @step
    def fetch() -> int:
        told.append("fetch")
        return 42

    policy = FailurePolicy(default=replan(HINT))

    @flow(checkpoint=True, failure_policy=policy)
    def work() -> int:
        return process(fetch())

    assert work.kickoff(run_id="r") == 42
    assert told == ["fetch", "", HINT]
    assert [(at, number) for at, number, _ in attempts()] == [("step:process", 1)]


@pytest.mark.parametrize(
    ("remedy", "error"), [(Escalate("Ask the harbour"), RecoveryEscalated), (Abort("It is late"), RecoveryAborted)]
)
@pytest.mark.parametrize("failing", PLACES)
def test_a_policy_that_gives_up_says_why_and_how_to_go_on(failing, remedy, error):
    team, _ = crew(failing, Says(remedy))
    with EventRecorder() as events, pytest.raises(error) as caught:
        team.kickoff(run_id="r")
    raised = caught.value
    text = getattr(remedy, "message", "") or remedy.reason
    assert (raised.failure.address, raised.said) == (PLACES[failing], text)
    assert text in str(raised)
    assert "run_id='r'" in str(raised)
    assert raised.__cause__ is not None
    assert raised.failure.last_good
    [ended] = events.of(RecoveryFailedEvent) or [None]
    assert (ended is not None) is (error is RecoveryEscalated)
    before = len(attempts())
    with pytest.raises(error):
        team.kickoff(run_id="r")
    assert len(attempts()) > before, "the next kickoff tries again"


def test_a_remedy_that_rises_is_no_end_and_all_events_count_the_tries_of_their_step_alike():
    lines = iter([LLMUnavailable("1"), LLMUnavailable("2"), "done"])
    agent = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(lambda messages: next(lines)))
    policy = FailurePolicy(default=sequence(retry(), replan(HINT), escalate()))
    task = Task(name="one", description="Ask", expected_output="A time", agent=agent)
    with EventRecorder() as events:
        assert Crew(tasks=[task], failure_policy=policy).kickoff().raw == "done"
    told = [(one.type, one.address, one.attempt) for one in recovery(events)]
    assert told == [
        ("failure_classified", "task:one/llm#1", 1),
        ("recovery_started", "task:one/llm#1", 1),
        ("failure_classified", "task:one/llm#1", 2),
        ("recovery_started", "task:one", 1),
        ("recovery_completed", "task:one", 2),
    ]


def test_a_failed_recovery_and_one_after_a_resume_count_all_tries():
    policy = FailurePolicy(default=retry(1))
    fails = iter([True] * 3 + [False])

    @step(failure_policy=policy)
    def shaky():
        if next(fails):
            raise KeyError("no")
        return "done"

    @flow(checkpoint=True)
    def work():
        return shaky()

    with EventRecorder() as events:
        with pytest.raises(RecoveryEscalated):
            work.kickoff(run_id="r")
        assert work.kickoff(run_id="r") == "done"
    told = [(one.type, one.attempt) for one in recovery(events)]
    assert told == [
        ("failure_classified", 1),
        ("recovery_started", 1),
        ("failure_classified", 2),
        ("recovery_failed", 2),
        ("failure_classified", 3),
        ("recovery_started", 3),
        ("recovery_completed", 4),
    ]


def test_what_a_classifier_says_is_told_and_recorded_with_the_remedy():
    class Mine:
        async def classify(self, failure):
            assert failure.last_good == "task:first"
            return FailureType.GOAL_DRIFT

    policy = FailurePolicy(GOAL_DRIFT=replan(HINT), classifier=Mine())
    team, _ = crew("llm", policy)
    with EventRecorder() as events:
        team.kickoff(run_id="r")
    [told] = events.of(FailureClassifiedEvent)
    assert (told.address, told.failure_type) == ("task:second/llm#1", "goal_drift")
    assert [event.failure_type for event in events.of(RecoveryStartedEvent)] == ["goal_drift"]
    assert [remedy.type for _, _, remedy in attempts()] == [FailureType.GOAL_DRIFT] * 2


def test_the_plan_of_a_crew_is_made_again_with_the_hint():
    asked = []

    def reply(messages):
        asked.append(messages[-1]["content"])
        return "no plan" if len(asked) < 4 else '{"plans": [{"task": 1, "plan": "look"}]}'

    agent = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(["11:40"]))
    task = Task(name="t", description="d", expected_output="e", agent=agent)
    crew = Crew(tasks=[task], planning=True, planning_llm=ScriptedLLM(reply), failure_policy=Says(Replan(HINT)))
    assert crew.kickoff().raw == "11:40"
    assert [HINT in text for text in asked] == [False, False, False, True]


def test_a_callback_of_a_crew_has_no_work_around_it_so_the_failure_is_escalated():
    def prepare(inputs):
        raise LookupError("no tables")

    agent = Agent(role="Pilot", goal="answer", llm="offline")
    task = Task(name="t", description="d", expected_output="e", agent=agent)
    team = Crew(tasks=[task], before_kickoff_callbacks=[prepare], failure_policy=Says(Replan(HINT)))
    with pytest.raises(RecoveryEscalated, match="nothing of this kind encloses the failed step"):
        team.kickoff()


def test_an_agent_alone_begins_anew_with_the_hint():
    asked = []

    def reply(messages):
        asked.append(messages[-1]["content"])
        if len(asked) == 1:
            raise LLMUnavailable("no line")
        return "hello"

    llm = ScriptedLLM(reply)
    llm.failure_policy = Says(Replan(HINT))
    agent = Agent(role="Pilot", goal="answer", llm=llm, checkpoint=CheckpointConfig(location=STORE))
    assert agent.kickoff("Hi", run_id="r").raw == "hello"
    assert asked[0] == "Hi"
    assert asked[1].startswith("Hi\n\nAn earlier attempt")
    assert HINT in asked[1]


@pytest.mark.parametrize(
    ("names", "offered"), [(["look"], ["look"]), ([], []), (["look", "nope"], ["look"]), (["nope", "none"], None)]
)
def test_an_agent_that_has_none_of_the_named_tools_is_not_left_without_any(names, offered):
    seen = []

    def reply(messages, tools):
        seen.append([one["function"]["name"] for one in tools or ()])
        if len(seen) == 1:
            raise LookupError("no line")
        return "fog"

    agent = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(reply), tools=[look])
    task = Task(name="ask", description="Ask", expected_output="A word", agent=agent)

    def team(names):
        policy = FailurePolicy(default=retry_with_tool_manifest(names))
        return Crew(tasks=[task], failure_policy=policy, checkpoint=True)

    if offered is not None:
        assert team(names).kickoff().raw == "fog"
        assert seen == [["look"], offered]
        return
    with pytest.raises(
        RecoveryEscalated, match="call only nope, none, and the agent has none of these. Its tools are look"
    ):
        team(names).kickoff(run_id="r")
    assert seen == [["look"]]
    assert team(["look"]).kickoff(run_id="r").raw == "fog", "a policy that is mended mends the run"
