"""What the tests of guardrails share: a crew of one task, a function that judges, and what a judge says."""

from __future__ import annotations

import json

from crewlite import Agent, Crew, Task
from crewlite.testing import ScriptedLLM


def says(valid, feedback=""):
    return json.dumps({"valid": valid, "feedback": feedback})


def long_enough(output):
    return (True, None) if len(output.raw) > 3 else (False, f"{output.raw!r} is too short")


def crew_of(replies, *, agent=None, crew=None, **task):
    llm = replies if isinstance(replies, ScriptedLLM) else ScriptedLLM(replies)
    who = Agent(role="W", goal="g", llm=llm, **agent or {})
    work = Task(**{"name": "t", "description": "d", "expected_output": "x", "agent": who} | task)
    return Crew(tasks=[work], **crew or {})
