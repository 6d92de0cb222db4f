"""A crew in JSON is run, resumed and forked by the name of its file, with the inputs that stand in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from crewlite.cli.main import main

PILOT = {"role": "Pilot of {port}", "goal": "Answer", "backstory": "b", "llm": "offline"}
ASK = {"name": "ask", "description": "What of {port}?", "expected_output": "A line", "agent": "pilot"}
CREW = {"name": "harbour", "agents": ["pilot"], "tasks": [ASK], "inputs": {"port": "Brest"}}


@pytest.fixture(autouse=True)
def harbour():
    Path("harbour/agents").mkdir(parents=True)
    Path("harbour/agents/pilot.jsonc").write_text(json.dumps(PILOT))
    Path("harbour/crew.jsonc").write_text(json.dumps(CREW) + "// the crew")


def do(*words):
    return CliRunner().invoke(main, words, prog_name="crewlite")


def test_it_runs_with_its_inputs_or_those_that_are_given():
    done = do("run", "harbour/crew.jsonc", "--run-id", "one")
    assert (done.exit_code, "crew harbour begins (run one)" in done.stderr) == (0, True)
    assert "Brest" in done.stderr
    assert "Calais" in do("run", "harbour/crew.jsonc", "--input", "port=Calais", "--run-id", "two").stderr
    assert json.loads(do("checkpoint", "show", "two", "--json").stdout)["inputs"] == {"port": "Calais"}


def test_it_is_resumed_and_forked_and_may_be_that_of_the_project():
    Path("pyproject.toml").write_text('[tool.crewlite]\ncrew = "harbour/crew.jsonc"\n')
    first = do("run", "--run-id", "one")
    assert first.exit_code == 0
    again = do("checkpoint", "resume", "one", "--crew", "harbour/crew.jsonc")
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    other = do("checkpoint", "fork", "one", "--input", "port=Calais", "--crew", "harbour/crew.jsonc")
    assert (other.exit_code, "Pilot of Calais" in other.stderr) == (0, True)


def test_mistakes_in_it_are_told_with_their_lines():
    Path("harbour/agents/pilot.jsonc").write_text(json.dumps(PILOT | {"tools": ["custom:tide_table"]}))
    done = do("run", "harbour/crew.jsonc")
    assert done.exit_code == 1
    assert (
        "harbour/agents/pilot.jsonc, line 1: tools of pilot names 'tide_table', but load_crew has no tool"
        in done.stderr
    )
    assert "nowhere.jsonc cannot be read" in do("run", "nowhere.jsonc").stderr
