"""A preview of a flow that asks people says which questions wait, and which answers will be taken."""

from __future__ import annotations

import pytest

from crewlite.errors import Suspended
from crewlite.flow import ask, flow
from crewlite.state.reading.fitting import Typed
from tests.flow.previewed import tell, told
from tests.parts import history


def test_a_question_waits_unless_it_was_answered(memory):
    @flow(checkpoint=memory())
    def publish(text):
        return tell(text) if ask(f"Publish {text}?", bool, name="ok") else "dropped"

    publish.kickoff("a", run_id="r", answers={"human:ok": True})
    again = publish.fork("r", branch="x", rerun=["human:ok"]).preview()
    assert told(again) == {
        "human:ok": "runs: is to run again and waits for an answer",
        "step:tell": "reused: is recorded",
    }
    other = publish.fork("r", branch="y", inputs={"text": "b"}).preview()
    assert told(other)["human:ok"] == "runs: asks another question than the recorded one and waits for an answer"


def test_an_answer_that_was_given_meanwhile_is_to_one_question(memory):
    @flow(checkpoint=memory())
    def publish(text):
        return ask(f"Publish {text}?", bool, name="ok")

    with pytest.raises(Suspended):
        publish.kickoff("a", run_id="r")
    waits = told(publish.preview(from_checkpoint="r"))
    assert waits == {"human:ok": "runs: waits for an answer"}
    with history(memory()) as found:
        found.answer("r", "human:ok", True)
    assert told(publish.preview(from_checkpoint="r")) == {"human:ok": "reused: was answered"}
    assert told(publish.fork("r", branch="x", inputs={"text": "b"}).preview()) == waits


@pytest.mark.parametrize(
    ("typed", "wanted"), [('{"a": 1}', "reused: was answered"), ("a", "runs: waits for an answer")]
)
def test_an_answer_that_was_typed_ahead_is_read_as_the_run_will_read_it(memory, typed, wanted):
    broken = [True]

    @flow(checkpoint=memory())
    def counts():
        if broken:
            raise KeyError
        return ask("How many?", dict[str, int], name="count")

    with pytest.raises(KeyError):
        counts.kickoff(run_id="r")
    broken.clear()
    with history(memory()) as found:
        found.answer("r", "human:count", Typed(typed))
    assert told(counts.preview(from_checkpoint="r")) == {"human:count": wanted}
