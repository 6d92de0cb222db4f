"""What reads and changes a recorded run takes twice as much work for twice as many tasks."""

import itertools
import shutil

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.cli.checkpoint.words import sums_of
from crewlite.flow import flow, step
from crewlite.state import JsonProvider, SqliteProvider
from crewlite.testing import ScriptedLLM
from tests.growth import counted, faster_than_linear

pytestmark = pytest.mark.slow

FEW = 24
EXEMPT = ("/threading.py", "/concurrent/")
numbers = itertools.count()


def record(config, run_id, tasks):
    agent = Agent(role="Clerk", goal="write", llm=ScriptedLLM(lambda messages: f"{run_id} {next(numbers)}"))
    made = [
        Task(name=f"t{number}", description=f"Write {number}", expected_output="text", agent=agent, context=[])
        for number in range(tasks)
    ]
    Crew(tasks=made, checkpoint=config).kickoff(run_id=run_id)


@pytest.fixture(scope="module", params=[JsonProvider, SqliteProvider])
def recorded(request, tmp_path_factory):
    """A provider, and a directory with two runs in a location for each length."""
    directory = tmp_path_factory.mktemp("recorded")
    for tasks in (FEW, 2 * FEW):
        for run_id in ("a", "b"):
            record(CheckpointConfig(location=directory / f"{tasks}", provider=request.param()), run_id, tasks)
    return request.param(), directory


VERBS = {
    "steps": lambda history: [one.usage for one in history.run("a").steps],
    "checkpoints": lambda history: [one.usage for one in history.run("a").checkpoints()],
    "listed": lambda history: history.checkpoints(),
    "prompts": lambda history: [history.run("a").prompt("task:t0/llm#1"), history.run("a").usage_of("task:t0")],
    "diff": lambda history: str(history.diff("a", "b")),
    "page": lambda history: history.as_html("a"),
    "page of a diff": lambda history: history.diff("a", "b").as_html(),
    "fork": lambda history: history.fork("a@task:t3", edits={"task:t0": "other"}),
    "label": lambda history: history.label("a@task:t2", f"label-{next(numbers)}"),
    "back": lambda history: history.checkpoint("a~9"),
    "prune": lambda history: history.prune(keep_last=1, dry_run=True),
    "doctor": lambda history: history.doctor(),
    "rewind": lambda history: [one.status for one in history.rewind("a@task:t5").abandoned],
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_of_history_takes_work_in_proportion_to_the_run(verb, recorded, tmp_path):
    provider, directory = recorded
    shutil.copytree(directory, tmp_path / "copy")
    found = []
    for tasks in (FEW, 2 * FEW):
        with History(tmp_path / "copy" / f"{tasks}", provider) as history:
            VERBS[verb](history)  # what is made once is made
            found.append(counted(lambda: VERBS[verb](history)))
    grown = faster_than_linear(*found, items=2 * FEW)
    assert not [line for line in grown if not any(part in line for part in EXEMPT)]


def test_the_usage_of_steps_that_use_nothing_takes_work_in_proportion_to_the_run(tmp_path):
    config = CheckpointConfig(location=tmp_path)

    @step
    def one(number):
        return number

    @flow(checkpoint=config)
    def many(count):
        for number in range(count):
            one(number)

    found = []
    for count in (FEW, 2 * FEW):
        many.kickoff(count, run_id=f"r{count}")
        with History(config.location) as history:
            found.append(counted(lambda: sums_of(history.run(f"r{count}"))))  # noqa: B023 - it is called at once
    grown = faster_than_linear(*found, items=2 * FEW)
    assert not [line for line in grown if not any(part in line for part in EXEMPT)]
