"""What the panels show, without a terminal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from rich.text import Text

from crewlite import Agent, CheckpointConfig, History
from crewlite.errors import LLMUnavailable
from crewlite.flow import Flow, start
from crewlite.state.providers import BranchInfo
from crewlite.state.reading.steps import StepView
from crewlite.testing import ScriptedLLM
from crewlite.texts.wording import escaped_lines
from crewlite.tui.contents import Field, as_text, bar, outputs_of, timeline
from crewlite.tui.panels import outcome_of
from crewlite.tui.places import Line, Listing, Place
from crewlite.tui.reading import Reading
from crewlite.tui.words import line, shown
from crewlite.usage import Usage
from tests.tui.conftest import crew

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def branch(run_id, name="main", base=None, checkpoint=None):
    at = {"id": checkpoint} if checkpoint else None
    return BranchInfo(
        run_id,
        name,
        run_id,
        "x",
        "crew",
        "c",
        BEGAN.isoformat(),
        base and {"branch": base, "seq": 1, "sum": "", "place": at},
    )


def step(address, began, ended, value="x", kind="task", seq=1):
    times = BEGAN + timedelta(seconds=began), BEGAN + timedelta(seconds=ended)
    return StepView(address, kind, "finished", value, Usage(), (ended - began) * 1_000, (), None, None, *times, seq=seq)


def test_a_listing_begins_with_the_branches_that_nothing_in_it_is_the_parent_of():
    listing = Listing((branch("b"), branch("b", "x", "main", "c1"), branch("b", "y", "gone"), branch("a")))
    assert [str(one.text).split()[0] for one in listing.first()] == ["b", "b/y", "a"]
    checkpoint = Line(Place("b", "main", "c1"), Text(), opens=True, ids=frozenset({"c1"}))
    assert [one.place for one in listing.forks(checkpoint)] == [Place("b", "x")]
    assert [str(one.text).split()[0] for one in listing.below(Place("b", "main"), [])] == [
        "x"
    ]  # its checkpoint is gone
    *some, more = listing.first(2)
    assert len(some) == 2 and more.more and str(more.text) == "… 1 older run"


def test_the_timeline_leaves_out_the_time_between_kickoffs():
    day = 86_400
    steps = [step("task:a/llm#1", 0, 8), step("task:a", 0, 10), step("task:b", day, day + 10, seq=5)]

    class Run:
        definition = {"kind": "crew"}

    rows = {row.address: row for row in timeline(Run(), steps, {"": Usage(prompt_tokens=3)}, at=2)}
    assert [(round(rows[at].begins, 2), round(rows[at].ends, 2)) for at in ("task:a", "task:b")] == [(0, 0.5), (0.5, 1)]
    assert [rows[at].later for at in ("task:a", "task:b")] == [False, True]
    assert [(at, rows[at].tokens) for at in rows] == [("", 3), ("task:a", 0), ("task:a/llm#1", 0), ("task:b", 0)]
    assert bar(rows["task:b"], 10) == (" " * 5, "━" * 5, "")
    assert "".join(bar(rows["task:a/llm#1"], 10)).rstrip() == "━" * 4


@pytest.mark.parametrize(
    ("value", "text", "is_json"),
    [
        ("two\nlines", "two\nlines", False),
        ("\x1b[2J", '"\\u001b[2J"', True),
        (3, "3", True),
        ({"a": "é"}, '{\n  "a": "é"\n}', True),
    ],
)
def test_a_value_is_edited_as_text_or_as_json(value, text, is_json):
    assert as_text(value) == (text, is_json)


def test_an_edit_becomes_words_of_the_command_line():
    assert Field("task:a", "x", "--edit").word("a=b") == ["--edit=task:a=a=b"]
    assert Field("task:a", "x", "--edit").word("@me") == ['--edit=task:a:="@me"']
    assert Field("n", "3", "--input", is_json=True).word("4") == ["--input=n:=4"]
    with pytest.raises(ValueError, match="Expecting"):
        Field("n", "3", "--input", is_json=True).word("four")


def test_outputs_are_those_of_the_outermost_steps_that_had_finished():
    steps = [
        step("task:a/llm#1", 0, 1, {"text": "no"}, "llm"),
        step("task:a", 0, 1, {"raw": "yes"}),
        step("method:b", 1, 2, [1], "method", 9),
    ]
    assert [(one.name, one.text) for one in outputs_of(steps, at=5)] == [("task:a", "yes")]
    assert [(one.name, one.text, one.is_json) for one in outputs_of(steps)][1] == ("method:b", "[\n  1\n]", True)
    long, aside = outputs_of([step("task:a", 0, 1, "x" * 200_000), step("timer:t", 0, 1, None, "timer")])
    assert "200,000 characters" in long.fixed and len(long.text) < 30_000
    assert "cannot be edited" in aside.fixed


def test_the_outcome_of_a_step_tells_of_failed_attempts_and_their_models(tmp_path):
    llm = ScriptedLLM([LLMUnavailable("busy"), "done"], model="my/first")
    Agent(role="W", goal="g", llm=llm, checkpoint=CheckpointConfig(location=tmp_path)).kickoff("Well?", run_id="r")
    with History(tmp_path) as history:
        called = next(one for one in history.run("r").steps if one.attempts)
    assert outcome_of(called) == "try 1, my/first: LLMUnavailable: busy\n\ndone"


def test_no_control_character_and_no_markup_of_a_recorded_text_is_obeyed():
    assert escaped_lines("a\tb\n\x1b[2J\u202e") == "a    b\n\\x1b[2J\\u202e"
    assert str(line("[red]x[/red]\r")) == "[red]x[/red]\\r" and not line("[red]x[/red]").spans
    assert shown("x" * 30_000).endswith("10,000 more characters")


def test_forks_of_abandoned_checkpoints_stand_at_their_places(tmp_path):
    location = str(tmp_path / "kept.db")
    crew(location, "a", "b", "c").kickoff({"topic": "x"}, run_id="r")
    with History(location) as history:
        history.label("r@task:research", "good")
        history.rewind("r@task:research")
        history.fork("r@task:write", branch="written")
        history.fork("r@label:good", branch="again")
    reading = Reading(location)
    main = Place("r", "main")
    reading.listing()

    def tree(branch):
        below = reading.below(branch)
        return [(words(one), [words(fork) for fork in reading.listing().forks(one)]) for one in below]

    def words(one):
        return " ".join(str(one.text).split("  ")[:-1])

    assert tree(main) == [("● task:research good", ["again"]), ("○ abandoned:1", [])]
    assert tree(Place("r", "main", abandoned=1)) == [("● task:write", ["written"]), ("● task:review", [])]
    reading.close()


def test_the_beginning_of_a_flow_is_no_output(tmp_path):
    class Begun(Flow):
        @start()
        def begin(self):
            return self.state["one"]

    location = str(tmp_path / "kept.db")
    Begun(checkpoint=CheckpointConfig(location=location)).kickoff(inputs={"one": "1"}, run_id="f")
    reading = Reading(location)
    reading.listing()
    assert [field.name for field in reading.look(Place("f", "main")).outputs] == ["method:begin"]
    reading.close()
