"""What each task has used, with all that it led to: the same in every life of the run."""

from __future__ import annotations

import pytest

from crewlite import Agent, Crew, History, Task, ToolCall, Usage
from crewlite.flow import flow
from crewlite.testing import ScriptedLLM
from tests.parts import Stop


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


def test_the_usage_of_each_agent_is_told_by_its_role_in_every_life(on_disk):
    def parts(usage):
        return {role: part.requests for role, part in usage.by_agent.items()}

    crew = crew_of([ASK, "a", Stop(), "b"], checkpoint=on_disk(max_checkpoints=1))
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    result = crew.kickoff(run_id="r")
    assert parts(result.token_usage) == {"W": 3, "Helper": 1}
    assert [parts(output.token_usage) for output in result.tasks_output] == [{"W": 2, "Helper": 1}, {"W": 1}]
    parts_added = sum(result.token_usage.by_agent.values(), Usage())
    assert parts_added == result.token_usage.model_copy(update={"by_agent": {}})
    with History(crew.checkpoint.location, crew.checkpoint.provider) as history:
        history.prune(keep_last=1)
        assert history.run("r").usage == history.run("r").own_usage == result.token_usage
    assert crew.kickoff(run_id="r") == result

    @flow
    def twice():
        return parts(crew_of([ASK, "a", "b"]).kickoff().token_usage)

    assert twice.kickoff() == {"W": 3, "Helper": 1}


def test_a_fork_tells_what_it_has_paid_itself(on_disk):
    crew = crew_of([ASK, "a", "b", "c", "d"], checkpoint=on_disk())
    first = crew.kickoff(run_id="r")
    assert first.own_usage == first.token_usage
    forked = crew.fork("r@task:one", branch="other").kickoff()
    assert (forked.own_usage.requests, forked.token_usage.requests) == (1, 4)
    assert {role: part.requests for role, part in forked.own_usage.by_agent.items()} == {"W": 1}
    again = crew.fork("r/other@task:two", branch="third", rerun=["task:two"]).kickoff()
    assert (again.own_usage.requests, again.token_usage.requests) == (1, 5)
    with History(crew.checkpoint.location, crew.checkpoint.provider) as history:
        assert history.run("r/third").own_usage == again.own_usage
        assert history.run("r").own_usage == first.token_usage
