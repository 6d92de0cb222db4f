"""Whatever a crew does: killed after any commit, or with others at work in its store, it ends as it would have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from crewlite import Agent, CheckpointConfig, ConditionalTask, Crew, Task, TaskOutput
from crewlite.flow import flow
from crewlite.flow.function import FlowFunction
from crewlite.testing import ScriptedLLM
from tests import soak
from tests.beside import RUN, Beside
from tests.crews import CREWS, INPUTS, KICKOFFS, sequential
from tests.cuts import lives


def beside(name: str) -> Beside:
    def kickoff(setting: CheckpointConfig) -> str:
        return CREWS[name](checkpoint=setting).kickoff(run_id=RUN, **KICKOFFS[name]).raw

    return Beside(kickoff, "task_completed", "tool_usage_finished")


@pytest.fixture(autouse=True)
def beside_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # one of the crews reads a file and writes others


@soak.every(2)
@pytest.mark.parametrize("name", CREWS)
def test_killed_after_any_commit_it_ends_as_it_would_have(name, every):
    for whole, again in lives(CREWS[name], every=every, **KICKOFFS[name]):
        assert again.raw == whole.raw
        assert [_said(output) for output in again.tasks_output] == [_said(output) for output in whole.tasks_output]
        assert (again.token_usage, again.token_usage.by_agent) == (whole.token_usage, whole.token_usage.by_agent)


def _for_each(crew: Crew, run_id: str) -> list[Any]:
    topics = [{"topic": topic} for topic in ("tides", "winds", "stars")]
    return [
        _said(result.tasks_output[-1]) for result in crew.kickoff_for_each(topics, run_id=run_id, max_concurrency=2)
    ]


def _streamed(crew: Crew, run_id: str) -> Any:
    stream = crew.stream(INPUTS, run_id=run_id)
    assert list(stream)
    return _said(stream.result.tasks_output[-1])


@pytest.mark.parametrize("verb", [_for_each, _streamed])
def test_so_does_one_that_is_kicked_off_in_another_way(verb):
    for whole, again in lives(sequential, verb):
        assert again == whole


@pytest.mark.parametrize("name", ["side_by_side", "conditional", "delegating", "planned"])
def test_so_does_one_inside_a_flow(name):
    def made(checkpoint: CheckpointConfig) -> FlowFunction[..., Any]:
        @flow(checkpoint=checkpoint)
        def around() -> list[Any]:
            result = CREWS[name]().kickoff(**KICKOFFS[name])
            return [(output.raw, output.skipped) for output in result.tasks_output]

        return around

    for whole, again in lives(made, FlowFunction.kickoff):
        assert again == whole


def test_so_does_a_conversation():
    def clerk(checkpoint: CheckpointConfig) -> Agent:
        llm = ScriptedLLM(lambda messages: f"answer to {[message['content'] for message in messages[1:]]}")
        return Agent(role="Clerk", goal="g", llm=llm, checkpoint=checkpoint)

    def conversation(agent: Agent, run_id: str) -> list[str]:
        return [agent.kickoff(question, run_id=run_id).raw for question in ("When?", "Where?", "Why?")]

    for whole, again in lives(clerk, conversation):
        assert again == whole


@pytest.mark.parametrize("name", CREWS)
def test_whatever_others_do_in_its_store_meanwhile_it_ends_as_it_would_have(name):
    assert beside(name).broken_by_a_sample(seed=name) == []


@pytest.mark.soak
@pytest.mark.parametrize("name", CREWS)
def test_whatever_others_do_in_its_store_at_any_moment(name):
    assert beside(name).broken_anywhere() == []


ELSEWHERE = {
    *("Crew.checkpoint", "Agent.checkpoint", "Task.checkpoint"),  # all of them have one; crew/test_checkpoints.py
    *("Agent.config", "Task.config"),  # fields by another way
    "Crew.trained_agents_file",  # crew/test_trials.py
    *("Agent.verbose", "Crew.verbose", "Crew.output_log_file", "Crew.streamed"),  # they change what is shown alone
    "Task.output_file_anywhere",  # it changes what is allowed alone
    "Task.max_retries",  # the older name of guardrail_max_retries
}


def test_the_crews_have_every_setting_that_there_is():
    """A setting that is added has to be given to one of them."""
    given = {setting for make in CREWS.values() for setting in _settings(make())}
    there = {f"{kind.__name__}.{name}" for kind in (Crew, Agent, Task) for name in kind.model_fields}
    there.add("ConditionalTask.condition")
    assert there - given == ELSEWHERE & there


def _settings(crew: Crew) -> Iterator[str]:
    agents = {*crew.agents, *(task.agent for task in crew.tasks if task.agent)}
    yield from _set(crew, [Crew])
    for agent in [*agents, *([crew.manager_agent] if crew.manager_agent else [])]:
        yield from _set(agent, [Agent])
    for task in crew.tasks:
        yield from _set(task, [Task, ConditionalTask])


def _set(definition: Any, kinds: Iterable[type]) -> Iterator[str]:
    return (f"{kind.__name__}.{name}" for kind in kinds for name in definition.model_fields_set)


def _said(output: TaskOutput) -> tuple[object, ...]:
    return output.name, output.raw, output.pydantic, output.json_dict, output.agent, output.description, output.skipped
