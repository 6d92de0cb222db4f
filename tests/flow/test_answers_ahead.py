"""Answers given ahead of their questions: held, checked when they are asked, and told if nobody asks."""

from __future__ import annotations

import pytest

from crewlite import History
from crewlite.errors import AnswerRefused, RefError, Suspended
from crewlite.events import HumanFeedbackReceivedEvent, HumanFeedbackRequestedEvent
from crewlite.flow import Flow, ask, flow, start, step
from crewlite.testing import EventRecorder

pytestmark = pytest.mark.usefixtures("no_terminal")


@pytest.fixture
def two(on_disk):
    """A flow that asks twice."""

    @flow(checkpoint=on_disk())
    def two(second="Second?"):
        return ask("First?", name="first"), ask(second, int, name="second")

    return two


def test_a_run_lists_the_answers_that_it_has_not_used_yet(two):
    with pytest.raises(Suspended):
        two.kickoff(run_id="one")

    def unused():
        with History(two.checkpoint.location) as found:
            return [(one.address, one.question, one.value) for one in found.run("one").unused_answers]

    with History(two.checkpoint.location) as found:
        assert unused() == []
        found.answer("one", "human:second", 2)
        found.answer("one", "human:first", "a")
    assert unused() == [("human:second", None, 2), ("human:first", "First?", "a")]
    two.kickoff(run_id="one")
    assert unused() == []


def test_an_answer_given_ahead_at_kickoff_holds_for_later_lives(two):
    with pytest.raises(Suspended) as caught:
        two.kickoff(run_id="one", answers={"human:second": 2})
    assert list(caught.value.waiting) == ["human:first"]
    assert two.kickoff(run_id="one", answers={"human:first": "a"}) == ("a", 2)


def test_an_answer_may_be_recorded_ahead_and_replaced_until_it_is_heard(two):
    with pytest.raises(Suspended):
        two.kickoff(run_id="one")
    with History(two.checkpoint.location) as found:
        found.answer("one", "human:second", 1)
        found.answer("one", "human:second", 2)
        found.answer("one", "human:first", "a")
        assert two.kickoff(run_id="one") == ("a", 2)
        with pytest.raises(RefError):
            found.answer("one", "human:third", 1)


def test_an_answer_given_ahead_is_checked_when_its_question_is_asked(two):
    with pytest.raises(AnswerRefused, match="human:second"):
        two.kickoff(run_id="one", answers={"human:first": "a", "human:second": "many"})
    with History(two.checkpoint.location) as found:
        assert [item.address for item in found.run("one").waiting] == ["human:second"]
        found.answer("one", "human:second", 2)
    assert two.kickoff(run_id="one") == ("a", 2)


def test_a_question_that_was_answered_ahead_is_not_put_to_anybody(two):
    with EventRecorder() as heard:
        two.kickoff(run_id="one", answers={"human:first": "a", "human:second": 2})
    assert heard.of(HumanFeedbackRequestedEvent) == []
    assert [event.answer for event in heard.of(HumanFeedbackReceivedEvent)] == ["a", 2]


def test_an_answer_given_ahead_is_to_the_first_question_at_its_place_and_not_to_another_on_a_fork(two):
    answers = {"human:first": "a", "human:second": 2}
    assert two.kickoff("Pay 1?", run_id="one", answers=answers) == ("a", 2)
    with pytest.raises(Suspended, match="Pay 1000"):
        two.fork("one", branch="dear").kickoff("Pay 1000?")
    assert two.fork("one", branch="cheap").kickoff("Pay 2?", answers={"human:second": 3}) == ("a", 3)


def test_answers_that_nobody_asked_for_are_told_with_the_questions_there_are(two, caplog):
    with pytest.raises(Suspended):
        two.kickoff(run_id="one", answers={"human:frist": "a"})
    assert "an answer was given ahead to human:frist, but the run has not asked this" in caplog.text
    assert "the questions so far are human:first" in caplog.text
    caplog.clear()
    two.kickoff(run_id="one", answers={"human:first": "a", "human:second": 2})
    assert "human:frist" in caplog.text
    assert "human:first, human:second" in caplog.text


def test_an_address_that_can_be_no_question_is_an_error_at_once(two):
    for lives in ("first", "second"):
        with pytest.raises(RefError, match="no question"):
            two.kickoff(run_id="one", answers={"publish": True})
        if lives == "first":
            with pytest.raises(Suspended):
                two.kickoff(run_id="one")


def test_another_answer_to_an_answered_question_is_an_error_and_the_same_one_is_none(two):
    def kickoff(first):
        return two.kickoff(run_id="one", answers={"human:first": first})

    with pytest.raises(Suspended, match="Second"):
        kickoff("a")
    with pytest.raises(Suspended, match="Second"):
        kickoff("a")
    with pytest.raises(AnswerRefused, match="has an answer already"):
        kickoff("b")
    with History(two.checkpoint.location) as found:
        found.answer("one", "human:second", 2)
    with pytest.raises(AnswerRefused, match="has an answer already"):
        two.kickoff(run_id="one", answers={"human:second": 3})
    assert two.kickoff(run_id="one", answers={"human:second": 2}) == ("a", 2)
    assert kickoff("a") == ("a", 2)
    with pytest.raises(AnswerRefused, match="has an answer already"):
        kickoff("b")


def test_an_answer_ahead_to_the_name_alone_of_a_question_that_a_method_asks_is_warned_of(caplog):
    class Publish(Flow[dict]):
        checkpoint = True

        @start()
        def begin(self):
            return ask("Go?", bool, name="go")

    with pytest.raises(Suspended):
        Publish().kickoff(run_id="r")
    with History() as history:
        history.answer("r", "human:go", True)
        assert "'r' has not asked this; did you mean 'method:begin/human:go'?" in caplog.text


def test_an_answer_ahead_to_a_misspelt_address_is_warned_of_and_taken_back_by_a_rewind(caplog):
    @step
    def draft():
        return "draft"

    @flow(checkpoint=True)
    def sure():
        return draft(), ask("Sure?", name="sure-1"), ask("Sure?", name="sure-2")

    with pytest.raises(Suspended):
        sure.kickoff(run_id="r")
    with History() as history:
        history.answer("r", "human:sure-2", "yes")
        assert caplog.text == "", "the number is another one on purpose"
        history.answer("r", "human:suer-1", "yes")
        assert (doubt := "'r' has not asked this; did you mean 'human:sure-1'? A rewind takes it back") in caplog.text
        caplog.clear()
        with pytest.raises(Suspended):
            sure.kickoff(run_id="r", answers={"human:suer-1": "yes"})
        assert caplog.text.count(doubt) == 1
        history.rewind("r@step:draft")
        caplog.clear()
        with pytest.raises(Suspended):
            sure.kickoff(run_id="r")
        history.answer("r", "human:sure-1", "yes")
    with pytest.raises(Suspended):
        sure.kickoff(run_id="r")
    assert "suer" not in caplog.text
