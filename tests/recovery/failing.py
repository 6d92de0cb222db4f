"""A flow with a step and a crew, in which one thing fails: a model call, a tool, a task or the step.

Run as a program, it kicks the flow off, and kills itself at one of the calls that fail:
`python failing.py NOUN LOCATION CALL_TO_DIE_AT`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from crewlite import Agent, CheckpointConfig, Crew, FailurePolicy, Task, ToolCall, tool
from crewlite.flow import flow, step
from crewlite.recovery import Rule
from crewlite.testing import ScriptedLLM

ADDRESS = {
    "llm": "crew:crew/task:t/llm#1",
    "tool": "crew:crew/task:t/tool:look",
    "task": "crew:crew/task:t",
    "step": "step:check",
}
AROUND = {
    "llm": ["llm", "task", "agent", "crew", "flow"],
    "tool": ["tool", "task", "agent", "crew", "flow"],
    "task": ["task", "agent", "crew", "flow"],
    "step": ["step", "flow"],
}
"""Where a policy for it may be set, from the inside out."""


def nothing(noun: str) -> None:
    """No more than a call."""


class World:
    """`fails` is what fails, the first `times` times it is called; `policies` are set where they are named."""

    def __init__(self, fails, times=1, *, called=nothing, checkpoint=True, effect="idempotent", spare=None, **policies):
        self.fails, self.times, self.called, self.calls = fails, times, called, 0
        self.told: list[str] = []
        """What the model is told by the tool."""
        policy = policies.get

        @step(failure_policy=policy("step"))
        def check():
            self.call("step")

        @tool(failure_policy=policy("tool"), effect=effect)
        def look() -> str:
            """Look."""
            self.call("tool")
            return "seen"

        self.llm = ScriptedLLM(self.reply, model="first")
        self.llm.failure_policy = policy("llm")
        self.llm.fallbacks = (spare,) if spare else ()
        whose = {"failure_policy": policy("agent")}
        agent = Agent(role="Pilot", goal="look", llm=self.llm, tools=[look], max_iter=2, **whose)
        task = Task(name="t", description="d", expected_output="e", agent=agent, failure_policy=policy("task"))
        crew = Crew(tasks=[task], failure_policy=policy("crew"))

        @flow(name="f", checkpoint=checkpoint, failure_policy=policy("flow"))
        def work():
            check()
            return crew.kickoff().raw

        self.flow = work

    def call(self, noun):
        """What fails is called."""
        if noun != self.fails:
            return
        self.calls += 1
        self.called(noun)
        if self.calls <= self.times:
            raise KeyError(noun)

    def reply(self, messages):
        if messages[-1]["role"] == "user":
            self.call("llm")
            return ToolCall("look")
        self.told.append(messages[-1]["content"])
        if self.fails == "task":
            try:
                self.call("task")
            except KeyError:
                return ToolCall("look")  # and now max_iter is reached
        return "done"


def main(noun, location, at):
    counted = Path(f"{location}.calls")

    def called(_):
        with counted.open("a") as file:
            file.write("called\n")
        if len(counted.read_text().splitlines()) == int(at):
            os.kill(os.getpid(), signal.SIGKILL)

    patience = FailurePolicy((Rule(frozenset({"bug", "refused"}), retries=2, base=0),))
    checkpoint = CheckpointConfig(location=location)
    World(noun, 99, called=called, checkpoint=checkpoint, flow=patience).flow.kickoff(run_id="r")


if __name__ == "__main__":
    main(*sys.argv[1:])
