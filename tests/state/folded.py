"""What the tests of pruning share: a crew that looks around twice in each task, and the size of what is left."""

from __future__ import annotations

from pathlib import Path

from crewlite import Agent, Crew, History, Task, ToolCall, tool
from crewlite.testing import ScriptedLLM
from tests.parts import Stop

EVERYTHING = ["task_completed", "llm_call_completed", "tool_usage_finished"]


def history(config):
    return History(config().location, config().provider)


def at(config, ref, **more):
    return config(restore_from=ref, **more)


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"saw {where} " + "and much besides " * 20


def look_twice(messages):
    """What a model says that looks twice for each task, then answers."""
    seen = sum(message["role"] == "tool" for message in messages)
    task = messages[1]["content"].split()[1]
    return ToolCall("look", {"where": f"{task}.{seen}"}) if seen < 2 else f"answer {task}"


def loop(*, stops=()):
    """A model that looks twice for each task, and stops at the calls with these numbers."""
    calls = []

    def reply(messages):
        calls.append(1)
        return Stop() if len(calls) in stops else look_twice(messages)

    return ScriptedLLM(reply)


def looking(llm, count, checkpoint):
    who = Agent(role="Worker", goal="g", llm=llm, tools=[look])
    tasks = []
    for n in range(count):
        tasks.append(Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=who, context=tasks[-1:]))
    return Crew(tasks=tasks, checkpoint=checkpoint)


def size(config):
    """Bytes on disk of a store that nobody has open."""
    path = Path(config().location)
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
