"""A person chooses the remedy: the run waits for the answer, goes on behind it, and asks nothing twice."""

from __future__ import annotations

import pytest

from crewlite import Agent, CheckpointConfig, Crew, FailurePolicy, Task
from crewlite.errors import AnswerRefused, ConfigError, RecoveryEscalated, Suspended
from crewlite.flow import flow, recovery_hint, step
from crewlite.recovery import suspend
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, cut, entries_of


def asked(crew, **kickoff):
    """The address and the text of the question with which the run stops."""
    with pytest.raises(Suspended) as waits:
        crew.kickoff(run_id=RUN, **kickoff)
    ((address, question),) = waits.value.waiting.items()
    return address, question


def tides(calls, checkpoint=True):
    """A crew whose model fails until its prompt holds a hint of a person."""

    def reply(messages):
        calls.append(len(calls))
        if "use the almanac" in messages[-1]["content"]:
            return "11:40"
        raise KeyError("almanac")

    pilot = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(reply))
    ask = Task(name="ask", description="When?", expected_output="A time", agent=pilot)
    return Crew(tasks=[ask], failure_policy=FailurePolicy(default=suspend()), checkpoint=checkpoint)


def test_the_answer_of_a_person_is_the_remedy_and_tells_the_next_attempt_what_to_do():
    calls = []
    address, question = asked(tides(calls))
    assert question == (
        "task:ask/llm#1 failed in try 1: KeyError: 'almanac'. What next? (retry, replan, rollback, escalate, abort; "
        "a hint or a reason may follow, as in 'replan: use the archive')"
    )
    assert asked(tides(calls)) == (address, question)
    with pytest.raises(AnswerRefused, match="wanted one of retry, replan"):
        tides(calls).kickoff(run_id=RUN, answers={address: "pray"})
    assert tides(calls).kickoff(run_id=RUN, answers={address: "replan: use the almanac"}).raw == "11:40"


def test_a_run_that_waits_for_a_remedy_may_be_killed_at_any_commit():
    setting = CheckpointConfig(location="here", provider=InMemoryProvider())
    address, _ = asked(tides([], setting))
    answers = {address: "replan: use the almanac"}
    whole = tides([], setting).kickoff(run_id=RUN, answers=answers)
    entries = entries_of(setting)
    assert len(entries) > 6
    for at in range(1, len(entries)):
        again = tides([], cut(entries, at)).kickoff(run_id=RUN, answers=answers)
        assert (again.raw, again.token_usage) == (whole.raw, whole.token_usage), f"cut after commit {at}"


def test_each_failure_is_a_question_of_its_own_and_escalation_ends_it():
    @step
    def count() -> int:
        raise KeyError("x" if not recovery_hint() else "y")

    @flow(checkpoint=True, failure_policy=FailurePolicy(default=suspend("The count fails.")))
    def counted() -> int:
        return count()

    first, question = asked(counted)
    assert question.startswith("The count fails. What next? (retry, ")
    second, _ = asked(counted, answers={first: "retry"})
    assert first != second
    with pytest.raises(RecoveryEscalated, match="nobody can count"):
        counted.kickoff(run_id=RUN, answers={second: "escalate: nobody can count"})


def test_what_works_by_the_time_of_the_answer_needs_no_remedy():
    calls = []

    @step
    def fetch() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("no line")
        return "fetched"

    @flow(checkpoint=True, failure_policy=FailurePolicy(default=suspend()))
    def fetching() -> str:
        return fetch()

    address, _ = asked(fetching)
    assert fetching.kickoff(run_id=RUN, answers={address: "abort"}) == "fetched"


def test_a_run_in_which_nobody_could_ever_answer_says_so():
    with pytest.raises(ConfigError, match="nobody could ever answer"):
        tides([], checkpoint=None).kickoff()
