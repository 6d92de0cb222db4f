"""Answers belong to their questions: none is ever passed off as the answer to another."""

from __future__ import annotations

import re

import pytest

from crewlite import Agent, Crew, History, Task, ToolCall, event_bus, tool
from crewlite.errors import QuestionsChanged, RunMismatch, TaskDrifted, TaskGone
from crewlite.events import StepReplayedEvent
from crewlite.flow import flow
from crewlite.testing import ScriptedLLM
from tests.parts import Stop


def trip(city, setting, *, says=None, name="plan", tasks=1, **fields):
    guide = Agent(role="Guide", goal="plan", llm=ScriptedLLM(says or (lambda messages: f"A day in {city}")))
    made = [
        Task(
            name=f"{name}{n or ''}" if name else None,
            description=f"Plan day {n} in {city}",
            expected_output="text",
            agent=guide,
            context=[],
        )
        for n in range(tasks)
    ]
    return Crew(tasks=made, checkpoint=setting, **fields)


def test_keeping_an_answer_never_adopts_the_new_question(stored):
    trip("Rome", stored()).kickoff(run_id="t")
    for _ in range(2):
        kept = trip("Berlin", stored(on_drift="keep")).kickoff(run_id="t")
        assert (kept.raw, kept.drifted) == ("A day in Rome", ("task:plan",))
    with pytest.raises(TaskDrifted, match="answered 'Plan day 0 in Rome', and is asked 'Plan day 0 in Berlin'"):
        trip("Berlin", stored(on_drift="error")).kickoff(run_id="t")
    with pytest.raises(QuestionsChanged):
        trip("Berlin", stored()).kickoff(run_id="t")
    again = trip("Berlin", stored(on_drift="rerun")).kickoff(run_id="t")
    assert (again.raw, again.drifted) == ("A day in Berlin", ())
    assert trip("Berlin", stored()).kickoff(run_id="t").raw == "A day in Berlin"


@pytest.mark.parametrize("on_drift", ["rerun", "error"])
def test_a_run_cut_under_one_question_and_finished_under_another_still_knows_both(stored, on_drift):
    with pytest.raises(Stop):
        trip("Rome", stored(), says=["Rome 0", Stop()], tasks=2).kickoff(run_id="t")
    kept = trip("Berlin", stored(), says=["Berlin 1"], tasks=2).kickoff(run_id="t")
    assert [output.raw for output in kept.tasks_output] == ["Rome 0", "Berlin 1"]
    assert [output.description for output in kept.tasks_output] == ["Plan day 0 in Rome", "Plan day 1 in Berlin"]
    assert kept.drifted == ("task:plan",)
    assert trip("Berlin", stored(), says=[], tasks=2).kickoff(run_id="t") == kept, "the same command, the same result"
    later = trip("Berlin", stored(on_drift=on_drift), says=["Berlin 0"], tasks=2)
    if on_drift == "error":
        with pytest.raises(TaskDrifted, match="task:plan"):
            later.kickoff(run_id="t")
    else:
        result = later.kickoff(run_id="t")
        assert [output.raw for output in result.tasks_output] == ["Berlin 0", "Berlin 1"]
        assert result.drifted == ()


@pytest.mark.parametrize("on_drift", [None, "keep", "rerun", "error"])
def test_an_edit_that_is_undone_after_the_answer_was_kept_gives_the_stored_result(stored, on_drift):
    with pytest.raises(Stop):
        both_days("Rome", stored(), says=["Rome 0", Stop()]).kickoff(run_id="t")
    kept = both_days("Berlin", stored(), says=["all 1"]).kickoff(run_id="t")
    assert kept.drifted == ("task:plan",)
    undone = both_days("Rome", stored(on_drift=on_drift), says=[]).kickoff(run_id="t")
    assert ([output.raw for output in undone.tasks_output], undone.drifted) == (["Rome 0", "all 1"], ())
    with pytest.raises(QuestionsChanged, match="and is asked 'Plan a day in Oslo' now"):
        both_days("Oslo", stored(), says=[]).kickoff(run_id="t")


def both_days(city, setting, *, says):
    """A task about the city, and one that builds on it without naming it."""
    guide = Agent(role="Guide", goal="plan", llm=ScriptedLLM(says))
    texts = {"plan": f"Plan a day in {city}", "more": "Plan the other day"}
    tasks = [Task(name=name, description=text, expected_output="x", agent=guide) for name, text in texts.items()]
    return Crew(tasks=tasks, checkpoint=setting)


