"""The crew with a model that says what it is told to say: no key, no network, no cost."""

import pytest

from crewlite import CheckpointConfig
from crewlite.testing import ScriptedLLM, ToolCall
from my_crew.crew import crew

ASKED = {"question": "When are spring tides?"}


def test_the_researcher_reads_and_the_writer_is_given_what_it_found():
    llm = ScriptedLLM([ToolCall("read_note", {"name": "tides.md"}), "- at new moon [tides.md]", "At new moon."])

    result = crew.with_model(llm).with_checkpoint(False).kickoff(inputs=ASKED)

    assert result.raw == "At new moon."
    _, read, written = llm.calls
    assert "spring tides" in read[-1]["content"]
    assert "- at new moon [tides.md]" in written[-1]["content"]


def test_a_run_that_failed_goes_on_and_asks_nothing_twice(tmp_path):
    llm = ScriptedLLM(["- at new moon [tides.md]", PermissionError("the key has expired"), "At new moon."])
    saved = crew.with_model(llm).with_checkpoint(CheckpointConfig(location=tmp_path))

    with pytest.raises(PermissionError):
        saved.kickoff(inputs=ASKED, run_id="tides")
    result = saved.kickoff(inputs=ASKED, run_id="tides")

    assert result.raw == "At new moon."
    assert len(llm.calls) == 3, "research was not done again"
