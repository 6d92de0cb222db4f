"""A rollback to a named place: what was finished up to there stays, what came after it is done again, told why."""

from __future__ import annotations

import pytest

from crewlite import Agent, CheckpointConfig, Crew, FailurePolicy, History, Task, ToolCall, tool
from crewlite.errors import LLMUnavailable, RecoveryEscalated
from crewlite.events import RecoveryStartedEvent
from crewlite.flow import flow, recovery_hint, step
from crewlite.recovery import escalate, rollback_to_checkpoint
from crewlite.state.journal.compaction import compact_entries
from crewlite.testing import EventRecorder, ScriptedLLM
from tests.cuts import Kept, cut

NAMES = ("research", "plan", "write")


def crew(place, checkpoint=True, policy=None):
    asked = []

    def reply(messages):
        told = messages[1]["content"]
        name = told.partition(" ")[0]
        asked.append(name)
        if name == "write" and "earlier attempt" not in told:
            raise LLMUnavailable("The plan has no end")
        return f"{name} {sum(one == name for one in asked) if checkpoint is True else ''}"

    agent = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(reply))
    tasks = [Task(name=name, description=f"{name} it", expected_output="A text", agent=agent) for name in NAMES]
    policy = policy or FailurePolicy(default=rollback_to_checkpoint(place, max_rollbacks=1))
    return Crew(tasks=tasks, failure_policy=policy, checkpoint=checkpoint), asked


def test_a_crew_goes_on_behind_the_named_task():
    team, asked = crew("task:research")
    with EventRecorder() as events:
        result = team.kickoff(run_id="r")
    assert asked == ["research", "plan", "write", "plan", "write"]
    assert [one.raw for one in result.tasks_output] == ["research 1", "plan 2", "write 2"]
    [began] = events.of(RecoveryStartedEvent)
    assert (began.kind, began.remedy) == ("crew", "rollback")
    with History(".checkpoints") as history:
        assert [one.address for one in history.run("r").attempts] == ["task:write/llm#1", "task:write", ""]
        assert history.run("r").usage.requests == 4, "what was paid stays paid"


def test_a_tool_call_that_is_not_made_again_is_not_in_doubt():
    """The tombstone of the step inside the call comes before that of the call, and voids its outcome too."""
    failed = []

    @step
    def price(what):
        return f"{what} for 3"

    @tool
    def shop(what: str) -> str:
        """Look for something to buy."""
        return price(what)

    def reply(messages):
        name = messages[1]["content"].partition(" ")[0]
        if name == "write" and not failed:
            failed.append(name)
            raise LLMUnavailable("The plan has no end")
        if name == "plan" and not failed and messages[-1]["role"] != "tool":
            return ToolCall("shop", {"what": "a boat"})
        return name

    agent = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(reply), tools=[shop])
    tasks = [Task(name=name, description=f"{name} it", expected_output="A text", agent=agent) for name in NAMES]
    policy = FailurePolicy(default=rollback_to_checkpoint("task:research", max_rollbacks=1))
    Crew(tasks=tasks, failure_policy=policy, checkpoint=True).kickoff(run_id="r")
    with History(".checkpoints") as history:
        assert {one.status for one in history.run("r").steps} == {"finished"}


@pytest.mark.parametrize("place", ["task:research", "task:plan"])
def test_killed_after_any_commit_a_crew_comes_to_the_same_and_repeats_nothing(place):
    kept = Kept()
    team, whole = crew(place, CheckpointConfig(location="here", provider=kept, on_events=["flow_failed"]))
    expected = [one.raw for one in team.kickoff(run_id="run").tasks_output]
    entries = kept.entries
    for at in range(1, len(entries)):
        team, asked = crew(place, cut(entries, at))
        assert [one.raw for one in team.kickoff(run_id="run").tasks_output] == expected, f"cut after commit {at}"
        calls = [one for entry in entries[:at] for one in entry.commit.get("steps", ()) if "llm#" in one["address"]]
        done = [one for one in calls if not one.get("again")]
        assert asked == whole[len(done) :], f"cut after commit {at}"


def test_a_task_behind_the_one_that_failed_is_not_told_of_it_also_when_the_crew_is_killed_anywhere():
    def team(checkpoint):
        def reply(messages):
            name, told = messages[1]["content"].partition(" ")[0], "earlier attempt" in messages[1]["content"]
            asked.append((name, told))
            if name == "write" and not told:
                raise LLMUnavailable("The plan has no end")
            return f"{name} {told}"

        agent = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(reply))
        tasks = [
            Task(name=name, description=f"{name} it", expected_output="A text", agent=agent)
            for name in (*NAMES, "print")
        ]
        policy = FailurePolicy(default=rollback_to_checkpoint("task:research", max_rollbacks=1))
        return Crew(tasks=tasks, failure_policy=policy, checkpoint=checkpoint)

    asked, kept = list[tuple[str, bool]](), Kept()
    whole = team(CheckpointConfig(location="here", provider=kept)).kickoff(run_id="run")
    expected = ["research False", "plan True", "write True", "print False"]
    assert [one.raw for one in whole.tasks_output] == expected
    assert asked[3:] == [("plan", True), ("write", True), ("print", False)]
    entries = kept.entries
    for at in range(1, len(entries)):
        again = team(cut(entries, at)).kickoff(run_id="run")
        assert [one.raw for one in again.tasks_output] == expected, f"cut after commit {at}"


