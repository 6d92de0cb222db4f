"""`kickoff(resume=True)`: go on with the newest unfinished run, else begin one."""

from __future__ import annotations

import asyncio
import sys
from uuid import uuid4

import pytest

from crewlite import Agent, Crew, History, Task
from crewlite.errors import ConfigError
from crewlite.flow import flow, step
from crewlite.state import RuntimeState
from crewlite.testing import ScriptedLLM
from tests import children
from tests.parts import Stop


def report(says, config, name="write", **fields):
    agent = Agent(role="Clerk", goal="g", llm=ScriptedLLM(says))
    first = Task(name="read", description="Read {topic}", expected_output="x", agent=agent)
    second = Task(name=name, description="Write", expected_output="x", agent=agent)
    return Crew(tasks=[first, second], checkpoint=config, **fields)


TIDES, MOONS = {"topic": "tides"}, {"topic": "moons"}


def test_resume_goes_on_with_an_unfinished_run_and_begins_one_if_there_is_none(config):
    with pytest.raises(Stop):
        report(["one", Stop()], config()).kickoff(TIDES, resume=True)
    second = report(["two"], config()).kickoff(TIDES, resume=True)
    assert [output.raw for output in second.tasks_output] == ["one", "two"]
    third = report(["three", "four"], config()).kickoff(TIDES, resume=True)
    assert [output.raw for output in third.tasks_output] == ["three", "four"], "tomorrow's run is a new one"
    assert third.run_id != second.run_id


def test_resume_takes_the_newest_of_this_definition_with_these_inputs(config):
    def cut(topic, said, **fields):
        with pytest.raises(Stop):
            report([said, Stop()], config(), **fields).kickoff({"topic": topic})

    cut("tides", "old")
    cut("tides", "new")
    cut("moons", "of the moon")
    cut("tides", "of another crew", name="rhyme")
    result = report(["end"], config()).kickoff(TIDES, resume=True)
    assert [output.raw for output in result.tasks_output] == ["new", "end"]
    result = report(["end"], config()).kickoff(TIDES, resume=True)
    assert [output.raw for output in result.tasks_output] == ["old", "end"]
    result = report(["begun", "end"], config()).kickoff({"topic": "winds"}, resume=True)
    assert [output.raw for output in result.tasks_output] == ["begun", "end"]


def test_agents_and_flows_resume_likewise_and_so_do_the_async_verbs(config):
    done = []

    @step
    def fetch(page):
        done.append(page)
        return page

    broken = [True]

    @flow(checkpoint=config())
    def survey(page: str) -> str:
        text = fetch(page)
        if broken:
            raise Stop
        return text

    with pytest.raises(Stop):
        survey.kickoff("a", resume=True)
    broken.clear()
    assert survey.submit("a", resume=True).result() == "a"
    assert done == ["a"]
    assert asyncio.run(survey.akickoff("b", resume=True)) == "b"

    def poet(*says):
        return Agent(role="Poet", goal="g", llm=ScriptedLLM(says), checkpoint=config())

    with pytest.raises(Stop):
        poet(Stop()).kickoff("The sea", resume=True)
    first = History(config().location, config().provider).runs()[0].run_id
    assert asyncio.run(poet("waves").akickoff("The sea", resume=True)).run_id == first
    assert poet("more").kickoff("The sea", resume=True).run_id != first


def test_of_two_that_resume_at_once_one_has_the_run_and_the_other_begins_a_new_one(config):
    with pytest.raises(Stop):
        report(["one", Stop()], config()).kickoff(TIDES)
    slow = ScriptedLLM(lambda messages: "slow", delay=0.3)

    async def both():
        def crew():
            made = report([], config())
            agent = Agent(role="Clerk", goal="g", llm=slow)
            return made.model_copy(
                update={"tasks": tuple(task.model_copy(update={"agent": agent, "context": ()}) for task in made.tasks)}
            )

        return await asyncio.gather(*(crew().akickoff(TIDES, resume=True) for _ in range(2)))

    results = asyncio.run(both())
    assert len({result.run_id for result in results}) == 2
    assert sorted(result.tasks_output[0].raw for result in results) == ["one", "slow"]


NIGHTLY = """
import sys, time
from crewlite import CheckpointConfig
from crewlite.flow import flow, step

@step
def work(number):
    time.sleep(0.4)
    return number

@flow(checkpoint=CheckpointConfig(location=sys.argv[1]))
def night() -> int:
    value = work(1)
    if sys.argv[2] == "dies":
        import os; os._exit(1)
    return work(value + 1)

handle = night.submit(resume=True)
print(handle.run_id, handle.result())
"""


def test_two_nightly_processes_that_start_at_once_never_share_a_run(on_disk, tmp_path):
    script = tmp_path / "night.py"
    script.write_text(NIGHTLY)
    where = on_disk().location

    def start(how):
        return children.Child([sys.executable, str(script), where, how], stdout=children.PIPE, text=True)

    first = start("dies")
    first.communicate()
    assert first.returncode == 1
    both = [start("lives") for _ in range(2)]
    told = [process.communicate()[0].split() for process in both]
    assert [words[1] for words in told] == ["2", "2"]
    assert told[0][0] != told[1][0]
    with History(where) as history:
        assert sorted(run.status for run in history.runs()) == ["finished", "finished"]


def test_resume_is_refused_where_it_could_mean_nothing(config):
    crew = report(["one", "two"], config())
    with pytest.raises(ConfigError, match="Leave resume=True out"):
        crew.kickoff(TIDES, run_id="r", resume=True)
    with pytest.raises(ConfigError, match="Leave resume=True out"):
        crew.kickoff(TIDES, from_checkpoint="latest", resume=True)
    with pytest.raises(ConfigError, match="wanted True or False"):
        crew.kickoff(TIDES, resume="r")
    with pytest.raises(ConfigError, match="checkpoint=True"):
        report(["one", "two"], None).kickoff(TIDES, resume=True)


def test_a_damaged_run_does_not_keep_the_nightly_job_from_running(on_disk, caplog):
    with pytest.raises(Stop):
        report(["one", Stop()], on_disk()).kickoff(TIDES, run_id="old")
    with pytest.raises(Stop):
        report(["two", Stop()], on_disk().model_copy(update={"location": "other"})).kickoff(TIDES, run_id="r")
    journal = "other/journal/r/main.jsonl"
    with open(journal, "r+b") as file:
        text = file.read()
        file.seek(text.index(b"two"))
        file.write(b"TWO")
    result = report(["a", "b"], on_disk().model_copy(update={"location": "other"})).kickoff(TIDES, resume=True)
    assert result.run_id != "r"
    assert "run r cannot be read and is skipped" in caplog.text


def test_a_uuid_names_a_run_by_its_text_and_a_number_is_told_that_a_text_is_wanted(config):
    name = uuid4()
    first = report(["one", "two"], config()).kickoff(TIDES, run_id=name)
    assert first.run_id == str(name)
    assert report([], config()).kickoff(run_id=str(name)) == first
    each = report(lambda messages: "x", config()).kickoff_for_each([TIDES, MOONS], run_id=name)
    assert [result.run_id for result in each] == [f"{name}.0", f"{name}.1"]
    with History(config().location, config().provider) as history:
        assert history.run(name).run_id == str(name)
        history.delete(name)
    with pytest.raises(ConfigError, match=r"run_id is 42, which is int; wanted a text, such as run_id='42'"):
        report([], config()).kickoff(TIDES, run_id=42)
    with RuntimeState.open(name, provider=config().provider, location=config().location) as state:
        assert state.run_id == str(name)
