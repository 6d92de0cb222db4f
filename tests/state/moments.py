"""Every moment of a verb: right before each of its looks at the store, another does something there."""

from __future__ import annotations

import itertools

import pytest

from crewlite import Agent, Crew, History, Task
from crewlite.errors import CrewliteError
from crewlite.testing import Interleaved, ScriptedLLM
from tests.parts import Stop

INPUTS = {"who": "x"}
RAW = [f"answer {n}" for n in range(3)]


def crew(config, *, stop_at=None, **fields):
    """Three tasks, each its own."""

    def reply(messages):
        number = int(messages[1]["content"].split()[1])
        return Stop() if number == stop_at else f"answer {number}"

    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(reply))
    tasks = [
        Task(name=f"t{n}", description=f"Do {n} for {{who}}", expected_output="text", agent=agent, context=[])
        for n in range(3)
    ]
    return Crew(tasks=tasks, checkpoint=config(**fields))


def cut(config, stop_at=2):
    with pytest.raises(Stop):
        crew(config, stop_at=stop_at).kickoff(INPUTS, run_id="r")


def history(config, provider=None):
    return History(config().location, provider or config().provider, make=True)


def raws(result):
    return [output.raw for output in result.tasks_output]


def every_moment(config, prepare, verb, act, *, every=1):
    """Do `verb` with a history in which others `act` right before its n-th look at the store, for every n.

    Or for each `every`-th of them.

    Gives what each of them came to: a value or an error.
    """
    for n in itertools.count(1, every):
        with history(config) as found:
            for run_id in {info.run_id for info in found.runs()}:
                found.delete(run_id)
        prepare()
        beside = Interleaved(config().provider, at=n, act=act)
        with history(config, beside) as found:
            try:
                told = verb(found)
            except CrewliteError as error:
                told = error
        assert beside.ended()
        assert not isinstance(beside.outcome, BaseException) or isinstance(beside.outcome, CrewliteError)
        yield told
        if beside.count < n:
            return


def is_sound(config):
    with history(config) as found:
        assert found.doctor() == []
        for run in found.runs():
            assert run.steps is not None
            run.checkpoints()


def resumed(config):
    assert raws(crew(config).kickoff(INPUTS, run_id="r")) == RAW
