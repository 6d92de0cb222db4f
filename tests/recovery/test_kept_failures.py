"""A failure that a model classifies is recorded before it is asked: a killed run does not make the failed call again."""

from __future__ import annotations

import pytest

from crewlite import Agent, CheckpointConfig, Crew, FailurePolicy, History, Task, ToolCall, durable, tool
from crewlite.errors import Suspended
from crewlite.flow import flow, recoverable, step
from crewlite.recovery import HybridClassifier, abort, replan, retry, rollback_to_checkpoint, suspend
from crewlite.state.journal.lineage import recorded
from crewlite.testing import ScriptedLLM
from tests.cuts import Kept


class Trial:
    """Work that fails a few times, each time in a way that only a model can name."""

    def __init__(self, strategy, failures=2):
        self.failed, self.judged, self.failures = 0, 0, failures
        classifier = HybridClassifier(ScriptedLLM(self._judge, model="judge"))
        self.policy = FailurePolicy(GOAL_DRIFT=strategy, classifier=classifier, max_recovery_attempts=9)

    def _judge(self, messages):
        self.judged += 1
        return "goal_drift: it wrote a poem"

    def fail(self, so_far):
        """Fail, unless there have been enough failures, as the record says."""
        if so_far < self.failures:
            self.failed += 1
            raise KeyError(f"verse {so_far}")


def model(trial):
    def reply(messages):
        trial.fail(len(durable.scope().past))
        return "tides"

    agent = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(reply))
    tasks = [Task(name="ask", description="Ask", expected_output="A word", agent=agent)]
    return lambda checkpoint: Crew(tasks=tasks, failure_policy=trial.policy, checkpoint=checkpoint)


def a_tool(trial):
    @tool
    def look() -> str:
        """Look."""
        trial.fail(len(durable.scope().past))
        return "fog"

    def reply(messages):
        said = [message["content"] for message in messages if message["role"] == "tool"]
        return said[-1] if said else ToolCall("look")

    agent = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(reply), tools=[look])
    tasks = [Task(name="ask", description="Ask", expected_output="A word", agent=agent)]
    return lambda checkpoint: Crew(tasks=tasks, failure_policy=trial.policy, checkpoint=checkpoint)


def a_step(trial):
    @step
    def work() -> str:
        trial.fail(len(durable.scope().past))
        return "tides"

    @step
    def around() -> str:
        return work()

    def made(checkpoint):
        @flow(checkpoint=checkpoint, failure_policy=trial.policy)
        def tides() -> str:
            return around()

        return tides

    return made


def a_function(trial):
    @step
    def work(hint: str) -> str:
        return "tides" if hint else "a poem"

    def made(checkpoint):
        @recoverable(policy=trial.policy, checkpoint=checkpoint)
        def tides(hint: str) -> str:
            said = work(hint)
            trial.fail(int(bool(hint)))
            return said

        return tides

    return made


def steps_of(provider):
    """The recorded steps about failures."""
    leaves = [at.rpartition("/")[2] for at in recorded(provider.open("here"), "r", "main").outcomes]
    return [
        "failed" if leaf.startswith("classify:failed-") else "judged" for leaf in leaves if leaf.startswith("classify:")
    ]


def attempts_of(run):
    return [(one.address, one.number, one.remedy) for one in run.attempts]


@pytest.mark.parametrize(
    ("make", "strategy", "failures", "result"),
    [
        (model, retry(max_attempts=3), 2, "tides"),
        (a_tool, retry(max_attempts=3), 2, "fog"),
        (a_tool, abort(), 9, "Tool look failed: KeyError: 'verse 0'"),
        (a_step, retry(max_attempts=3), 2, "tides"),
        (a_step, replan("not a poem"), 1, "tides"),
        (a_function, rollback_to_checkpoint(), 1, "tides"),
    ],
)
def test_a_failed_call_is_not_made_again_after_a_kill_at_any_commit(make, strategy, failures, result):
    kept, trial = Kept(), Trial(strategy, failures)
    made = make(trial)
    config = CheckpointConfig(location="here", provider=kept)
    assert str(made(checkpoint=config).kickoff(run_id="r")) == result
    with History("here", kept) as history:
        expected = attempts_of(history.run("r"))
    failed, judged = trial.failed, trial.judged
    assert failed == judged
    for count in range(1, len(kept.commits) + 1):
        provider = kept.cut(count)
        done = steps_of(provider)
        trial.failed = trial.judged = 0
        again = made(checkpoint=CheckpointConfig(location="here", provider=provider)).kickoff(run_id="r")
        assert str(again) == result
        if make is not a_function:  # whose own code fails again in the same way
            assert trial.failed == failed - done.count("failed"), f"killed after commit {count}"
        assert trial.judged <= judged - done.count("judged"), f"killed after commit {count}"
        with History("here", provider) as history:
            assert attempts_of(history.run("r")) == expected, f"killed after commit {count}"


class Odd(Exception):
    """An error that cannot be recorded as an object."""

    def __init__(self, text):
        super().__init__(text)
        self.live = lambda: text


def test_the_answer_of_a_person_counts_at_once_for_an_error_that_cannot_be_rebuilt():
    trial = Trial(suspend("What now?"))

    def reply(messages):
        if "almanac" in messages[-1]["content"]:
            return "11:40"
        trial.failed += 1
        raise Odd("no tables")

    def crew():
        agent = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(reply))
        tasks = [Task(name="ask", description="Ask", expected_output="A time", agent=agent)]
        return Crew(tasks=tasks, failure_policy=trial.policy, checkpoint=True)

    with pytest.raises(Suspended) as waits:
        crew().kickoff(run_id="r")
    [address] = waits.value.waiting
    assert crew().kickoff(run_id="r", answers={address: "replan: use the almanac"}).raw == "11:40"
    assert (trial.failed, trial.judged) == (1, 1)
    with History("./.checkpoints") as history:
        [failed, around] = history.run("r").attempts
    assert (failed.error_type, failed.message, around.error_type) == ("Odd", "no tables", "Odd")
    assert "raise Odd" in failed.traceback


def test_what_was_asked_about_a_failure_is_no_work_that_a_later_one_goes_back_to():
    seen = []

    class Watched:
        def decide(self, failure, past):
            seen.append((failure.last_good, [one.address for one in failure.trajectory]))
            return rollback_to_checkpoint().decide(failure, past)

    trial = Trial(Watched())

    @step
    def fetch() -> int:
        return 42

    @recoverable(policy=trial.policy, checkpoint=True)
    def tides(recovery) -> int:
        found = fetch()
        trial.fail(recovery.attempt - 1 if recovery else 0)
        return found

    assert tides.kickoff(run_id="r") == 42
    assert seen == [("step:fetch", ["step:fetch"])] * 2
