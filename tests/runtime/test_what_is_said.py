"""What a resume says where it does what somebody may not have expected."""

from __future__ import annotations

import pytest

from crewlite import Agent, Crew, History, ToolCall, tool
from crewlite.errors import MaxIterations
from crewlite.flow import flow, sleep_for, step
from crewlite.testing import ScriptedLLM


def test_a_finished_run_named_by_an_older_checkpoint_says_that_its_result_answers_and_how_to_fork(
    make_crew, on_disk, caplog
):
    crew = make_crew(["a", "b", "c", "again"], checkpoint=on_disk())
    crew.kickoff(run_id="r")
    first, second, _ = History(on_disk().location).run("r").checkpoints()
    assert crew.kickoff(from_checkpoint=second.ref).raw == "c"
    assert f"checkpoint {second.id[-8:]} was named and task:t2 came after it" in caplog.text
    assert f"crew.fork('{second.id[-8:]}').kickoff()" in caplog.text
    assert isinstance(crew.fork(second.id[-8:]), Crew)
    caplog.clear()
    crew.kickoff(run_id="r")
    crew.kickoff(from_checkpoint="r@task:t2")
    assert "was named" not in caplog.text
    assert first.id not in caplog.text


def test_a_run_without_a_finished_step_is_not_said_to_have_recorded_none(on_disk):
    @step
    def load() -> None:
        raise ValueError("no data")

    @flow(name="count", checkpoint=on_disk())
    def count() -> None:
        load()

    with pytest.raises(ValueError, match="no data") as caught:
        count.kickoff(run_id="r")
    note = next(note for note in caught.value.__notes__ if note.startswith("Recorded: "))
    assert note.splitlines()[0] == f"Recorded: run 'r' in {on_disk().location}. The next kickoff begins anew."


def test_an_agent_that_begins_anew_is_not_said_to_reuse_what_has_finished(on_disk):
    @tool
    def look(where: str) -> str:
        """Look."""
        looked.append(where)
        return "rain"

    looked = []
    llm = ScriptedLLM(lambda messages: ToolCall("look", {"where": "out"}))
    agent = Agent(role="Scout", goal="look", llm=llm, tools=[look], max_iter=1, checkpoint=on_disk())
    for times in (1, 2):
        with pytest.raises(MaxIterations) as caught:
            agent.kickoff("Look", run_id="r")
        note = next(note for note in caught.value.__notes__ if note.startswith("Recorded: "))
        assert note.splitlines()[0].endswith("The next kickoff begins anew.")
        assert len(looked) == times


def test_a_note_that_has_no_text_does_not_replace_the_error(on_disk):
    class Mute:
        def __str__(self):
            raise ValueError("no text")

    class Noted(Exception):
        __notes__ = [Mute()]

    @flow(name="f", checkpoint=on_disk())
    def fails():
        raise Noted

    with pytest.raises(Noted):
        fails.kickoff(run_id="r")


def test_a_run_that_fails_on_a_recorded_result_says_the_line_that_does_the_step_again(on_disk):
    wrong = [True]

    @step
    def load() -> str:
        return "x" if wrong else "7"

    @flow(name="count", checkpoint=on_disk())
    def count() -> int:
        return int(load())

    with pytest.raises(ValueError, match="invalid literal") as caught:
        count.kickoff(run_id="r")
    [note] = caught.value.__notes__  # in its first life there is nothing to do again
    assert note.startswith("Recorded: 1 finished step of run 'r' in ")
    assert note.endswith("It is not run again.\nTo go on: run the same script again, or flow.kickoff(run_id='r')")
    wrong.clear()
    with pytest.raises(ValueError, match="invalid literal") as caught:
        count.kickoff(run_id="r")
    note, _ = caught.value.__notes__
    assert "flow.fork('r', rerun=['step:load']).kickoff()" in note
    assert count.fork("r", rerun=["step:load"]).kickoff() == 7


def test_a_timer_is_no_step_that_a_failed_run_advises_to_run_again(on_disk):
    @step
    def load() -> str:
        return "x"

    @flow(name="count", checkpoint=on_disk())
    def count(loads: bool) -> int:
        text = load() if loads else "x"
        sleep_for(0.01)
        return int(text)

    for run_id, loads in (("a", True), ("b", False)):
        for _ in range(2):
            with pytest.raises(ValueError, match="invalid literal") as caught:
                count.kickoff(loads, run_id=run_id)
        said = "\n".join(caught.value.__notes__)
        assert "timer#1" not in said
        assert ("flow.fork('a', rerun=['step:load']).kickoff()" in said) == loads