def test_a_kept_answer_is_described_by_what_it_answered(stored):
    trip("Rome", stored()).kickoff(run_id="t")
    [output] = trip("Berlin", stored(on_drift="keep")).kickoff(run_id="t").tasks_output
    assert (output.description, output.raw) == ("Plan day 0 in Rome", "A day in Rome")


def test_a_finished_run_asked_something_else_names_the_tasks_both_texts_and_the_ways_out(stored):
    trip("Rome", stored()).kickoff(run_id="t")
    with pytest.raises(RunMismatch) as caught:
        trip("Berlin", stored()).kickoff(run_id="t")
    error = caught.value
    assert isinstance(error, QuestionsChanged)
    assert error.changed == {"task:plan": "answered 'Plan day 0 in Rome', and is asked 'Plan day 0 in Berlin' now"}
    for way in ("another run_id", "on_drift='rerun'", "'keep'", "crew.fork('t', rerun=['task:plan'])"):
        assert way in str(error)


def test_the_fork_that_the_error_names_runs_what_has_changed_and_leaves_the_run_as_it_is(stored):
    trip("Rome", stored()).kickoff(run_id="t")
    berlin = trip("Berlin", stored())
    result = berlin.fork("t", rerun=["task:plan"]).kickoff()
    assert (result.raw, result.drifted) == ("A day in Berlin", ())
    assert trip("Rome", stored()).kickoff(run_id="t").raw == "A day in Rome"


def test_two_crews_of_unnamed_tasks_and_one_run_id_never_get_each_others_answers(stored):
    def crew(role, *descriptions, says=None):
        agent = Agent(role=role, goal="g", llm=ScriptedLLM(says or (lambda messages: f"answer of {role}")))
        tasks = [Task(description=text, expected_output="e", agent=agent) for text in descriptions]
        return Crew(tasks=tasks, checkpoint=stored())

    crew("Cook", "Find a recipe", "Write the menu").kickoff(run_id="daily")
    with pytest.raises(RunMismatch, match="no task name and no task text in common"):
        crew("Lawyer", "Read the contract", "Write the reply").kickoff(run_id="daily")
    with pytest.raises(Stop):
        crew("Cook", "Find a recipe", "Write the menu", says=["one", Stop()]).kickoff(run_id="cut")
    with pytest.raises(RunMismatch, match="no task name and no task text in common"):
        crew("Lawyer", "Read the contract", "Write the reply").kickoff(run_id="cut")


def test_a_run_with_nothing_recorded_goes_on_with_other_texts(stored):
    agent = Agent(role="Guide", goal="g", llm=ScriptedLLM([ValueError("no key"), "A day in Berlin"]))
    task = Task(description="Plan a day in Rom", expected_output="e", agent=agent)
    crew = Crew(tasks=[task], checkpoint=stored())
    with pytest.raises(ValueError, match="no key"):
        crew.kickoff(run_id="t")
    task.description = "Plan a day in Berlin"
    assert crew.kickoff(run_id="t").raw == "A day in Berlin"
    task.description = "Plan a day in Paris"
    with pytest.raises(RunMismatch, match=r"need names: Task\(name=...\)"):
        crew.kickoff(run_id="t")


@pytest.mark.parametrize("on_drift", ["keep", "rerun", "error"])
def test_a_run_of_other_tasks_is_refused_whatever_is_said_about_drift(stored, on_drift):
    trip("Rome", stored(), name=None).kickoff(run_id="t")
    with pytest.raises(RunMismatch, match="other tasks"):
        trip("Berlin", stored(on_drift=on_drift), name=None).kickoff(run_id="t")


def test_a_run_of_a_crew_with_another_chosen_name_is_refused(stored):
    trip("Rome", stored(), name="plan").kickoff(run_id="unnamed")
    trip("Rome", stored(), name="plan").model_copy(update={"name": "trips"}).kickoff(run_id="t")
    with pytest.raises(RunMismatch, match="is of crew 'trips', and this is crew 'meals'"):
        trip("Rome", stored()).model_copy(update={"name": "meals"}).kickoff(run_id="t")
    named_later = trip("Rome", stored()).model_copy(update={"name": "trips"})
    assert named_later.kickoff(run_id="unnamed").raw == "A day in Rome"


