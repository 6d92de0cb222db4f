"""What programs written for CrewAI read from definitions after a kickoff: each context sees its own."""

from __future__ import annotations

import asyncio
import threading
import weakref

import pytest
from pydantic import BaseModel, computed_field

from crewlite import Agent, Crew, Task, Usage
from crewlite.errors import ConfigError
from crewlite.testing import ScriptedLLM
from tests import children


class Report(BaseModel):
    title: str
    total: int


class Tide(BaseModel):
    hour: int


class Day(BaseModel):
    tides: list[Tide]
    first: Tide | None = None

    @computed_field
    def number(self) -> int:
        return len(self.tides)


def crew_of(says, **fields):
    agent = Agent(role="Clerk", goal="answer {x}", llm=ScriptedLLM(says))
    return Crew(tasks=[Task(name="count", description="Count {x}", expected_output="n", agent=agent, **fields)])


def echo(messages):
    return messages[-1]["content"].split("Count ")[1][:1]


def test_a_task_has_the_output_of_the_last_kickoff():
    crew = crew_of(echo)
    [task] = crew.tasks
    assert task.output is None
    assert crew.usage_metrics is None
    result = crew.kickoff({"x": 1})
    assert task.output is result.tasks_output[0]
    assert crew.usage_metrics == result.token_usage
    assert crew.usage_metrics.successful_requests == 1
    crew.kickoff({"x": 2})
    assert task.output.raw == "2"


@pytest.mark.parametrize("is_async", [False, True])
def test_after_kickoffs_for_each_input_a_crew_has_the_usage_of_all(is_async):
    crew, inputs = crew_of(echo), [{"x": 1}, {"x": 2}, {"x": "3"}]

    async def program():
        results = await crew.akickoff_for_each(inputs)
        return results, crew.usage_metrics

    results, usage = asyncio.run(program()) if is_async else (crew.kickoff_for_each(inputs), crew.usage_metrics)
    assert usage == sum((result.token_usage for result in results), Usage())
    assert usage.successful_requests == 3


def test_results_have_the_counts_as_a_dict_and_outputs_a_summary():
    crew = crew_of(echo)
    for result in (crew.kickoff({"x": 1}), crew.tasks[0].agent.kickoff("Count 1")):
        usage = result.token_usage
        assert result.usage_metrics == {
            "total_tokens": usage.total_tokens,
            "prompt_tokens": usage.prompt_tokens,
            "cached_prompt_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
            "reasoning_tokens": 0,
            "successful_requests": 1,
        }
    crew.kickoff({"x": "1 to ten and then on and on and on, until all are counted"})
    assert crew.tasks[0].output.summary == "Count 1 to ten and then on and on and..."


def test_threads_and_tasks_of_a_loop_see_what_they_kicked_off_themselves():
    crew = crew_of(echo)
    seen = {}

    def one(x):
        crew.kickoff({"x": x})
        barrier.wait(30)
        seen[x] = crew.tasks[0].output.raw

    barrier = threading.Barrier(3)
    threads = [threading.Thread(target=one, args=(x,)) for x in range(3)]
    [thread.start() for thread in threads]
    [thread.join(30) for thread in threads]
    assert seen == {0: "0", 1: "1", 2: "2"}
    assert crew.tasks[0].output is None

    async def other(x):
        await crew.kickoff_async({"x": x})
        await asyncio.sleep(0.05)
        return crew.tasks[0].output.raw

    async def both():
        return await asyncio.gather(other(3), other(4))

    assert asyncio.run(both()) == ["3", "4"]


def test_what_was_kept_goes_with_its_definition():
    crew = crew_of(echo)
    crew.kickoff({"x": 1})
    gone = weakref.ref(crew)
    del crew
    children.until_freed(gone)


@pytest.mark.parametrize("shape", ["output_pydantic", "output_json"])
def test_a_result_falls_back_to_its_structured_answer(shape):
    result = crew_of(['{"title": "Tides", "total": 3}'], **{shape: Report}).kickoff({"x": 1})
    assert result["title"] == "Tides"
    assert result["count"] is result.tasks_output[0], "a task of that name comes first"
    assert result.to_dict() == {"title": "Tides", "total": 3}
    assert result["count"]["total"] == 3
    with pytest.raises(KeyError, match="No task named .sum. .tasks: count.; its answer has title, total"):
        result["sum"]


def test_objects_inside_of_an_answer_stay_objects():
    says = '{"tides": [{"hour": 6}, {"hour": 18}]}'
    result = crew_of([says], output_pydantic=Day).kickoff({"x": 1})
    for found in (result, result["count"]):
        assert [tide.hour for tide in found["tides"]] == [6, 18]
        assert (found["first"], found["number"]) == (None, 2)
    assert result.to_dict()["tides"] == [{"hour": 6}, {"hour": 18}]
    assert crew_of([says], output_json=Day).kickoff({"x": 1})["tides"] == [{"hour": 6}, {"hour": 18}]


def test_a_result_without_structure_has_its_tasks_alone():
    result = crew_of(["x"]).kickoff({"x": 1})
    assert result.to_dict() == {}
    with pytest.raises(KeyError, match='No task named .sum. .tasks: count."$'):
        result["sum"]


def test_a_name_of_two_tasks_leads_to_neither():
    agent = Agent(role="R", goal="g", llm=ScriptedLLM(["one", "two"]))
    result = Crew(tasks=[Task(name="same", description=of, expected_output="e", agent=agent) for of in "ab"]).kickoff()
    with pytest.raises(KeyError, match="2 tasks are named 'same': take one by its place"):
        result["same"]


def test_an_agent_does_a_task_without_a_crew():
    llm = ScriptedLLM(["four", "five", "six"])
    agent = Agent(role="Clerk {x}", goal="answer", llm=llm)
    task = Task(description="Count {x} as {{y}}", expected_output="n")
    assert agent.execute_task(task) == "four"
    assert task.output.raw == "four"
    assert "Count {x} as {{y}}" in llm.calls[0][-1]["content"], "nothing is filled in"
    assert "Clerk {x}" in llm.calls[0][0]["content"]
    assert agent.execute_task(task, context="Three so far.") == "five"
    assert "Three so far." in llm.calls[1][-1]["content"]
    output = task.execute_sync(agent=agent)
    assert (output.raw, output.agent) == ("six", "Clerk {x}")
    with pytest.raises(ConfigError, match="has no agent: agent.execute_task"):
        task.execute_sync()
