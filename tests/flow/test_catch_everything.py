"""Code that catches every exception cannot swallow what has to end its run."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from crewlite import Agent, Crew, FailurePolicy, Task
from crewlite.errors import AnswerMisfit, InDoubt, NonDeterminism, Suspended
from crewlite.flow import ask, flow, step
from crewlite.recovery import retry
from crewlite.testing import ScriptedLLM


def test_code_that_catches_everything_cannot_swallow_a_doubt(memory, ran):
    careful = [True]

    @step(effect="once")
    def charge(n):
        ran.append(n)
        raise ConnectionError("no line")

    @flow(checkpoint=memory())
    def pay():
        for n in (1, 2):
            try:
                return charge(n)
            except Exception:
                if careful:
                    raise
        return "not paid"

    with pytest.raises(ConnectionError):
        pay.kickoff(run_id="one")
    careful.clear()
    with pytest.raises(InDoubt, match=r"step charge at step:charge with ..n.: 1. failed \(ConnectionError: no line\)"):
        pay.kickoff(run_id="one")
    assert ran == [1]
    assert pay.kickoff(run_id="one", answers={"step:charge": "receipt"}) == "receipt"


def test_a_doubt_of_a_separate_run_stops_the_run_around_it_whatever_that_catches(on_disk, ran):
    @step(effect="once")
    def charge():
        ran.append("charge")
        raise ConnectionError("no line")

    pay = flow(name="pay", checkpoint=on_disk())(lambda: charge())

    @step(retries=2)
    def pays():
        ran.append("try")
        return pay.kickoff(run_id="inner")

    @flow
    def in_its_body():
        try:
            return pay.kickoff(run_id="inner")
        except Exception:
            ran.append("caught")
        return "not paid"

    @flow
    async def awaited():
        try:
            return await pay.akickoff(run_id="inner")
        except Exception:
            ran.append("caught")
        return "not paid"

    @flow(failure_policy=FailurePolicy(default=retry(2)))
    def in_a_step():
        try:
            return pays()
        except Exception:
            ran.append("caught")
        return "not paid"

    with pytest.raises(ConnectionError):
        pay.kickoff(run_id="inner")
    for outer in (in_its_body, awaited, in_a_step):
        ran.clear()
        with pytest.raises(InDoubt, match="step charge at step:charge failed") as doubt:
            outer.kickoff()
        assert "run_id='inner'" in str(doubt.value), "it names the run that is to be settled"
        assert ran in (["caught"], ["try", "caught"]), "neither the call nor the step around it is tried again"
    assert pay.kickoff(run_id="inner", answers={"step:charge": "receipt"}) == "receipt"
    assert in_a_step.kickoff() == in_its_body.kickoff() == "receipt"


def test_code_that_catches_everything_cannot_swallow_that_the_record_is_of_other_questions(memory):
    asked = [1]

    @step
    def look(n):
        return n

    @step
    def fails():
        raise KeyError("x")

    @flow(checkpoint=memory())
    def careless():
        try:
            look(asked[0])
        except Exception:
            return "fallback"
        return fails() if asked == [1] else "looked"

    with pytest.raises(KeyError):
        careless.kickoff(run_id="one")
    asked[0] = 5
    with pytest.raises(NonDeterminism):
        careless.kickoff(run_id="one")


def test_code_that_catches_everything_cannot_swallow_an_edit_that_does_not_fit(memory):
    class Report(BaseModel):
        number: int

    agent = Agent(role="Writer", goal="write", llm=ScriptedLLM(lambda messages: '{"number": 1}'))
    task = Task(name="report", description="R", expected_output="x", agent=agent, output_pydantic=Report)
    crew = Crew(name="crew", tasks=[task])

    @flow(checkpoint=memory())
    def careless():
        try:
            return crew.kickoff()["report"].pydantic.number
        except Exception:
            return -1

    assert careless.kickoff(run_id="one") == 1
    at = "crew:crew/task:report"
    with pytest.raises(AnswerMisfit):
        careless.fork("one", branch="wrong", edits={at: "no json"}).kickoff()
    assert careless.fork("one/wrong", edits={at: {"number": 7}}).kickoff() == 7
    assert careless.fork("one/wrong", rerun=[at]).kickoff() == 1


@pytest.mark.usefixtures("no_terminal")
def test_code_that_catches_everything_cannot_swallow_the_wait(on_disk):
    @flow(checkpoint=on_disk())
    def careless():
        try:
            return ask("Really?")
        except Exception:
            return "nobody answered"

    with pytest.raises(Suspended):
        careless.kickoff(run_id="one")
    assert careless.kickoff(run_id="one", answers={"human#1": "yes"}) == "yes"
