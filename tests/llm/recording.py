"""What the tests of recorded replies share: a crew that adds, a question, and the lines of a file of replies."""

from __future__ import annotations

import asyncio
import json

from crewlite import Agent, Crew, Task, tool


@tool(effect="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def crew_of(llm, **fields):
    clerk = Agent(role="Clerk", goal="count", llm=llm, tools=[add])
    reckon = Task(name="reckon", description="Reckon.", expected_output="Numbers", agent=clerk)
    announce = Task(name="announce", description="Announce.", expected_output="A line", agent=clerk, context=[reckon])
    return Crew(tasks=[reckon, announce], **fields)


def ask(llm, text="When?", **context):
    return asyncio.run(llm.acall([{"role": "user", "content": text}], **context))


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
