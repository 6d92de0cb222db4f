"""The terminal view shows what is recorded, and follows what other processes record."""

from __future__ import annotations

import threading

from crewlite import History
from crewlite.ids import short
from tests.tui.conftest import HOSTILE, crew, drive


def test_runs_forks_and_checkpoints_are_browsed_with_the_keyboard_alone(location):
    crew(location, HOSTILE, "a draft", "fine").kickoff(inputs={"topic": "llamas"}, run_id="first")
    with History(location) as history:
        history.fork("first@task:write", branch="shorter", edits={"task:write": "a short draft"})

    async def play(view):
        await view.sees("first", "crew report", "● task:research", "● task:write", "● task:review")
        await view.sees("branch", "first/main", "3 of 3", "input topic", "llamas", "Clerk", "finished", "tokens")
        await view.press("down", "down", "right")
        await view.sees("▸ shorter", "version 2", "task_completed at task:write", "2 of 3", "○ task:review")
        assert view.screen().index("task:write") < view.screen().index("shorter") < view.screen().index("task:review")
        await view.press("2")
        await view.sees("timeline", "✓ task:research", "✓ task:review", "━")
        await view.press("3")
        await view.sees("topic", "llamas", "as text")
        await view.press("4")
        await view.sees("task:research", "task:write", "[red]bold[/red] [@click=app.quit]x[/]", "as JSON")
        assert "\x1b" not in view.screen() and "\u202e" not in view.screen()
        assert "task:review  fine" not in view.screen()  # it was not there yet at this checkpoint
        await view.press("5")
        await view.sees("task_completed", "task:write", "crew_kickoff_started")
        await view.press("1", "down")
        await view.sees("first/shorter", "forked from", "main at checkpoint")
        await view.press("right")
        threading.Thread(
            target=crew(location, "1", "2", "3").kickoff, args=({"topic": "x"},), kwargs={"run_id": "second"}
        ).start()
        await view.sees("second", "2 runs")
        await view.sees("✓ second")
        await view.sees("first/shorter")  # the cursor has stayed where it was
        await view.press("q")

    drive(location, play)


def damage(location):
    """Damage the journal of the only run."""
    (journal,) = location.rglob("main.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:3], lines[3].replace(b"seq", b"sex"), *lines[4:]]))


def test_a_location_without_runs_and_a_damaged_run_are_shown_as_what_they_are(tmp_path):
    location = tmp_path / "kept"
    crew(str(location), "1", "2", "3").kickoff(inputs={"topic": "x"}, run_id="first")
    damage(location)

    async def play(view):
        await view.sees("! first", "checksum", "doctor")  # single words: lines break elsewhere in another folder
        with History(str(location)) as history:
            history.doctor(repair=True)
        await view.press("f5")
        await view.sees("▸ first")

    drive(str(location), play, size=(80, 60))


def test_keys_and_panels_are_about_the_place_under_the_cursor_however_fast_it_moves(tmp_path):
    location = str(tmp_path / "kept")
    crew(location, "1", "2", "3").kickoff(inputs={"topic": "x"}, run_id="damaged")
    damage(tmp_path / "kept")
    crew(location, "1", "2", "3").kickoff(inputs={"topic": "x"}, run_id="sound")
    with History(location) as history:
        ids = [short(one.id) for one in history.run("sound").checkpoints()]

    async def play(view):
        await view.sees("● task:research", "● task:write", "sound/main")
        await view.press("f5", "down", "down", "l")
        await view.sees(f"Label sound/main at {ids[1]}")
        await view.press("escape", "up", "f")
        await view.sees(f"Fork sound/main at {ids[0]}")
        await view.press("escape", "2")
        await view.sees("timeline")
        await view.press("f5", *["down"] * 3)
        await view.sees("checksum")
        assert "timeline" not in view.screen()

    drive(location, play)


def test_the_columns_of_the_steps_fit_the_size_of_the_terminal(location):
    crew(location, "a", "b", "c").kickoff(inputs={"topic": "llamas"}, run_id="first")

    async def play(view):
        await view.press("2")
        await view.sees("✓ task:rese…", "timeline")
        assert "cost" not in view.screen()
        await view.pilot.resize_terminal(150, 40)
        await view.sees("✓ task:research", "cost")

    drive(location, play, size=(64, 30))
