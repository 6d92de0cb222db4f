"""A name of a run never leads to another run: not to one in a file of that name, nor to one whose checkpoint's id has it."""

from __future__ import annotations

import uuid

import pytest
from click.testing import CliRunner

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.cli.main import main
from crewlite.errors import ConfigError, RefError, Suspended
from crewlite.flow import ask, flow
from crewlite.testing import ScriptedLLM

FILES = ["order-7.db", "order-7.sqlite", "order-7.json", "ORDER.DB"]


def asks(location, run_id, question="ok?"):
    @flow(checkpoint=CheckpointConfig(location=location))
    def order() -> str:
        return ask(question, name="ok")

    with pytest.raises(Suspended):
        order.kickoff(run_id=run_id)
    return order


def crew_at(location):
    agent = Agent(role="Clerk", goal="answer", llm=ScriptedLLM(lambda messages: "done"))
    tasks = [Task(name="one", description="Do", expected_output="x", agent=agent)]
    return Crew(tasks=tasks, checkpoint=CheckpointConfig(location=location))


def answered(location, run_id):
    with History(location) as history:
        return history.runs(run_id)[0].waiting == []


def cli(*words):
    return CliRunner().invoke(main, ["checkpoint", *words], prog_name="crewlite")


@pytest.mark.parametrize("location", [".checkpoints", ".checkpoints.db"])
@pytest.mark.parametrize("name", FILES)
def test_a_run_named_like_a_file_is_reached_by_its_name(name, location):
    order = asks(location, name)
    with History(location) as history:
        assert history.run(name).run_id == history.run(f"{name}/main").run_id == name
        assert history.fork(name, branch="b.db").branch == "b.db"
        assert history.run(f"{name}/b.db").branch == "b.db"
        history.answer(name, "human:ok", "yes")
    assert order.kickoff(from_checkpoint=name) == "yes"


@pytest.mark.parametrize("location", [".checkpoints", ".checkpoints.db"])
def test_a_label_and_a_branch_may_be_named_like_a_file(location):
    crew_at(location).kickoff(run_id="one")
    with History(location) as history:
        history.label("one", "v1.json")
        assert history.fork("one", branch="b.db").branch == "b.db"
        assert history.run("b.db").branch == "b.db"
        for ref in ("@label:v1.json", "main@label:v1.json", "one@label:v1.json"):
            assert history.checkpoint(ref).label == "v1.json"
        assert history.run("one/b.db").branch == "b.db"


@pytest.mark.parametrize("name", FILES)
def test_the_command_reaches_a_run_named_like_a_file(name):
    asks(".checkpoints", name)
    for words in (["show", name], ["answer", name, "yes"], ["export", name, "out.json"], ["tail", name]):
        done = cli(*words)
        assert done.exit_code == 0, done.stderr
    assert answered(".checkpoints", name)
    assert cli("cancel", name).exit_code == 0
    assert cli("delete", name, "--yes").exit_code == 0


@pytest.mark.parametrize("location", [".checkpoints", "runs.db"])
def test_a_name_of_a_run_and_of_a_database_is_refused_and_changes_neither(location):
    asks("order-7.db", "other", "Pay 1000 EUR?")
    order = asks(location, "order-7.db")
    with History(location) as history:
        for act in (
            lambda: history.answer("order-7.db", "human:ok", "yes"),
            lambda: history.cancel("order-7.db"),
            lambda: history.run("order-7.db"),
            lambda: history.fork("order-7.db"),
            lambda: order.kickoff(from_checkpoint="order-7.db"),
        ):
            with pytest.raises(RefError, match=r"'order-7.db/main'.*'./order-7.db'"):
                act()
    for verb in (["answer", "order-7.db", "yes"], ["cancel", "order-7.db"], ["show", "order-7.db"]):
        done = cli("--location", location, *verb)
        assert done.exit_code == 1
        assert "order-7.db/main" in done.stderr
    assert not answered("order-7.db", "other")
    assert not answered(location, "order-7.db")
    with History(location) as history:
        history.answer("order-7.db/main", "human:ok", "yes")
    assert answered(location, "order-7.db")
    assert cli("answer", "./order-7.db", "yes").exit_code == 0
    assert answered("order-7.db", "other")


def test_the_command_takes_no_file_for_a_run_that_the_given_location_lacks():
    asks("order-7.db", "other")
    asks("runs", "one")
    done = cli("answer", "order-7.db", "yes", "--location", "runs")
    assert (done.exit_code, answered("order-7.db", "other")) == (1, False)
    assert "runs has no run 'order-7.db'. If you mean the file ./order-7.db, leave out --location" in done.stderr
    assert cli("show", "--location", "runs", "./order-7.db").exit_code == 0


@pytest.mark.parametrize(("here", "there"), [("a.db", "b.db"), ("a", "./b"), ("a.db", "./b"), ("a", "b.db")])
def test_a_ref_to_another_location_changes_no_run_of_the_same_name_here(here, there):
    asks(here, "one")
    asks(there, "one")
    with History(here) as history:
        for act in (lambda: history.answer(there, "human:ok", "yes"), lambda: history.run(there)):
            with pytest.raises(RefError, match="is stored at"):
                act()
    assert not answered(here, "one")


@pytest.mark.parametrize("location", [".checkpoints", "runs.db"])
def test_a_part_of_an_id_that_may_be_the_name_of_a_run_names_no_checkpoint(location):
    crew_at(location).kickoff(run_id="one")
    with History(location) as history:
        found = history.checkpoint("one").id
        for length in (1, 4, 7):
            with pytest.raises(RefError, match="names nothing"):
                history.cancel(found[-length:])
        assert history.checkpoint(found[-8:]).id == history.checkpoint(found).id == found


def test_a_name_that_no_run_can_have_is_refused_with_all_that_is():
    @flow(checkpoint=True)
    def order() -> int:
        return 1

    for name in ("main", "latest", ".", "a/b", "-a", "a..b", "", "a" * 101):
        with pytest.raises(ConfigError) as refused:
            order.kickoff(run_id=name)
        assert str(refused.value) == (
            f"run_id {name!r} is not a usable name. Wanted: 1 to 100 of A-Z a-z 0-9 . _ -, not starting with '-', no '..', "
            f"and not '.', 'latest' or 'main', which mean something else."
        )


@pytest.mark.parametrize("location", [".checkpoints", "runs.db"])
def test_a_run_is_looked_up_by_exactly_its_id(location):
    asks(location, "alice-7")
    name = uuid.uuid4()
    asks(location, str(name))
    with History(location) as history:
        branch = history.fork("alice-7", branch="b").branch
        assert history.run_by_id("alice-7").ref == "alice-7/main"
        assert history.run_by_id(name).run_id == str(name)
        for ref in (
            "latest",
            "main",
            branch,
            "alice-7/main",
            "alice-7~1",
            "@label:x",
            "",
            "../x",
            "a b",
            "alice",
            "-x",
        ):
            with pytest.raises(RefError, match="names no run"):
                history.run_by_id(ref)
