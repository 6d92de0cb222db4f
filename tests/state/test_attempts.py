"""What history tells of each try: why it failed, when it began and ended, and what was paid inside it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from crewlite import Agent, Crew, History, LLMReply, Task, Usage
from crewlite.events import RecoveryStartedEvent, StepFailedEvent
from crewlite.flow import flow, step
from crewlite.testing import EventRecorder, ScriptedLLM


class Boom(Exception):
    """What goes wrong here."""


def paid(tokens):
    return LLMReply(text="a poem", usage=Usage(prompt_tokens=tokens, requests=1))


@pytest.fixture
def pipeline(stored):
    """Its step asks a crew twice a try, fails twice, and ends at the third; the flow fails once before all that."""
    llm = ScriptedLLM([paid(n) for n in (1, 2, 4, 8, 16, 32, 64)])
    poet = Agent(role="Poet", goal="rhyme", llm=llm)
    crew = Crew(name="poets", tasks=[Task(name="write", description="Write", expected_output="text", agent=poet)])
    tries, broken = [], [True]

    @step(retries=2)
    def verses():
        tries.append(1)
        crew.kickoff()
        crew.kickoff()
        if len(tries) < 3:
            raise Boom(f"try {len(tries)}")
        return "verses"

    @flow(checkpoint=stored())
    def pipeline():
        crew.kickoff()
        if broken:
            broken.clear()
            raise Boom("first life")
        return verses()

    return pipeline


def test_each_try_tells_why_it_failed_when_it_was_and_what_was_paid_inside_it(pipeline, stored):
    before = datetime.now(UTC)
    with EventRecorder() as heard:
        with pytest.raises(Boom, match="first life"):
            pipeline.kickoff(run_id="one")
        assert pipeline.kickoff(run_id="one") == "verses"
    after = datetime.now(UTC)
    with History(stored().location, stored().provider) as history:
        run = history.run("one")
        attempts = run.attempts
        (view,) = [view for view in run.steps if view.address == "step:verses"]
    assert [(a.address, a.number, a.message, a.usage.total_tokens) for a in attempts] == [
        ("", 1, "first life", 1),
        ("step:verses", 1, "try 1", 2 + 4),
        ("step:verses", 2, "try 2", 8 + 16),
    ]
    assert all(a.error_type == "Boom" and "Traceback" in a.traceback for a in attempts)
    assert view.attempts == tuple(attempts[1:])
    moments = [moment for a in (*attempts, view) for moment in (a.started_at, a.ended_at)]
    assert before <= moments[0] + timedelta(milliseconds=5), "times and durations come from different clocks"
    assert moments[-1] <= after
    assert all(one <= other + timedelta(milliseconds=5) for one, other in zip(moments, moments[1:], strict=False))
    assert all(moment.utcoffset() == timedelta(0) for moment in moments)
    again = heard.of(RecoveryStartedEvent)
    assert [(e.attempt, e.duration_ms) for e in again] == [(a.number, a.milliseconds) for a in attempts[1:]]


def test_the_times_of_tries_outlive_a_pruning(pipeline, stored):
    with pytest.raises(Boom):
        pipeline.kickoff(run_id="one")
    pipeline.kickoff(run_id="one")
    with History(stored().location, stored().provider) as history:
        before = {(a.address, a.number): a.ended_at for a in history.run("one").attempts}
        assert history.prune(keep_last=1).freed
        run = history.run("one")
        kept = {(a.address, a.number): a.ended_at for a in run.attempts}
        assert kept
        assert kept.items() <= before.items()
        assert history.run("one").steps[-1].ended_at > max(kept.values())


def test_a_step_that_gives_up_tells_its_last_try_and_how_long_that_took(stored):
    @step(retries=1)
    def fails():
        raise Boom

    with EventRecorder() as heard, pytest.raises(Boom):
        flow(name="pipeline", checkpoint=stored())(lambda: fails()).kickoff(run_id="two")
    (failed,) = heard.of(StepFailedEvent)
    with History(stored().location, stored().provider) as history:
        (last,) = [a for a in history.run("two").attempts if a.address == "step:fails" and a.final]
    assert (failed.attempt, failed.duration_ms) == (2, last.milliseconds)


def test_the_attempts_of_two_lives_count_on(stored):
    @step
    def fails():
        raise Boom

    broken = flow(name="broken", checkpoint=stored())(lambda: fails())
    for _ in range(2):
        with pytest.raises(Boom):
            broken.kickoff(run_id="three")
    with History(stored().location, stored().provider) as history:
        run = history.run("three")
    assert [a.number for a in run.attempts if a.address == ""] == [1, 2]
    assert [[a.number for a in view.attempts] for view in run.steps if view.address == ""] == [[1, 2]]


def test_a_steps_time_is_that_of_all_its_tries_and_kickoffs_wherever_it_is_told(stored):
    writer = Agent(role="Writer", goal="write", llm=ScriptedLLM(["facts", "text"]))
    broken = [True]

    def sound(output):
        if output.raw == "text" and broken:
            broken.clear()
            raise Boom("first life")
        return True, output

    tasks = [
        Task(name=name, description=name, expected_output="text", agent=writer, guardrail=sound) for name in ("a", "b")
    ]
    crew = Crew(tasks=tasks, checkpoint=stored())
    with pytest.raises(Boom):
        crew.kickoff(run_id="r")
    crew.kickoff(run_id="r")
    with History(stored().location, stored().provider) as history:
        steps = {step.address: step for step in history.run("r").steps}
        diff = history.diff("r", "r")
    inside = sum(step.milliseconds for at, step in steps.items() if "/" in at)
    tried = steps["task:b/guardrail#1"]
    assert steps[""].milliseconds == pytest.approx(inside, abs=1), "also what only the first kickoff has done"
    assert tried.milliseconds >= tried.attempts[0].milliseconds, "of all its tries"
    assert diff.a.seconds * 1000 == pytest.approx(steps[""].milliseconds)
    assert {step.address: step.a.milliseconds for step in diff.steps} == {
        at: step.milliseconds for at, step in steps.items()
    }
