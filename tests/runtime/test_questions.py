"""What a kickoff does about a recorded run, decided from data alone."""

from __future__ import annotations

import pytest

from crewlite.runtime.steps.questions import (
    Comparison,
    Drifted,
    decide_result,
    drifted,
    have_in_common,
    is_another,
)
from crewlite.state.format.outcome import Outcome
from crewlite.state.format.record import Record

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
    assert decide_result(recorded(), now, "asked" if same_result else "other", on_drift)[0] == verdict


def recorded(result=True, drifted=(), inputs_changed_at=None):
    """A record as far as its result goes: what it answered, and whether its inputs are others since."""
    record = Record()
    record.run = {"inputs": {"city": "Berlin"}}
    if result:
        about = {"kind": "crew", "attempt": 1, "value": None, "digest": "", "usage": None, "provenance": {}, "at": ""}
        record.outcomes[""] = Outcome(address="", fingerprint="asked", milliseconds=0, seq=5, drifted=drifted, **about)
    if inputs_changed_at:
        record.earlier_inputs = ((inputs_changed_at, {"city": "Rome"}),)
    return record


EARLIER = Drifted("task:plan", {}, {})


@pytest.mark.parametrize(
    ("record", "now", "asked", "on_drift", "verdict", "kept"),
    [
        (recorded(result=False), OTHER, "asked", "error", "go on", ()),  # there is no result that could answer
        (recorded(), SAME, "asked", None, "stored", ()),
        (recorded(), SAME, "other", None, "stored", ()),
        (recorded(), OTHER, "other", None, "refused", (PLAN,)),
        (recorded(), OTHER, "asked", None, "stored", (PLAN,)),
        (recorded(), OTHER, "other", "keep", "stored", (PLAN,)),
        (recorded(inputs_changed_at=6), OTHER, "other", "error", "go on", ()),  # a fork asks anew
        (recorded(inputs_changed_at=6), OTHER, "asked", "error", "drifted", (PLAN,)),
        (recorded(inputs_changed_at=4), OTHER, "other", "error", "drifted", (PLAN,)),  # it answered these inputs
        (recorded(drifted=("task:plan",)), SAME, "asked", None, "stored", (EARLIER,)),  # kept when it was made
        (recorded(drifted=("task:plan",)), SAME, "asked", "error", "drifted", (EARLIER,)),
        (recorded(drifted=("task:plan",)), SAME, "asked", "rerun", "go on", (EARLIER,)),
        (
            recorded(drifted=("task:plan",)),
            Comparison(compared=frozenset({"task:plan"})),
            "asked",
            "error",
            "stored",
            (),
        ),
    ],
)
def test_a_recorded_result_answers_what_it_was_asked(record, now, asked, on_drift, verdict, kept):
    assert decide_result(record, now, asked, on_drift) == (verdict, kept)


@pytest.mark.parametrize(
    ("asked", "edited", "found"),
    [("asked", False, None), ("other", True, None), ("other", False, Drifted("", {"goal": "old"}, {"goal": "new"}))],
)
def test_a_finished_step_has_drifted_if_it_is_asked_something_else_and_was_not_edited(asked, edited, found):
    record = recorded()
    record.outcomes[""] = record.outcomes[""]._replace(edited=edited)
    assert drifted(record, "", asked, {"goal": "new"}, lambda: {"goal": "old"}) == found
    assert drifted(record, "task:unknown", asked, {"goal": "new"}, dict) is None


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
        (Drifted("t", {}, {"description": "new"}), "is asked 'new' now, and answered another question"),
        (
            Drifted("t", {"description": "same"}, {"description": "same"}),
            "is asked 'same' as before, but something else has changed: its agent, context, output type, knowledge, input files, "
            "guardrails, markdown or condition",
        ),
        (
            Drifted("t", {"description": "same", "role": "A"}, {"description": "same", "role": "A"}),
            "is asked 'same' as before, but something else has changed: its context, output type, knowledge, input files, "
            "guardrails, markdown or condition",
        ),
        (
            Drifted("", {"goal": "rhyme", "backstory": "b"}, {"goal": "write", "backstory": "b"}),
            "answered with the goal 'rhyme', and has 'write' now",
        ),
        (Drifted("", {"goal": "g"}, {"goal": "g", "knowledge": "1"}), "answered without knowledge, unlike now"),
        (
            Drifted("", {"goal": "g", "knowledge 'a'": "1"}, {"goal": "g", "knowledge 'b'": "1"}),
            "answered with knowledge 'a' and without knowledge 'b', unlike now",
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