def test_the_log_and_an_event_tell_of_a_kept_answer_every_time(stored, caplog):
    trip("Rome", stored()).kickoff(run_id="t")
    heard = []
    event_bus.on(StepReplayedEvent, lambda source, event: heard.append((event.address, event.changed, event.drifted)))
    for _ in range(2):
        caplog.clear()
        trip("Berlin", stored(on_drift="keep", on_events=["step_replayed"])).kickoff(run_id="t")
        assert "task:plan is finished and kept, though it is asked something else now" in caplog.text
        assert "answered 'Plan day 0 in Rome', and is asked 'Plan day 0 in Berlin' now" in caplog.text
    assert heard == [("", ("question",), ("task:plan",))] * 2


def test_what_an_answer_answered_outlives_pruning_forks_and_export(on_disk, tmp_path):
    where = on_disk().location
    with pytest.raises(Stop):
        trip("Rome", on_disk(), says=["Rome 0", Stop()], tasks=2).kickoff(run_id="t")
    trip("Berlin", on_disk(max_checkpoints=1), says=["Berlin 1"], tasks=2).kickoff(run_id="t")
    with History(where) as history:
        history.prune(keep_last=1)
        history.export("t", tmp_path / "t.json")
    with History(str(tmp_path / "other"), make=True) as history:
        history.import_run(tmp_path / "t.json")
    elsewhere = on_disk().model_copy(update={"location": str(tmp_path / "other"), "on_drift": "keep"})
    forked = trip("Berlin", on_disk(), says=[], tasks=2).fork("t", branch="f")
    for result in (
        trip("Berlin", on_disk(), says=[], tasks=2).kickoff(run_id="t"),
        forked.kickoff(),
        trip("Berlin", elsewhere, says=[], tasks=2).kickoff(run_id="t"),
    ):
        assert [output.description for output in result.tasks_output] == ["Plan day 0 in Rome", "Plan day 1 in Berlin"]
        assert result.drifted == ("task:plan",)
    again = trip("Berlin", on_disk(on_drift="rerun"), says=["Berlin 0"], tasks=2).fork("t", branch="g").kickoff()
    assert [output.raw for output in again.tasks_output] == ["Berlin 0", "Berlin 1"]


def test_an_edited_answer_stands_for_the_question_as_it_is_now(stored):
    trip("Rome", stored()).kickoff(run_id="t")
    forked = trip("Berlin", stored()).fork("t", edits={"task:plan": "By hand"}).kickoff()
    assert (forked.raw, forked.drifted) == ("By hand", ())


@pytest.mark.parametrize("on_drift", ["keep", "rerun", "error"])
def test_an_answer_kept_in_a_crew_in_a_flow_is_known_for_one_in_every_later_life(stored, on_drift):
    def whole(city, says, then, **more):
        @flow(name="week", checkpoint=stored(**more))
        def week() -> list[str]:
            result = trip(city, None, says=says, tasks=2).kickoff()
            if then:
                raise then
            return [*(output.description for output in result.tasks_output), *result.drifted]

        return week

    with pytest.raises(Stop):
        whole("Rome", ["Rome 0", Stop()], None).kickoff(run_id="t")
    with pytest.raises(Stop):
        whole("Berlin", ["Berlin 1"], Stop()).kickoff(run_id="t")
    later = whole("Berlin", ["Berlin 0"], None, on_drift=on_drift)
    if on_drift == "error":
        with pytest.raises(TaskDrifted, match="task:plan"):
            later.kickoff(run_id="t")
    elif on_drift == "rerun":
        assert later.kickoff(run_id="t") == ["Plan day 0 in Berlin", "Plan day 1 in Berlin"]
    else:
        for _ in range(2):
            told = later.kickoff(run_id="t")
            assert told[:2] == ["Plan day 0 in Rome", "Plan day 1 in Berlin"]
            assert told[2].endswith("task:plan")
        with pytest.raises(TaskDrifted):
            whole("Berlin", [], None, on_drift="error").kickoff(run_id="t")
        again = whole("Berlin", ["Berlin 0"], None, on_drift="rerun").kickoff(run_id="t")
        assert again == ["Plan day 0 in Berlin", "Plan day 1 in Berlin"]


def test_a_call_that_may_happen_once_is_not_made_again_for_a_kept_answer_in_it(stored):
    booked = []

    def booking(city, says, llm, **more):
        @tool(effect="once")
        def book() -> str:
            """Book."""
            booked.append(city)
            return trip(city, None, says=says, tasks=2).kickoff().raw

        agent = Agent(role="Clerk", goal="g", llm=llm, tools=[book])
        task = Task(name="book", description="Book it", expected_output="x", agent=agent)
        return Crew(tasks=[task], checkpoint=stored(**more))

    booking("Rome", ["Rome 0", "Rome 1"], ScriptedLLM([ToolCall("book"), "booked"])).kickoff(run_id="t")
    assert booking("Rome", [], ScriptedLLM([]), on_drift="rerun").kickoff(run_id="t").raw == "booked"
    assert booked == ["Rome"]


