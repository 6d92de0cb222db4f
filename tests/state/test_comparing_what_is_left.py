"""What a prune has left out cannot be compared, and a diff says so; what was skipped is told as that."""

from __future__ import annotations

import pytest

from crewlite import Agent, ConditionalTask, Crew, History, Task, ToolCall, tool
from crewlite.flow import flow
from crewlite.testing import ScriptedLLM


def crew_of(setting, *replies, holds=True):
    agent = Agent(role="W", goal="g", llm=ScriptedLLM([*replies]))
    about = {"expected_output": "x", "agent": agent}
    facts = Task(name="facts", description="Facts about {topic}", **about)
    extra = ConditionalTask(name="extra", description="More", condition=lambda output: holds, **about)
    text = Task(name="text", description="Write", context=[facts, extra], **about)
    return Crew(tasks=[facts, extra, text], checkpoint=setting)


def opened(setting):
    return History(setting.location, provider=setting.provider)


def with_status(diff, status):
    return [(step.address, step.dropped) for step in diff.steps_with(status)]


CALLS = ["task:facts/llm#1", "task:extra/condition#1", "task:extra/llm#1", "task:text/llm#1"]


@pytest.mark.parametrize("side", ["a", "b"])
def test_steps_that_a_prune_has_left_out_of_one_run_are_not_told_as_only_in_the_other(stored, side):
    for run_id in ("pruned", "whole"):
        crew_of(stored(), "f", "e", "t").kickoff({"topic": "tides"}, run_id=run_id)
        with opened(stored()) as history:
            if run_id == "pruned":
                history.prune(keep_last=1)
            else:
                pair = ("pruned", "whole") if side == "a" else ("whole", "pruned")
                diff = history.diff(*pair)
    assert with_status(diff, "unknown") == [(address, (side,)) for address in CALLS]
    assert not diff
    assert "steps: 4 same, 0 changed, 0 only in a, 0 only in b, 4 dropped in a or b by a prune" in str(diff)
    assert f"  ? task:text/llm#1  llm, a prune has dropped its details in {side}\n" in f"{diff}\n"
    assert f"dropped in {side}" in diff.as_html()


def test_a_step_that_was_asked_something_else_is_not_the_same_because_its_details_are_gone(stored):
    crew_of(stored(), "f", "e", "t").kickoff({"topic": "tides"}, run_id="one")
    crew_of(stored(), "other", "e", "t").kickoff({"topic": "tides"}, run_id="two")
    with opened(stored()) as history:
        before = history.diff("one", "two")
        assert "task:text/llm#1" in [step.address for step in before.steps_with("changed")]
        assert with_status(before, "unknown") == []
        history.prune(keep_last=1)
        diff = history.diff("one", "two")
    assert with_status(diff, "changed") == [("task:facts", ()), ("task:extra", ("a", "b")), ("task:text", ("a", "b"))]
    assert (
        "  ~ task:text  was asked something else, which cannot be compared: a prune has dropped its details in a and b"
        in str(diff).splitlines()
    )


def test_what_a_fork_did_not_do_again_is_not_told_as_dropped(stored):
    crew_of(stored(), "f", "e", "t").kickoff({"topic": "tides"}, run_id="r")
    crew_of(stored()).fork("r", branch="edited", edits={"task:facts": "f"}).kickoff()
    with opened(stored()) as history:
        assert [step.address for step in history.diff("r", "r/edited").steps_with("only_a")] == ["task:facts/llm#1"]
        history.prune(keep_last=1)
        assert [step.status for step in history.diff("r", "r/edited").steps if step.address == "task:facts"] == ["same"]


def test_what_a_fork_answered_from_the_record_inside_a_task_that_it_did_again_is_told_as_dropped(stored):
    @tool
    def look() -> str:
        """Look."""
        return "seen " * 200

    def crew(*replies):
        agent = Agent(role="W", goal="g", llm=ScriptedLLM([*replies]), tools=[look])
        task = Task(name="facts", description="Facts", expected_output="x", agent=agent)
        return Crew(tasks=[task], checkpoint=stored())

    crew(ToolCall("look", {}), "f").kickoff(run_id="r")
    crew(ToolCall("look", {}), "g").fork(
        "r", branch="again", edits={"task:facts/tool:look": "seen otherwise"}
    ).kickoff()
    with opened(stored()) as history:
        history.prune(keep_last=1)
    crew(*[ToolCall("look", {})] * 3, "f").kickoff(run_id="whole")
    with opened(stored()) as history:
        diff = history.diff("whole", "r/again")
    calls = ["llm#1", "llm#2", "tool:look#2", "llm#3"]
    assert with_status(diff, "unknown") == [(f"task:facts/{call}", ("b",)) for call in calls]
    assert with_status(diff, "only_a") == [("task:facts/tool:look#3", ()), ("task:facts/llm#4", ())]


def test_a_skipped_task_is_told_as_skipped(memory):
    crew_of(memory(), "f", "t", holds=False).kickoff({"topic": "tides"}, run_id="short")
    crew_of(memory(), "f", "e", "t").kickoff({"topic": "tides"}, run_id="long")
    with opened(memory()) as history:
        diff, since = history.diff("short", "long"), history.diff("short@task:facts", "short")
    (extra,) = [step for step in diff.steps if step.address == "task:extra"]
    assert [(change.name, change.a, change.b) for change in extra.changes] == [
        ("status", "skipped", "finished"),
        ("output", None, "e"),
    ]
    assert "  + task:extra  task, skipped\n    + task:extra/condition#1  condition\n" in str(since)


def test_steps_stand_below_the_steps_that_they_are_part_of(memory):
    @flow(checkpoint=memory())
    def report(topic):
        return crew_of(None, "f", "e", f"on {topic}").kickoff({"topic": topic}).raw

    for topic in ("tides", "winds"):
        report.kickoff(topic, run_id=topic)
    with opened(memory()) as history:
        lines = str(history.diff("tides", "winds")).splitlines()
    assert [line for line in lines if line.lstrip().startswith("~")] == [
        "  ~ the run itself  output",
        "  ~ crew:crew  output",
        "    ~ crew:crew/task:facts  description",
        "      ~ crew:crew/task:facts/llm#1  prompt",
        "    ~ crew:crew/task:text  output",
        "      ~ crew:crew/task:text/llm#1  output",
    ]
    assert not any("paid" in line for line in lines), "what it has used is no part of the output of a crew"
