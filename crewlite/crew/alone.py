"""One task done by one agent, without a crew of the caller's: `Task.execute_sync` and `Agent.execute_task`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crewlite.agent.agent import Agent
from crewlite.crew.crew import Crew
from crewlite.definitions.last_kickoff import Kickoff, keep
from crewlite.errors import ConfigError
from crewlite.runtime.main_thread.sync_bridge import check_may_block
from crewlite.task.output import TaskOutput
from crewlite.task.task import Task
from crewlite.texts import templates


def done(verb: str, task: Task, agent: Agent | None, context: str | None, tools: Sequence[Any] | None) -> TaskOutput:
    """Have an agent do a task, and return the output. Placeholders are left as they are.

    Raises ConfigError, and OnLoopThread with the name of the `verb`.
    """
    who = agent or task.agent
    if who is None:
        raise ConfigError(f"task {task.title!r} has no agent: agent.execute_task(task), or Task(..., agent=...)")
    description = f"{task.description}\n\n{context}" if context else task.description
    texts = {"description": description, "expected_output": task.expected_output, "output_file": task.output_file}
    plain = {name: templates.escaped(text) for name, text in texts.items() if text}
    people = {name: templates.escaped(getattr(who, name)) for name in ("role", "goal", "backstory")}
    more = {} if tools is None else {"tools": tuple(tools)}
    alone = task.with_(agent=who.with_(**people), context=[], **plain, **more)
    check_may_block(verb, "Crew(tasks=[task]).akickoff()")
    [output] = Crew(tasks=[alone]).kickoff().tasks_output
    keep({task: Kickoff(lambda: output)})
    return output
