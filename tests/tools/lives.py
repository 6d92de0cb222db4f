"""A crew whose tools are limited, kept and answer by themselves; killed before each of its operations on the disk.

Run as a program, so that it can fork before any thread exists. It prints one line of JSON and exits with 1 if a life
after a death told anything else than a life without one: {"operations": 58, "trials": 58, "violations": [...]}.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import traceback
from collections import Counter
from pathlib import Path

import sqlite_utils  # noqa: F401 - loaded before the forks, once

from crewlite import Agent, CheckpointConfig, Crew, Task, ToolCall, idempotency_key, tool
from crewlite.testing import CrashInjector, ScriptedLLM

TURNS = {
    "first": [
        [*(ToolCall("spend", {"what": what}) for what in "abc"), ToolCall("look", {"at": "x"})],
        [ToolCall("look", {"at": "x"}), ToolCall("look", {"at": "y"})],
    ],
    "second": [ToolCall("look", {"at": "x"}), ToolCall("spend", {"what": "d"})],
    "third": [[ToolCall("look", {"at": "y"}), ToolCall("conclude", {"word": "so"})]],
}
MADE = {"spend": 2, "look": 2, "conclude": 1}


def crew_in(directory: Path, location: Path) -> Crew:
    """Three tasks, each of which answers from all that it heard; the last one is answered by a tool."""

    def note(name: str) -> None:
        with (directory / "made").open("a") as file:
            file.write(f"{name} {idempotency_key()}\n")

    @tool(max_usage_count=2)
    def spend(what: str) -> str:
        """Spend something."""
        note("spend")
        return f"spent on {what}"

    @tool(effect="none", cache_function=lambda arguments, result: True)
    def look(at: str) -> str:
        """Look at something."""
        note("look")
        return f"saw {at} " * 10

    @tool(result_as_answer=True)
    def conclude(word: str) -> str:
        """Conclude."""
        note("conclude")
        return f"{word}, it is concluded, at some length, so that it is recorded but once and referred to"

    def reply(messages):
        turns = TURNS[messages[1]["content"].split()[1]]
        turn = sum(message["role"] == "assistant" for message in messages)
        heard = [message["content"] for message in messages if message["role"] == "tool"]
        return turns[turn] if turn < len(turns) else json.dumps(heard)

    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(reply), tools=[spend, look, conclude])
    tasks = [Task(name=name, description=f"Do {name}", expected_output="text", agent=agent) for name in TURNS]
    return Crew(tasks=tasks, checkpoint=CheckpointConfig(location=location))


def life(directory: Path, location: Path, at: int | None) -> None:
    """In a child: go on with the run, and leave its result if it gets that far."""
    child = os.fork()
    if child == 0:
        try:
            with CrashInjector(at=at) as injector:
                result = crew_in(directory, location).kickoff(run_id="r")
            raws = [output.raw for output in result.tasks_output]
            (directory / "result").write_text(json.dumps([raws, injector.count]))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(3)
    os.waitpid(child, 0)


def trial(directory: Path, suffix: str, at: int | None) -> tuple[list[str], dict[str, int], int]:
    """What the tasks answered, how many calls of each tool took effect, and the operations of the last life."""
    directory.mkdir(parents=True)
    location = directory / f"store{suffix}"
    if at is not None:
        life(directory, location, at)
    life(directory, location, None)
    raws, count = json.loads((directory / "result").read_text())
    made = {tuple(line.split()) for line in (directory / "made").read_text().splitlines()}
    shutil.rmtree(directory)
    return raws, dict(Counter(name for name, _ in made)), count


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--suffix", default="")
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    told, made, operations = trial(given.directory / "clean", given.suffix, None)
    violations = [] if made == MADE else [f"clean: {made}"]
    trials = range(1, operations + 1, given.every)
    for at in trials:
        found = trial(given.directory / str(at), given.suffix, at)
        if found[:2] != (told, made):
            violations.append(f"killed at {at}: {found[:2]}, wanted {(told, made)}")
    print(json.dumps({"operations": operations, "trials": len(trials), "told": told, "violations": violations}))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
