"""CREWLITE_RUN_ID names the runs of a whole program. Its lives are in tests/project/test_killed.py."""

from __future__ import annotations

import itertools

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.errors import ConfigError
from crewlite.flow import flow
from crewlite.testing import ScriptedLLM

_names = (f"night-{number}" for number in itertools.count())


@pytest.fixture(autouse=True)
def name(monkeypatch):
    """The name of the program, which no other test has."""
    monkeypatch.setenv("CREWLITE_RUN_ID", found := next(_names))
    return found


def crew_of(says, **fields):
    agent = Agent(role="Clerk", goal="answer", llm=ScriptedLLM(says))
    names = ("one", "two")
    return Crew(
        tasks=[Task(name=name, description=f"{name} {{x}}", expected_output="n", agent=agent) for name in names],
        **fields,
    )


def ids():
    with History("./.checkpoints") as history:
        return sorted(run.run_id for run in history.runs())


def test_every_kickoff_of_a_program_has_a_name_of_its_own(name):
    @flow
    def double(x: int):
        return x * 2

    found = [crew_of(["a", "b"]).kickoff({"x": x}).run_id for x in (1, 2, 1)]
    assert found[2] == f"{found[0]}.2", "it was asked before"
    assert Agent(role="Clerk", goal="answer", llm=ScriptedLLM(["yes"])).kickoff("?").raw == "yes"
    assert double.kickoff(x=4) == 8
    crew_of(lambda messages: "m").kickoff_for_each([{"x": 1}, {"x": 2}])
    assert len(ids()) == 7
    assert all(one.startswith(f"{name}.") for one in ids())


def test_a_run_that_names_itself_and_one_that_is_not_to_be_kept_stay_as_they_are():
    assert crew_of(["a", "b"], checkpoint=True).kickoff({"x": 1}, run_id="mine").run_id == "mine"
    assert crew_of(["a", "b"], checkpoint=False).kickoff({"x": 1}).durability == "off"
    assert ids() == ["mine"]


def test_a_store_that_the_definition_names_is_the_one_that_is_used():
    crew_of(["a", "b"], checkpoint=CheckpointConfig(location="own.db")).kickoff({"x": 1})
    with History("own.db") as history:
        assert len(history.runs()) == 1


def test_a_name_that_is_none_is_told(monkeypatch):
    monkeypatch.setenv("CREWLITE_RUN_ID", "a/b")
    with pytest.raises(ConfigError, match="CREWLITE_RUN_ID: run_id .a/b. is not a usable name"):
        crew_of([]).kickoff({"x": 1})


def test_without_the_variable_nothing_is_kept(monkeypatch):
    monkeypatch.delenv("CREWLITE_RUN_ID")
    assert crew_of(["a", "b"]).kickoff({"x": 1}).durability == "off"