def test_a_place_that_is_not_finished_is_escalated():
    team, _ = crew("task:reserch")
    with pytest.raises(RecoveryEscalated, match="no finished step 'task:reserch' before the failure"):
        team.kickoff()


def test_the_budget_of_a_rollback_holds_for_the_crew():
    def reply(messages):
        asked.append(messages[1]["content"].partition(" ")[0])
        if asked[-1] == "write":
            raise LLMUnavailable("The plan has no end")
        return "done"

    asked: list[str] = []
    agent = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(reply))
    tasks = [Task(name=name, description=f"{name} it", expected_output="A text", agent=agent) for name in NAMES]
    policy = FailurePolicy(default=rollback_to_checkpoint("task:plan", max_rollbacks=2))
    with pytest.raises(RecoveryEscalated, match="budget of 2 remedies"):
        Crew(tasks=tasks, failure_policy=policy).kickoff()
    assert asked == ["research", "plan", "write", "write", "write"]


def test_a_flow_goes_on_behind_the_named_step_also_when_it_is_killed_anywhere():
    did = []

    def make(checkpoint):
        @step
        def first() -> str:
            did.append("first")
            return "one"

        @step
        def second(after: str) -> str:
            did.append("second")
            return f"{after} two"

        @step
        def third(after: str) -> str:
            did.append(f"third {bool(recovery_hint())}")
            if not recovery_hint():
                raise ValueError("made up")
            return f"{after} three"

        policy = FailurePolicy(default=rollback_to_checkpoint("step:first", max_rollbacks=1), max_recovery_attempts=1)

        @flow(checkpoint=checkpoint, failure_policy=policy)
        def work() -> str:
            return third(second(first()))

        return work

    kept = Kept()
    assert (
        make(CheckpointConfig(location="here", provider=kept, on_events=["flow_failed"])).kickoff(run_id="run")
        == "one two three"
    )
    whole = [*did]
    assert whole == ["first", "second", "third False", "second", "third True"]
    entries = kept.entries
    for at, store in ((at, store) for at in range(1, len(entries)) for store in (cut, _cut_and_compacted)):
        did.clear()
        assert make(store(entries, at)).kickoff(run_id="run") == "one two three", f"cut after commit {at}"
        assert did == whole[len(whole) - len(did) :], f"cut after commit {at}"
        done = [one for entry in entries[:at] for one in entry.commit.get("steps", ()) if not one.get("again")]
        ended = [one for one in done if one["address"].startswith("step:")]
        assert len(did) == len(whole) - len(ended), f"cut after commit {at}"


def test_a_call_that_may_happen_once_is_not_done_again_by_a_rollback_also_when_its_intent_was_compacted_away():
    did = []

    def make(checkpoint):
        @step
        def first() -> str:
            return "one"

        @step(effect="once")
        def pay(after: str) -> str:
            did.append("paid")
            return f"{after} paid"

        @step
        def again(after: str) -> str:
            return after

        @step
        def check(after: str, hint: str) -> str:
            if not hint:
                raise ValueError("made up")
            return after

        policy = FailurePolicy(default=rollback_to_checkpoint("step:first", max_rollbacks=1), max_recovery_attempts=1)

        @flow(checkpoint=checkpoint, failure_policy=policy)
        def work() -> str:
            paid = pay(first())
            for _ in range(3):
                again(paid)
            return check(paid, recovery_hint())

        return work

    kept = Kept()
    whole = make(CheckpointConfig(location="here", provider=kept, on_events=["flow_failed"])).kickoff(run_id="run")
    assert whole == "one paid"
    assert did == ["paid"]
    entries = kept.entries
    paid = next(entry.seq for entry in entries for one in entry.commit.get("steps", ()) if one["address"] == "step:pay")
    for at, store in ((at, store) for at in range(paid, len(entries)) for store in (cut, _cut_and_compacted)):
        assert make(store(entries, at)).kickoff(run_id="run") == "one paid", f"cut after commit {at}"
        assert did == ["paid"], f"cut after commit {at}"


def test_after_the_budget_the_failure_is_escalated_where_it_happened():
    policy = FailurePolicy(default=escalate("Ask Ada"))
    with pytest.raises(RecoveryEscalated, match="Ask Ada"):
        crew("task:plan", policy=policy)[0].kickoff()


def _cut_and_compacted(entries, at):
    return cut(compact_entries([], entries[:at], ()), at)
