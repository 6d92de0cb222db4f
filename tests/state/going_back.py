"""What the tests of rewinds and labels share: a crew of two tasks, whose model says which reply each answer is."""

from __future__ import annotations

from crewlite import Agent, Crew, Task
from crewlite.testing import ScriptedLLM
from tests.parts import outputs

EVENTS = ["task_completed", "step_completed", "method_execution_finished", "llm_call_completed"]


class Said:
    """Answers one, two, three, ... so that what is asked again is told from what was recorded."""

    def __init__(self):
        self.count = 0

    def __call__(self, *_):
        self.count += 1
        return f"reply {self.count}"


def crew_of(said, config, **fields):
    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(said))
    tasks = [
        Task(name=name, description=f"Do {name}", expected_output="text", agent=agent) for name in ("first", "second")
    ]
    return Crew(tasks=tasks, checkpoint=config(on_events=EVENTS, **fields))


def answers(result):
    return outputs(result) if hasattr(result, "tasks_output") else result
