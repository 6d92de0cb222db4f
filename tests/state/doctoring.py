"""What the tests of the doctor share: a run that is cut, what the doctor finds at its location, and its repair."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.testing import ScriptedLLM
from tests.parts import Stop


def crew_at(location, replies=lambda messages: "done", count=4, **fields):
    agent = Agent(role="Pilot", goal="pilot", llm=ScriptedLLM(replies))
    tasks = [
        Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=agent, context=[]) for n in range(count)
    ]
    return Crew(tasks=tasks, checkpoint=CheckpointConfig(location=str(location), **fields))


def going_on(location):
    """The crew with an answer to every question: task n says the n-th letter."""
    return crew_at(location, lambda messages: "abcd"[int(messages[1]["content"].split()[1])])


def run_at(location, run_id="r"):
    with pytest.raises(Stop):
        crew_at(location, ["a", "b", "c", Stop()]).kickoff(run_id=run_id)
    return location


def doctored(location, *, repair=False, provider=None):
    with History(location, provider) as history:
        return history.doctor(repair=repair)


def codes(findings):
    return [finding.what for finding in findings]


def diagnosis(findings):
    return [(finding.what, finding.where, finding.problem, finding.sound) for finding in findings]


def healed(location, *expected):
    """What the doctor says before, does, and says after: nothing. A repair finds what was found without one."""
    before = doctored(location)
    assert codes(before) == list(expected)
    assert not any(finding.repaired for finding in before)
    assert all("repair=True" in finding.remedy for finding in before)
    done = doctored(location, repair=True)
    assert diagnosis(done) == diagnosis(before)
    assert all(finding.repaired and finding.remedy.startswith("Done: ") for finding in done)
    assert doctored(location, repair=True) == []
    assert doctored(location) == []
    return done


def query(path, *statements):
    with contextlib.closing(sqlite3.connect(path)) as db:
        rows = [db.execute(statement).fetchall() for statement in statements]
        db.commit()
    return rows[-1]


def files(store):
    return sorted(store.glob("*_*.json"))


def lines(journal):
    return journal.read_bytes().splitlines(keepends=True)


def forked(location):
    run_at(location)
    with History(location) as history:
        history.fork("r@task:t0", branch="early")
        history.fork("r@task:t2", branch="late")
        history.fork("r/late", branch="later")
    return location
