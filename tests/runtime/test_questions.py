"""What a kickoff does about a recorded run, decided from data alone."""

from __future__ import annotations

import pytest

from crewlite.runtime.questions import Comparison, Drifted, decide, have_in_common, is_another

PLAN = Drifted("task:plan", {"description": "Plan Rome"}, {"description": "Plan Berlin"})
SAME = Comparison()
MORE = Comparison(same_steps=False)
OTHER = Comparison((PLAN,))
BOTH = Comparison((PLAN,), same_steps=False)


@pytest.mark.parametrize(
    ("now", "on_drift", "same_result", "verdict"),
    [
        (SAME, None, True, "stored"),
        (SAME, "rerun", True, "stored"),
        (SAME, "error", True, "stored"),
        (SAME, None, False, "stored"),  # such as of a crew that was given a name since
        (MORE, None, False, "go on"),
        (MORE, "error", False, "go on"),
        (OTHER, None, False, "refused"),
        (OTHER, "keep", False, "stored"),
        (OTHER, "rerun", False, "go on"),
        (OTHER, "error", False, "drifted"),
        (OTHER, None, True, "stored"),  # it was finished by this very crew, which kept what was asked otherwise
        (OTHER, "keep", True, "stored"),
        (OTHER, "rerun", True, "go on"),
        (OTHER, "error", True, "drifted"),
        (BOTH, None, False, "refused"),
        (BOTH, "keep", False, "go on"),
        (BOTH, "rerun", False, "go on"),
        (BOTH, "error", False, "drifted"),
    ],
)
def test_what_becomes_of_a_finished_run_follows_from_what_is_asked_and_what_was_said(
    now, on_drift, same_result, verdict
):
    assert decide(now, on_drift, same_result=same_result) == verdict


@pytest.mark.parametrize(
    ("recorded", "now", "another"),
    [
        (("crew", "crew"), ("crew", "crew"), False),
        (("crew", "crew"), ("agent", "crew"), True),
        (("crew", "trips"), ("crew", "meals"), True),
        (("crew", "crew"), ("crew", "meals"), False),  # a default name tells nothing
        (("crew", "trips"), ("crew", "crew"), False),
    ],
)
def test_a_run_is_anothers_by_its_kind_or_by_a_name_that_was_chosen(recorded, now, another):
    assert is_another(recorded, now, "crew") is another


@pytest.mark.parametrize(
    ("recorded", "now", "common"),
    [
        ([("plan", "Plan it")], [("plan", "Plan Berlin")], True),
        ([(None, "Plan it")], [("plan", "Plan it")], True),
        ([(None, "Plan {city}", "Plan Rome")], [(None, "Plan Rome", "Plan Rome")], True),
        ([(None, "Find a recipe"), (None, "Write the menu")], [(None, "Read the contract")], False),
        ([(None, "a")], [(None, "b")], False),
    ],
)
def test_tasks_have_something_in_common_by_a_name_or_a_question(recorded, now, common):
    assert have_in_common(recorded, now) is common


@pytest.mark.parametrize(
    ("drifted", "text"),
    [
        (PLAN, "answered 'Plan Rome', and is asked 'Plan Berlin' now"),
        (Drifted("t", {}, {"description": "new"}), "is asked 'new' now, and answered something else"),
        (
            Drifted("t", {"description": "same"}, {"description": "same"}),
            "is asked 'same' of another agent, in another shape or on another basis now",
        ),
        (
            Drifted("", {"goal": "rhyme", "backstory": "b"}, {"goal": "write", "backstory": "b"}),
            "answered with the goal 'rhyme', and has 'write' now",
        ),
    ],
)
def test_a_difference_is_told_in_words(drifted, text):
    assert str(drifted) == text


def test_of_long_questions_the_part_is_shown_where_they_differ():
    long = "word " * 100
    text = str(Drifted("t", {"description": f"{long} Rome {long}"}, {"description": f"{long} Berlin {long}"}))
    assert "Rome" in text
    assert "Berlin" in text
    assert len(text) < 250
