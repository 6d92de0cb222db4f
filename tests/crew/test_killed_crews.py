"""A process with a crew that does all that crews can is killed at an operation on its disk, and started again."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from crewlite import History
from tests import children

PROGRAM = '''
import json, sys
from pathlib import Path
from crewlite import Agent, ConditionalTask, Crew, Process, Task, ToolCall, tool
from crewlite.testing import CrashInjector, ScriptedLLM

def note(what):
    with Path("notes.txt").open("a") as file:
        file.write(what + "\\n")

@tool
def look(where: str) -> str:
    """Look somewhere."""
    note(f"look {where}")
    return f"saw {where}"

def research(messages):
    if messages[-1]["role"] == "user":
        return [ToolCall("look", {"where": "here"}), ToolCall("look", {"where": "there"})]
    return " and ".join(message["content"] for message in messages if message["role"] == "tool")

def manage(messages):
    if messages[-1]["role"] == "user":
        wish = messages[-1]["content"].partition("\\n")[0]
        return ToolCall("Delegate work to coworker", {"task": wish, "coworker": "Researcher"})
    return f"checked: {messages[-1]['content']}"

def prepare(inputs):
    note("prepare")
    return {"topic": inputs["topic"].upper()}

plan = json.dumps({"plans": [{"task": 1, "plan": "look"}]})
people = [Agent(role="Researcher", goal="find", llm=ScriptedLLM(research), tools=[look])]
about = {"expected_output": "x"}
tides = Task(name="tides", description="Tides of {topic}", async_execution=True, **about)
winds = Task(name="winds", description="Winds of {topic}", async_execution=True, **about)
report = Task(name="report", description="Report on {topic}", callback=lambda output: note("called back"), **about)
extend = ConditionalTask(name="extend", description="Extend", condition=lambda output: "absent" in output.raw, **about)
crew = Crew(
    agents=people,
    tasks=[tides, winds, report, extend],
    process=Process.hierarchical,
    manager_llm=ScriptedLLM(manage),
    planning=True,
    planning_llm=ScriptedLLM(lambda messages: plan),
    before_kickoff_callbacks=[prepare],
    after_kickoff_callbacks=[lambda result: setattr(result, "raw", result.raw + "!")],
    checkpoint=True,
)
with CrashInjector(at=int(sys.argv[1]) or None) as injector:
    result = crew.kickoff({"topic": "Brest"}, run_id="r")
outputs = [[output.raw, output.skipped, output.description] for output in result.tasks_output]
print(json.dumps([injector.count, result.raw, outputs, result.token_usage.requests]))
'''


def live(at=0):
    return children.run([sys.executable, "-c", PROGRAM, str(at)], capture_output=True, text=True)


def notes():
    found = Path("notes.txt").read_text().splitlines() if Path("notes.txt").exists() else []
    Path("notes.txt").unlink(missing_ok=True)
    return found


# Commits that come at the same time share a sync, so the number of operations differs a little from run to run.
@pytest.mark.parametrize(
    "part", [0.15, 0.45, 0.75, *(pytest.param(part, marks=pytest.mark.soak) for part in (0.3, 0.6))]
)
def test_it_ends_as_if_nobody_had_killed_it(part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "whole").mkdir()
    monkeypatch.chdir(tmp_path / "whole")
    count, *whole = json.loads(live().stdout)
    once = notes()
    assert whole[0] == "checked: saw here and saw there!"
    assert sorted(once) == sorted(["prepare", "called back", *["look here", "look there"] * 3])
    monkeypatch.chdir(tmp_path)
    assert live(max(1, int(count * part))).returncode == -signal.SIGKILL
    again = live()
    assert json.loads(again.stdout)[1:] == whole, again.stderr
    assert len(notes()) <= len(once) + 4, "two coworkers are at work at once, each with two calls in flight"
    with History() as history:
        assert history.run("r").status == "finished"
        assert history.doctor() == []
