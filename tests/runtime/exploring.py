"""What the tests of studies share: a crew, its variants, and a run to fork."""

from __future__ import annotations

from crewlite import Agent, Crew, LLMReply, Task, Usage
from crewlite.testing import ScriptedLLM

VARIANTS = [
    {"name": "base"},
    {"name": "model", "model": ScriptedLLM(lambda messages: "other"), "rerun": ["task:write"]},
    {"name": "prompt", "prompt": {"tasks.write.description": "One line on {topic}"}},
    {"name": "input", "inputs": {"topic": "moons"}},
    {"name": "edit", "edits": {"task:research": "nothing was found"}},
]


def crew(setting, asked=None, **fields):
    """Research, then write, by a model that repeats what it is asked."""

    def reply(messages):
        if asked is not None:
            asked.append(messages[1]["content"].splitlines()[0])
        heard = "nothing" if "nothing was found" in str(messages) else "all"
        return LLMReply(
            text=f"{messages[1]['content'].splitlines()[0]}, {heard}", usage=Usage(prompt_tokens=10, cost=0.5)
        )

    agent = Agent(role="Clerk", goal="g", llm=ScriptedLLM(reply, delay=0.002))  # so that its work takes time
    tasks = [
        Task(name=name, description=f"{name} of {{topic}}", expected_output="x", agent=agent)
        for name in ("research", "write")
    ]
    return Crew(tasks=tasks, name="c", checkpoint=setting, **fields)


def ran(setting, **fields):
    made = crew(setting, **fields)
    made.kickoff({"topic": "tides"}, run_id="r")
    return made


def length(result):
    return len(result.raw), "its length"
