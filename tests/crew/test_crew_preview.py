"""What a crew would do is said beforehand, task by task, and no model is asked for it."""

from __future__ import annotations

import asyncio

import pytest

from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.errors import ConfigError, MissingInput, TaskDrifted, TaskGone
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM


class Locked(ScriptedLLM):
    """A model whose key is missing."""

    async def ready(self):
        raise AssertionError("nobody may ask for keys")


@pytest.fixture
def config():
    provider = InMemoryProvider()
    return lambda **fields: CheckpointConfig(location="x", provider=provider, **fields)


def team(config, life, llm=ScriptedLLM, a="about {topic}", names="abcd"):
    """a; b builds on a; c stands alone; d builds on b and c."""
    llm = llm(lambda messages: f"{messages[1]['content'].splitlines()[0]} in life {life}")
    who = Agent(role="Worker", goal="g", llm=llm)

    def task(name, text, *context):
        return Task(name=name, description=text, expected_output="x", agent=who, context=list(context))

    one = task("a", a)
    two, three = task("b", "b", one), task("c", "c")
    tasks = {"a": one, "b": two, "c": three, "d": task("d", "d", two, three)}
    return Crew(tasks=[tasks[name] for name in names], checkpoint=config), llm


def told(preview):
    return [f"{line.verdict}: {line.why}" for line in preview]


@pytest.fixture
def finished(config):
    team(config(), 1)[0].kickoff({"topic": "tides"}, run_id="r")
    return config


RECORDED, CHANGED = "reused: is recorded", "runs: asks another question than the recorded one"


def given(name):
    return f"may run: is given what task:{name} returns"


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({}, [RECORDED] * 4),
        ({"edits": {"task:a": "mine"}}, ["reused: was edited", CHANGED, RECORDED, given("b")]),
        ({"rerun": ["task:a"]}, ["runs: is to run again", given("a"), RECORDED, given("b")]),
        ({"inputs": {"topic": "moons"}}, [CHANGED, given("a"), RECORDED, given("b")]),
        ({"edits": {"task:c/llm#1": "x"}}, [RECORDED, RECORDED, "runs: a step inside it was changed", given("c")]),
        ({"edits": {"task:d": "mine"}}, [RECORDED, RECORDED, RECORDED, "reused: was edited"]),
    ],
    ids=str,
)
def test_each_task_is_told_with_why_and_the_kickoff_does_so(finished, change, wanted):
    forked = team(finished(), 2, Locked)[0].fork("r", branch="x", **change)
    preview = forked.preview()
    assert told(preview) == wanted
    assert [line.kind for line in preview] == ["task"] * 4
    assert asyncio.run(forked.apreview()) == preview
    crew, _ = team(finished(), 2)
    outputs = crew.kickoff(from_checkpoint="r/x").tasks_output
    again = {f"task:{output.name}" for output in outputs if output.raw.endswith("life 2")}
    inside = {"task:c"} if "task:c/llm#1" in change.get("edits", {}) else set()
    assert {line.address for line in preview if line.verdict == "runs"} - inside <= again
    assert again <= {line.address for line in preview if line.verdict != "reused"}


def test_inputs_may_be_tried_before_they_are_given(finished):
    forked = team(finished(), 2)[0].fork("r", branch="x")
    assert told(forked.preview({"topic": "moons"}))[0] == CHANGED
    assert told(forked.preview()) == [RECORDED] * 4
    with pytest.raises(MissingInput):
        team(finished(), 2, a="about {topic} in {year}")[0].preview(from_checkpoint="r/x")
    with pytest.raises(ConfigError, match="no recorded run to start from: call crew.fork"):
        team(finished(), 2)[0].preview({"topic": "moons"})


def test_tasks_that_were_never_done_are_told_to_the_last(finished):
    preview = team(finished(), 2)[0].fork("r/main@task:b", branch="x").preview()
    assert told(preview) == [RECORDED, RECORDED, "runs: was never recorded", "runs: was never recorded"]
    assert preview.ends == "", "nothing comes behind the tasks"
    assert str(preview).splitlines()[2] == "runs     task:c  was never recorded"


def test_what_a_kickoff_refuses_is_refused(finished):
    with pytest.raises(TaskGone):
        team(finished(), 2, names="abc")[0].preview(from_checkpoint="r")
    with pytest.raises(TaskDrifted):
        team(finished(on_drift="error"), 2, a="other {topic}")[0].preview(from_checkpoint="r")
    assert told(team(finished(on_drift="rerun"), 2, a="other {topic}")[0].preview(from_checkpoint="r"))[0] == CHANGED
