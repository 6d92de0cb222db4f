"""A policy of the user's own chooses the remedy; the record keeps it, so that a later life goes on with it."""

from __future__ import annotations

import pytest

from crewlite import Agent, FailurePolicy, History
from crewlite.errors import ChangeUnused, ConfigError, LLMRejected, LLMUnavailable, RecoveryEscalated
from crewlite.events import FailureClassifiedEvent, LLMCallFailedEvent, RecoveryFailedEvent, RecoveryStartedEvent
from crewlite.flow import flow, step
from crewlite.recovery import Abort, Fallback, Retry, retry
from crewlite.testing import EventRecorder, ScriptedLLM, faults
from tests.flow.failing import Boom


class Own:
    """Applies what it is given, in order."""

    def __init__(self, *remedies):
        self.remedies, self.asked = list(remedies), []

    def decide(self, failure, past):
        self.asked.append((failure.kind, failure.address, past))
        return self.remedies.pop(0)


def shaky(policy):
    @step
    def work():
        raise Boom

    return flow(name="f", checkpoint=True, failure_policy=policy)(lambda: work()).kickoff(run_id="r")


def attempts():
    with History(".checkpoints") as history:
        return history.run("r").attempts


def test_its_remedies_are_applied_told_and_recorded_with_the_attempts():
    mine = Own(Retry(0), Retry(0.01), Abort())
    with EventRecorder() as events, pytest.raises(Boom):
        shaky(mine)
    first, second = Retry(0, "bug"), Retry(0.01, "bug")
    assert mine.asked == [
        ("bug", "step:work", ()),
        ("bug", "step:work", (first,)),
        ("bug", "step:work", (first, second)),
    ]
    assert [(e.remedy, e.delay) for e in events.of(RecoveryStartedEvent)] == [("retry", 0), ("retry", 0.01)]
    assert [(one.remedy, one.final) for one in attempts() if one.address] == [
        (first, False),
        (second, False),
        (Abort(), True),
    ]


def test_a_fallback_where_there_is_none_gives_up():
    with pytest.raises(Boom):
        shaky(Own(Fallback()))
    assert attempts()[0].remedy == Abort()


@pytest.mark.parametrize(
    ("policy", "match"),
    [(Own(None), "Own.decide returned None; wanted Retry"), (Own(), "Own.decide raised IndexError: pop from empty")],
)
def test_a_policy_that_fails_is_told_instead_of_the_error_that_it_was_asked_about(policy, match):
    with pytest.raises(ConfigError, match=match):
        shaky(policy)
    failed = attempts()[0]
    assert (failed.address, failed.error_type, failed.final) == ("step:work", "ConfigError", True)
    assert "Boom" in failed.traceback


def test_going_on_with_another_model_is_recorded_as_a_fallback():
    llm = ScriptedLLM([LLMRejected("first", 400, "no")], model="first")
    llm.fallbacks = (ScriptedLLM(["hello"], model="spare"),)
    with EventRecorder() as events:
        Agent(role="Pilot", goal="answer", llm=llm, checkpoint=True).kickoff("Who?", run_id="r")
    assert [one.remedy for one in attempts()] == [Fallback()]
    assert [(e.remedy, e.name) for e in events.of(RecoveryStartedEvent)] == [("fallback", "first")]


def test_what_is_told_of_recovery_names_the_model_that_was_asked_as_its_failure_does():
    llm = ScriptedLLM([LLMRejected("first", 400, "no")], model="first")
    llm.fallbacks = (ScriptedLLM(faults(["hello"], LLMUnavailable("503"), LLMUnavailable("503")), model="spare"),)
    policy = FailurePolicy(EXTERNAL_FAULT=retry(1))
    with EventRecorder() as events, pytest.raises(RecoveryEscalated):
        Agent(role="Pilot", goal="answer", llm=llm, failure_policy=policy, checkpoint=True).kickoff("Who?")
    told = (FailureClassifiedEvent, RecoveryStartedEvent, RecoveryFailedEvent)
    names = [(event.type, event.name) for event in events if isinstance(event, told) and event.kind == "llm"]
    assert names == [
        ("failure_classified", "first"),
        ("recovery_started", "first"),
        ("failure_classified", "spare"),
        ("recovery_started", "spare"),
        ("failure_classified", "spare"),
        ("recovery_failed", "spare"),
    ]
    assert events.of(LLMCallFailedEvent)[-1].model == "spare"


def test_a_policy_that_fails_tells_of_the_failure_it_was_asked_about():
    class Own:
        def decide(self, failure, past):
            raise KeyError(failure.message)

    @step
    def pay() -> None:
        raise ValueError("no money")

    @flow(failure_policy=Own())
    def travel() -> None:
        pay()

    with pytest.raises(ConfigError, match=r"Own.decide raised KeyError: 'no money'") as caught:
        travel.kickoff()
    assert repr(caught.value.__cause__.__context__) == "ValueError('no money')"


def test_the_record_shows_what_a_step_was_doing_when_it_failed_also_where_other_code_handles_an_error(on_disk):
    @step
    async def pay() -> None:
        try:
            raise ValueError("no money")
        except ValueError:
            raise KeyError("no card")  # noqa: B904 - it has a context, and no cause

    @flow(checkpoint=on_disk())
    async def travel() -> None:
        try:
            raise TimeoutError("no train")
        except TimeoutError:
            await pay()

    with pytest.raises(KeyError):
        travel.kickoff(run_id="r")
    with History(on_disk().location, on_disk().provider) as history:
        [failed, _] = history.run("r").attempts
    assert "ValueError: no money" in failed.traceback


def test_no_policy_is_asked_about_a_change_of_a_fork_that_nothing_has_requested():
    policy = Own()

    @step
    def number(n):
        return n

    @step
    def adds(n):
        return sum(number(one) for one in range(n))

    @flow(checkpoint=True, failure_policy=policy, retries=2)
    def sums(n):
        return adds(n)

    sums.kickoff(3, run_id="r")
    with pytest.raises(ChangeUnused):
        sums.fork("r", inputs={"n": 2}, edits={"step:adds/step:number#3": 7}).kickoff()
    assert policy.asked == []
