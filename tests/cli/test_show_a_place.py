"""`crewlite checkpoint show` of a checkpoint shows the run as it was there, as a diff does."""

from __future__ import annotations

import json
import threading

import pytest
from click.testing import CliRunner

from crewlite import Agent, Crew, History, Task, event_bus
from crewlite.cli.main import main
from crewlite.events import BaseEvent
from crewlite.flow import flow, sleep_for
from crewlite.testing import ScriptedLLM
from tests import children


def crew_of(config):
    agent = Agent(role="W", goal="g", llm=ScriptedLLM(lambda messages: "x"))
    tasks = [Task(name=name, description=name, expected_output="x", agent=agent) for name in ("one", "two")]
    return Crew(tasks=tasks, checkpoint=config)


@pytest.fixture
def ask(on_disk):
    def ask(*words):
        done = CliRunner().invoke(
            main, ["checkpoint", *words, "--location", on_disk().location], prog_name="crewlite", catch_exceptions=False
        )
        assert done.exit_code == 0, done.stderr
        return done.stdout

    crew_of(on_disk()).kickoff(run_id="r")
    return ask


def first_of(config):
    with History(config.location) as history:
        history.label("r@task:one", "begun")
        return history.checkpoint("r@task:one").id


@pytest.mark.parametrize("name", ["an id", "a label", "a step back"])
def test_a_checkpoint_is_shown_as_its_place(ask, on_disk, name):
    first = first_of(on_disk())
    said = ask("show", {"an id": first[-8:], "a label": "r@label:begun", "a step back": "r~1"}[name])
    assert "unfinished, as it was there" in said
    assert "task:one" in said and "task:two" not in said
    assert "to try again from here  crewlite checkpoint fork " in said
    assert "the run as it is now    crewlite checkpoint show r --location" in said
    assert "resume" not in said


def test_a_timer_is_shown_with_how_long_it_waits_and_not_as_finished_before(ask, on_disk):
    @flow(checkpoint=on_disk())
    def naps():
        sleep_for(0)
        sleep_for(3 * 3600)

    begun = threading.Event()
    with event_bus.scoped():
        event_bus.on(BaseEvent, lambda source, event: event.address == "timer#2" and begun.set())
        at_work = naps.submit(run_id="n")
        assert begun.wait(children.PATIENCE)
    rows = [line.split()[:7] for line in ask("show", "n").splitlines() if line.strip().startswith("timer#")]
    with History(on_disk().location) as history:
        page = history.as_html("n")
    at_work.cancel()
    assert '<span class="state">waiting</span>' in page and "3 h 0 min" in page
    assert rows[0][:6] == ["timer#1", "timer", "finished", "1", "0", "ms"]
    assert rows[1] == ["timer#2", "timer", "waiting", "0", "3", "h", "0"]


def test_programs_are_told_of_the_place_too(ask, on_disk):
    first = first_of(on_disk())
    found = json.loads(ask("show", first, "--json"))
    assert (found["as_of"], found["status"], found["tasks"]) == (first, "unfinished", ["task:one"])
    assert {step["address"] for step in found["steps"]} == {"task:one", "task:one/llm#1"}
    assert "task:two" not in ask("show", first, "--events")
    now = json.loads(ask("show", "r", "--json"))
    assert "as_of" not in now and now["status"] == "finished"


def test_a_run_as_of_a_checkpoint_is_that_place_for_every_verb(config):
    crew_of(config()).kickoff(run_id="r")
    with History(config().location, provider=config().provider) as history:
        first, now = history.checkpoint("r@task:one"), history.run("r")
        then = history.run(first, as_of=True)
        assert (then.ref, then.status, then.tasks) == (f"r/main@{first.id}", "unfinished", ("task:one",))
        assert [one.id for one in then.checkpoints()] == [first.id]
        assert history.run(first).status == "finished"
        assert [step.address for step in history.diff(then, now).steps_with("only_b")] == [
            "",
            "task:two",
            "task:two/llm#1",
        ]
        assert not history.diff(then, first.ref)
        assert history.run(history.fork(then, branch="f")).tasks == ("task:one",)
        assert history.rewind(then).tasks == ("task:one",)
        assert history.run(first, as_of=True).rewinds == () and len(history.run("r").rewinds) == 1
