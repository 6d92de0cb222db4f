"""What the terminal view does about slips: wrong answers and labels, forks that would fail, edits that nobody used."""

from __future__ import annotations

import pytest

from crewlite import CheckpointConfig, History
from crewlite.errors import Suspended
from crewlite.flow import ask, flow
from tests.tui.conftest import crew, drive

SMALL = (80, 24)


def focused(view):
    return type(view.app.focused).__name__


def kept(tmp_path):
    """The location of a finished run of three tasks."""
    location = str(tmp_path / "kept")
    crew(location, "a", "b", "c").kickoff(inputs={"topic": "llamas"}, run_id="first")
    return location


async def at_the_outcomes(view):
    await view.sees("● task:research", "● task:review")
    await view.press("4")
    await view.sees("task:write", "enter edits it")


def test_enter_and_tab_lead_to_the_editor_of_an_outcome_at_a_checkpoint_and_at_the_head(tmp_path):
    location = kept(tmp_path)

    async def play(view):
        await at_the_outcomes(view)
        await view.press("enter", "down", "enter")
        await view.until(lambda: focused(view) == "TextArea")
        await view.press("N", "E", "W")
        await view.sees("✎ task:write")
        await view.press("escape", "down")
        await view.sees("enter edits it")
        await view.press("tab")
        await view.until(lambda: focused(view) == "OptionList")
        await view.press("tab")
        await view.until(lambda: focused(view) == "TextArea")

    drive(location, play, SMALL)


def test_an_edit_that_no_fork_has_used_is_not_dropped_without_a_word(tmp_path):
    location = kept(tmp_path)

    async def play(view):
        await view.sees("● task:research")
        await view.press("ctrl+c")
        await view.sees("q quits")
        await view.press("4")
        await view.sees("enter edits it")
        await view.press("enter", "enter", "N", "E", "W")
        await view.sees("✎ task:research")
        await view.press("escape", "q")
        await view.sees("Quit and drop the edits?")
        await view.press("escape")
        await view.sees("✎ task:research")
        await view.press("q", "enter")
        await view.until(lambda: not view.app.is_running)

    drive(location, play, SMALL, toasts=True)


def test_a_refused_label_or_answer_stays_in_its_dialog_with_the_reason(tmp_path):
    location = str(tmp_path / "kept")

    @flow(checkpoint=CheckpointConfig(location=location))
    def asking() -> bool:
        return ask("Go on?", bool, name="go")

    crew(location, "a", "b", "c").kickoff(inputs={"topic": "llamas"}, run_id="first")
    with pytest.raises(Suspended):
        asking.kickoff(run_id="second")

    async def play(view):
        await view.sees("◇ second", "a Answer")
        await view.press("a")
        await view.sees("Answer human:go")
        await view.press(*"maybe", "enter")
        await view.sees("Answer human:go", "maybe", "is not of type 'boolean'")
        with History(location) as history:
            history.answer("second", "human:go", False)  # somebody else, in the meantime
        await view.press(*["backspace"] * 5, *"yes", "enter")
        await view.sees("it has an answer already", "--replace")
        await view.press(*["backspace"] * 3, *"no", "enter")
        await view.sees("The answer is recorded")
        assert "is not of type" not in view.screen()
        await view.press("end")
        await view.sees("✓ first")
        await view.press("right")
        await view.sees("● task:research")
        await view.press("down")
        await view.sees("version 1", "l Label")
        await view.press("l")
        await view.sees("Label first/main at")
        await view.press(*"bad name!", "enter")
        await view.sees("Label first/main at", "bad name!", "not a usable name")
        await view.press(*["backspace"] * 9, *"good", "enter")
        await view.sees("● task:research  good")
        await view.press("l")
        await view.sees("Label first/main at", "good")
        await view.press(*"best")  # what is filled in already is replaced by what is typed
        await view.sees("Label first/main at", "best")
        assert "goodbest" not in view.screen()
        await view.press("escape")

    drive(location, play, SMALL, toasts=True)
    with History(location) as history:
        assert history.checkpoint("first@label:good").address == "task:research"
        assert not history.run("second").waiting


