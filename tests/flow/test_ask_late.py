"""A question that nobody answers in time: what the error advises is true."""

from __future__ import annotations

import re
import time

import pytest

from crewlite.errors import AnswerTimeout, Suspended
from crewlite.flow import ask, flow, step

pytestmark = pytest.mark.usefixtures("no_terminal")


def test_who_was_not_answered_in_time_is_told_how_to_ask_again_and_how_to_answer(on_disk):
    def patient(name):
        return ask("Anybody?", name=name, timeout=0.5)

    inside = step(patient)
    asks = flow(lambda: patient("any"), name="asks", checkpoint=on_disk())
    asks_in_a_step = flow(lambda: inside("any"), name="asks_in_a_step", checkpoint=on_disk())
    for program in (asks, asks_in_a_step):
        with pytest.raises(Suspended):
            program.kickoff(run_id=program.name)
    time.sleep(0.5)

    for _ in range(2):
        with pytest.raises(AnswerTimeout) as late:
            asks.kickoff(run_id="asks")
        again, recorded = late.value.__notes__
        assert "To go on once the flow catches this: run the same script again" in recorded
        call, edits = re.fullmatch(
            r"To ask human:any again: (.*)\. To answer it, write (.*) in place of rerun", again
        ).groups()
        with pytest.raises(Suspended):
            eval(call, {"flow": asks})
        with_answer = re.sub(r"rerun=\S+]", edits.replace("...", "'me'"), call)
        assert eval(with_answer, {"flow": asks}) == "me"

    with pytest.raises(AnswerTimeout) as late:
        asks_in_a_step.kickoff(run_id="asks_in_a_step")
    assert [note for note in late.value.__notes__ if "To ask" in note] == []
    with pytest.raises(Suspended):  # as the note advises
        asks_in_a_step.kickoff(run_id="asks_in_a_step")


def test_a_question_of_many_lines_breaks_no_sentence_of_an_error(on_disk):
    text = "Publish this?\n\n- " + "\n- ".join(f"High water at {hour}" for hour in range(100))

    @flow(checkpoint=on_disk())
    def publish():
        return ask(text, name="publish", timeout=0.5)

    with pytest.raises(Suspended, match="waits for an answer: human:publish. To resume it, kick off again") as waits:
        publish.kickoff(run_id="r")
    assert str(waits.value).endswith(f", then kick off again.\nhuman:publish: {text}")
    assert waits.value.waiting == {"human:publish": text}
    time.sleep(0.5)
    with pytest.raises(
        AnswerTimeout, match=r"^Nobody answered Publish this\? - High water [^\n]*… within 0.5 s\. To go on"
    ):
        publish.kickoff(run_id="r")
