"""What keys do in the terminal view: a run is resumed, forked with edits, answered, compared."""

from __future__ import annotations

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, LLMReply, Task, ToolCall, tool
from crewlite.errors import Suspended
from crewlite.testing import ScriptedLLM
from tests.tui.conftest import drive


def offline(location, *, human=False):
    agent = Agent(role="Clerk", goal="answer", llm="offline")
    tasks = [
        Task(
            name=n,
            description=f"Do {n} on {{topic}}",
            expected_output="text",
            agent=agent,
            human_input=human and n == "write",
        )
        for n in ("research", "write")
    ]
    return Crew(name="report", tasks=tasks, checkpoint=CheckpointConfig(location=location))


def test_a_fork_with_edits_is_foreseen_run_and_compared(tmp_path):
    location = str(tmp_path / "kept")
    offline(location).kickoff(inputs={"topic": "llamas"}, run_id="first")

    async def play(view):
        await view.sees("● task:research", "● task:write")
        await view.press("down", "down", "4")
        await view.sees("task:write", "as text")
        await view.press("enter")  # from the tree to the list of outputs
        await view.until(lambda: type(view.app.focused).__name__ == "OptionList")
        await view.press("enter")
        await view.until(lambda: type(view.app.focused).__name__ == "TextArea")
        await view.press("ctrl+a", "E", "D", "I", "T")
        await view.sees("✎ task:research", "then f forks with it")
        await view.press("escape", "f")
        await view.sees("Fork first/main at", "task:research: ", "EDIT", "reused", "was edited", "runs")
        await view.press("ctrl+o")
        await view.sees("may be made again")
        await view.press("ctrl+o")
        await view.press("e", "d", "i", "t", "e", "d", "enter")
        await view.sees("Fork first/main at", "crew report has finished")
        await view.sees("✓ edited")
        await view.press("escape", "1")
        await view.sees("branch", "first/edited", "forked from")
        await view.press("c", "left", "left")
        await view.sees("first/main")
        await view.press("c")
        await view.sees("EDIT", "task:research")

    drive(location, play)
    with History(location) as history:
        fork = history.run("first/edited")
        assert fork.status == "finished"
        assert "EDIT" in next(one.value["raw"] for one in fork.steps if one.address == "task:research")


def test_a_question_is_answered_and_the_run_resumed_at_80_columns(tmp_path):
    location = str(tmp_path / "kept.db")
    with pytest.raises(Suspended):
        offline(location, human=True).kickoff(inputs={"topic": "llamas"}, run_id="first")

    async def play(view):
        await view.sees("◇ first", "a Answer", "r Resume", "f Fork", "q Quit")
        await view.press("a")
        await view.sees("Answer task:write/human#1", "wanted: any text")
        await view.press("enter")
        await view.sees("▸ first")
        await view.press("r")
        await view.sees("Resume first/main")
        await view.press("enter")
        await view.sees("✓ first")
        await view.press("escape", "t", "1")
        await view.sees("finished")
        await view.until(lambda: "r Resume" not in view.screen())

    drive(location, play, size=(80, 24))


def test_a_place_is_labelled_gone_back_to_and_the_rewind_is_taken_back(tmp_path):
    location = str(tmp_path / "kept.db")
    offline(location).kickoff(inputs={"topic": "llamas"}, run_id="first")

    async def play(view):
        await view.sees("● task:research", "● task:write", "finished")
        assert "w Rewind" not in view.screen()  # the head has nowhere to go back to
        await view.press("down")
        await view.sees("version 1", "w Rewind")
        await view.press("l")
        await view.sees("Label first/main at")
        await view.press(*"good", "enter")
        await view.sees("● task:research  good")
        await view.press("w")
        await view.sees("Rewind to first/main at")
        await view.press(*"early", "enter")
        await view.sees("▸ first", "○ abandoned:1  early", "1 of 2")
        await view.press("end")
        await view.sees("2 of 2", "a rewind has left behind")
        await view.press("right")
        await view.sees("● task:write")
        await view.press("w")
        await view.sees("Rewind to first/main@abandoned:1?")
        await view.press("enter")
        await view.sees("✓ first", "○ abandoned:2")

    drive(location, play)
    with History(location) as history:
        assert history.run("first").status == "finished"
        assert history.checkpoint("first@label:good").address == "task:research"


def test_calls_that_may_be_made_again_are_listed_before_a_rewind(tmp_path):
    @tool(effect="once")
    def charge(amount: str) -> str:
        """Charge."""
        return "paid"

    said = ["first", LLMReply(tool_calls=(ToolCall("charge", {"amount": "5"}),)), "second"]
    agent = Agent(role="Clerk", goal="answer", llm=ScriptedLLM(said), tools=[charge])
    tasks = [Task(name=n, description=n, expected_output="text", agent=agent) for n in ("plan", "pay")]
    location = str(tmp_path / "kept.db")
    Crew(name="bill", tasks=tasks, checkpoint=CheckpointConfig(location=location)).kickoff(run_id="first")

    async def play(view):
        await view.sees("● task:plan", "✓ first")
        await view.press("down")
        await view.sees("version 1", "w Rewind")
        await view.press("w")
        await view.sees("Rewind to")
        await view.press("enter")
        await view.sees("go back all the same?", "charge", '"amount":')
        await view.press("enter")
        await view.sees("▸ first", "○ abandoned:1")

    drive(location, play, size=(80, 24))