def test_a_fork_whose_preview_has_failed_is_not_run_as_it_is(tmp_path):
    location = kept(tmp_path)

    async def play(view):
        await view.sees("● task:research")
        await view.press("down")
        await view.sees("version 1")
        await view.press("f")
        await view.sees("Fork first/main at", "--crew: MODULE:ATTRIBUTE", "which no record holds", "esc Cancel")
        await view.press("enter")
        await view.sees("It would fail like the preview", "esc Cancel")
        await view.press("ctrl+n")
        await view.sees("Made first/fork/")

    drive(location, play, SMALL)


def test_a_key_that_does_nothing_at_a_place_says_where_it_does(tmp_path):
    location = kept(tmp_path)

    async def play(view):
        await view.sees("● task:research", "f Fork")
        for key, said in (("l", "l names a checkpoint"), ("w", "w goes back to a checkpoint"), ("a", "waits for none")):
            await view.press(key)
            await view.sees(said)
        await view.press("down", "l")
        await view.sees("Label first/main at")
        await view.press("w", "escape")

    drive(location, play, toasts=True)


def test_after_a_fork_the_edited_task_is_the_chosen_one(tmp_path):
    location = kept(tmp_path)

    async def play(view):
        await at_the_outcomes(view)
        await view.press("tab", "down", "enter", "N", "E", "W")
        await view.sees("✎ task:write")
        await view.press("escape", "f")
        await view.sees("Fork first/main", "esc Cancel")
        await view.press("ctrl+n")
        await view.sees("Made first/fork/")
        editor = view.app.query_one("#tab-outputs Fields TextArea")
        await view.until(lambda: not any(fields.edited for fields in view.app.query("Fields")))
        await view.until(lambda: editor.text == "NEWb")

    drive(location, play)


def test_a_look_at_the_location_right_after_a_key_takes_back_neither_the_choice_nor_the_letter(tmp_path):
    location = kept(tmp_path)

    async def play(view):
        await at_the_outcomes(view)
        fields, shown = view.app.query_one("#tab-outputs Fields"), view.app.shown
        names, editor = fields.query_one("OptionList"), fields.query_one("TextArea")
        names.highlighted = 1
        fields.show(shown.place, shown.outputs)
        await view.until(lambda: editor.text == "b")
        editor.insert("N")
        fields.show(shown.place, shown.outputs)
        await view.sees("✎ task:write")
        assert (names.highlighted, editor.text) == (1, "Nb")
        editor.insert("E")
        names.highlighted = 0
        await view.until(lambda: editor.text == "a")
        assert [text for _, text in fields.edits()] == ["NEb"]

    drive(location, play)


def test_a_run_is_written_to_a_page(tmp_path):
    location, page = str(tmp_path / "kept"), tmp_path / "p.html"
    crew(location, "a", "b", "c").kickoff(inputs={"topic": "llamas"}, run_id="first")
    (tmp_path / "there.html").write_text("mine")

    async def play(view):
        await view.sees("● task:research", "h HTML")
        await view.press("h")
        await view.sees("Write first to a page", "first.html")
        await view.press("ctrl+u", *str(tmp_path / "there.html"), "enter")
        await view.sees("exists already")
        await view.press("ctrl+u", *str(page), "enter")
        await view.until(page.exists)
        await view.until(lambda: "Write first" not in view.screen())

    drive(location, play, (120, 40))
    assert "llamas" in page.read_text()
    assert (tmp_path / "there.html").read_text() == "mine"


def test_how_long_ago_a_checkpoint_was_made_goes_on(tmp_path, monkeypatch):
    location = kept(tmp_path)

    async def play(view):
        await view.sees("● task:research")
        await view.press("down")
        await view.sees("version 1", "created", "s ago  20")
        monkeypatch.setattr("crewlite.tui.contents.words.ago", lambda at: "a while later")
        await view.sees("created", "a while later")

    drive(location, play, SMALL)
