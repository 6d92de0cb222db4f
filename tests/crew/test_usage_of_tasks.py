"""What each task has used, with all that it led to: the same in every life of the run."""

from __future__ import annotations

import pytest

from crewlite import Agent, Crew, Task, ToolCall, Usage
from crewlite.flow import flow
from crewlite.testing import ScriptedLLM


class Stop(Exception):
    """Stands for a kill."""


def crew_of(replies, **fields):
    who = Agent(role="W", goal="g", llm=ScriptedLLM(replies), allow_delegation=True)
    helper = Agent(role="Helper", goal="g", llm=ScriptedLLM(["helped", "helped"]))
    tasks = [Task(name=name, description=f"Do {name}", expected_output="x", agent=who) for name in ("one", "two")]
    return Crew(agents=[who, helper], tasks=tasks, **fields)


ASK = ToolCall("Ask question to coworker", {"question": "?", "coworker": "Helper"})


def test_each_output_has_the_usage_of_its_task_and_of_whom_it_delegated_to():
    result = crew_of([ASK, "a", "b"]).kickoff()
    assert [output.token_usage.requests for output in result.tasks_output] == [3, 1]
    assert sum((output.token_usage for output in result.tasks_output), Usage()) == result.token_usage


def test_it_is_the_same_after_a_resume_and_in_the_stored_result(on_disk):
    whole = crew_of([ASK, "a", "b"]).kickoff()
    crew = crew_of([ASK, "a", Stop(), "b"], checkpoint=on_disk())
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    usages = [output.token_usage for output in whole.tasks_output]
    first = crew.kickoff(run_id="r")
    assert [output.token_usage for output in first.tasks_output] == usages
    assert crew.kickoff(run_id="r") == first


def test_a_callback_is_told_it_too():
    heard = []
    crew = crew_of([ASK, "a", "b"], task_callback=lambda output: heard.append(output.token_usage.requests))
    crew.kickoff()
    assert heard == [3, 1]


def test_and_so_it_is_inside_a_flow(on_disk):
    crew, cut = crew_of([ASK, "a", "b"]), [True]

    @flow(checkpoint=on_disk())
    def whole():
        result = crew.kickoff()
        if cut:
            cut.pop()
            raise Stop
        return [output.token_usage.requests for output in result.tasks_output]

    with pytest.raises(Stop):
        whole.kickoff(run_id="r")
    assert whole.kickoff(run_id="r") == [3, 1]