def test_a_lone_agents_answer_belongs_to_its_goal(stored):
    def poet(goal, **more):
        return Agent(role="Poet", goal=goal, llm=ScriptedLLM(lambda messages: f"by {goal}"), checkpoint=stored(**more))

    first = poet("rhyming").kickoff("The sea", run_id="t")
    assert (first.raw, first.drifted) == ("by rhyming", False)
    with pytest.raises(QuestionsChanged, match="with the goal 'rhyming', and has 'prose' now"):
        poet("prose").kickoff("The sea", run_id="t")
    kept = poet("prose", on_drift="keep").kickoff("The sea", run_id="t")
    assert (kept.raw, kept.drifted) == ("by rhyming", True)
    with pytest.raises(TaskDrifted):
        poet("prose", on_drift="error").kickoff("The sea", run_id="t")
    again = poet("prose", on_drift="rerun").kickoff("The sea", run_id="t")
    assert (again.raw, again.drifted) == ("by prose", False)
    with pytest.raises(RunMismatch, match="agent 'Poet', and this is agent 'Cook'"):
        Agent(role="Cook", goal="prose", llm=ScriptedLLM(["x"]), checkpoint=stored()).kickoff(run_id="t")


def test_a_fork_that_would_be_refused_is_not_made_and_the_fork_that_is_advised_works(stored):
    booked = []

    @tool(effect="once")
    def book() -> str:
        """Book."""
        booked.append(1)
        return "booked"

    def booking(city):
        llm = ScriptedLLM(lambda messages: f"in {city}" if messages[-1]["role"] == "tool" else ToolCall("book"))
        agent = Agent(role="Clerk", goal="g", llm=llm, tools=[book])
        task = Task(name="book", description=f"Book {city}", expected_output="x", agent=agent)
        return Crew(tasks=[task], checkpoint=stored())

    booking("Rome").kickoff(run_id="t")
    changed = booking("Berlin")
    advice = "crew.fork('t', rerun=['task:book'], allow_effects=True).kickoff()"
    for act in (
        lambda: changed.fork("t"),
        lambda: changed.fork("t", allow_effects=True),
        lambda: changed.kickoff(run_id="t"),
        lambda: changed.preview(run_id="t"),
    ):
        with pytest.raises(QuestionsChanged, match=re.escape(f"fork it: {advice}.")):
            act()
    with History(stored().location, stored().provider) as history:
        assert [run.branch for run in history.runs()] == ["main"]
        history.fork("t", branch="made")
    assert eval(advice, {"crew": changed}).raw == "in Berlin"
    assert len(booked) == 2


def test_a_finished_task_that_is_gone_is_told_also_of_a_finished_run(stored):
    trip("Rome", stored(), tasks=2).kickoff(run_id="t")
    with pytest.raises(TaskGone):
        trip("Rome", stored(), tasks=1).kickoff(run_id="t")


@pytest.mark.parametrize("on_drift", [None, "keep", "rerun", "error"])
def test_a_task_that_is_gone_is_told_before_what_its_absence_changes(stored, on_drift):
    whole = trip("Rome", stored(), tasks=3)
    told = [task.with_(context=None) for task in whole.tasks]
    Crew(tasks=told, checkpoint=stored()).kickoff(run_id="t")
    with pytest.raises(TaskGone, match="'t' has finished task:plan1, but no task .* fork the run from a checkpoint"):
        Crew(tasks=[told[0], told[2]], checkpoint=stored(on_drift=on_drift)).kickoff(run_id="t")


def test_secrets_in_a_question_are_masked_in_what_is_recorded_and_told(on_disk, monkeypatch):
    monkeypatch.setenv("TRIP_API_KEY", "sk-very-secret-0123456789")
    trip("Rome sk-very-secret-0123456789", on_disk()).kickoff(run_id="t")
    with pytest.raises(QuestionsChanged) as caught:
        trip("Berlin sk-very-secret-0123456789", on_disk()).kickoff(run_id="t")
    assert "sk-very-secret" not in str(caught.value)
    assert trip("Rome sk-very-secret-0123456789", on_disk()).kickoff(run_id="t").drifted == ()
    unnamed = trip("Rome sk-very-secret-0123456789", on_disk(), name=None)
    assert unnamed.kickoff(run_id="u") == unnamed.kickoff(run_id="u"), "a masked question is known again"
