"""The smallest definition of each kind."""

from __future__ import annotations

from crewlite import Agent, BaseTool, Crew, Flow, Task, start

AGENT = Agent(role="r", goal="g", llm="offline")
TASK = Task(description="d", expected_output="e", agent=AGENT)
CREW = Crew(tasks=[TASK])


class Plan(Flow):
    @start()
    def begin(self):
        return 1


class Gauge(BaseTool):
    name: str = "gauge"
    description: str = "Reads."

    def _run(self):
        return 1
