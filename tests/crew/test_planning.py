"""A plan for the tasks of a crew: made once, recorded, and given to each task, whose definition stays as it is."""

from __future__ import annotations

import json

import pytest

from crewlite import Agent, Crew, History, Task, event_bus
from crewlite.errors import BindMissing, ConfigError
from crewlite.events import StepCompletedEvent
from crewlite.testing import ScriptedLLM
from tests.parts import Stop, asked, look


def plan(*texts):
    return json.dumps({"plans": [{"task": number, "plan": text} for number, text in enumerate(texts, 1)]})


def crew_of(replies, planner, *, tasks=2, **fields):
    who = Agent(role="W", goal="g", llm=ScriptedLLM(replies), tools=[look])
    work = [Task(name=f"t{n}", description=f"Do {{what}} {n}", expected_output="x", agent=who) for n in range(tasks)]
    llm = planner if isinstance(planner, ScriptedLLM) else ScriptedLLM(planner)
    return Crew(tasks=work, planning=True, planning_llm=llm, **fields)


def test_each_task_is_given_its_part_of_the_plan():
    crew = crew_of(["a", "b"], [plan("first look", "then write")])
    crew.kickoff({"what": "it"})
    assert ["first look" in asked(crew)[0], "then write" in asked(crew)[0]] == [True, False]
    assert ["first look" in asked(crew)[1], "then write" in asked(crew)[1]] == [False, True]
    assert [task.description for task in crew.tasks] == ["Do {what} 0", "Do {what} 1"]
    [messages] = crew.planning_llm.calls
    assert "## Task 2\nDo it 1\nExpected output: x\nAgent: W. g\nTools: look" in messages[-1]["content"]


def test_a_plan_may_leave_tasks_out_and_has_to_have_its_shape():
    crew = crew_of(["a", "b"], ["no plan", plan("look")])
    crew.kickoff({"what": "it"})
    assert "look" in asked(crew)[0] and "A plan for it" not in asked(crew)[1]
    assert len(crew.planning_llm.calls) == 2


def test_it_is_one_recorded_step(stored):
    heard = []
    event_bus.on(StepCompletedEvent, lambda source, event: heard.append((event.address, event.kind)))
    crew = crew_of(["a", "b"], [plan("x", "y")], checkpoint=stored())
    result = crew.kickoff({"what": "it"}, run_id="r")
    assert heard == [("plan#1", "plan")]
    with History(stored().location, stored().provider) as history:
        assert {step.address: step.value for step in history.run("r").steps}["plan#1"] == ["x", "y"]
    assert crew.kickoff(run_id="r") == result
    assert result.token_usage.requests == 3


def test_a_resume_makes_no_other_plan_and_adds_it_once(on_disk):
    crew = crew_of(["a", Stop(), "b"], [plan("x", "the plan"), plan("another", "another")], checkpoint=on_disk())
    with pytest.raises(Stop):
        crew.kickoff({"what": "it"}, run_id="r")
    crew.kickoff(run_id="r")
    assert len(crew.planning_llm.calls) == 1
    assert asked(crew)[2] == asked(crew)[1]
    assert asked(crew)[2].count("the plan") == 1


def test_a_fork_may_edit_the_plan_and_runs_again_what_it_changes(stored):
    crew = crew_of(["a", "b", "c"], [plan("x", "y")], checkpoint=stored())
    crew.kickoff({"what": "it"}, run_id="r")
    result = crew.fork("r", branch="f", edits={"plan#1": ["x", "differently"]}).kickoff()
    assert [output.raw for output in result.tasks_output] == ["a", "c"]
    assert "differently" in asked(crew)[-1]


@pytest.mark.parametrize("edit", ["one text", ["only one"], ["x", 7]], ids=str)
def test_a_plan_that_is_edited_has_a_text_for_each_task(memory, edit):
    crew = crew_of(["a", "b"], [plan("x", "y")], checkpoint=memory())
    crew.kickoff({"what": "it"}, run_id="r")
    with pytest.raises(ConfigError, match="plan#1 is .*; wanted a list of 2 texts, one for each task"):
        crew.fork("r", edits={"plan#1": edit})


def test_a_fork_with_other_inputs_plans_anew(stored):
    crew = crew_of(["a", "b", "c", "d"], [plan("x", "y"), plan("v", "w")], checkpoint=stored())
    crew.kickoff({"what": "it"}, run_id="r")
    fork = crew.fork("r", branch="f", inputs={"what": "that"})
    assert [output.raw for output in fork.kickoff().tasks_output] == ["c", "d"]
    assert [output.raw for output in fork.kickoff().tasks_output] == ["c", "d"]
    assert "Do that 1" in crew.planning_llm.calls[1][-1]["content"]


def test_a_preview_knows_the_plan(stored):
    crew = crew_of(["a", "b"], [plan("x", "y")], checkpoint=stored())
    crew.kickoff({"what": "it"}, run_id="r")
    seen = crew.fork("r", branch="f", edits={"plan#1": ["x", "other"]}).preview()
    assert [(line.address, line.verdict) for line in seen] == [
        ("plan#1", "reused"),
        ("task:t0", "reused"),
        ("task:t1", "runs"),
    ]


def test_without_a_planning_llm_the_crews_model_plans_else_that_of_the_first_task():
    llm = ScriptedLLM([plan("x", "y"), "a", "b"])
    who = Agent(role="W", goal="g", llm=llm)
    tasks = [Task(description=f"Do {n}", expected_output="x", agent=who) for n in range(2)]
    assert Crew(tasks=tasks, planning=True).kickoff().raw == "b"
    planner = ScriptedLLM([plan("x", "y")])
    who = Agent(role="W", goal="g", llm=ScriptedLLM(["a", "b"]))
    tasks = [Task(description=f"Do {n}", expected_output="x", agent=who) for n in range(2)]
    assert Crew(tasks=tasks, planning=True, llm=planner).kickoff().raw == "b"


def test_it_is_rebuilt_with_its_model_bound_again(stored):
    with pytest.raises(Stop):
        crew_of([Stop()], ScriptedLLM([plan("x", "y")], model="wise"), checkpoint=stored()).kickoff(
            {"what": "it"}, run_id="r"
        )
    with pytest.raises(BindMissing, match="planning_llm"):
        Crew.from_checkpoint(stored(restore_from="r"), bind={"agents.W.llm": ScriptedLLM([]), "look": look})
    bind = {"agents.W.llm": ScriptedLLM(["a", "b"]), "planning_llm": ScriptedLLM([]), "look": look}
    again = Crew.from_checkpoint(stored(restore_from="r"), bind=bind)
    assert again.planning
    assert again.kickoff().raw == "b"
