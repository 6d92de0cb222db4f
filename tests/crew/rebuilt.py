"""What the tests of rebuilt crews share: a crew with live parts, a run that is cut, and a ref to it."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from crewlite import Agent, Crew, Task, tool
from tests.parts import Stop


class Report(BaseModel):
    text: str


@tool
def search(query: str) -> str:
    """Search."""
    return f"about {query}"


def notify(output):
    """Tell somebody."""


def live_crew(llm, **fields):
    """A crew with one live part of each kind."""
    who = Agent(role="Researcher", goal="find", llm=llm, tools=[search])
    research = Task(name="research", description="Research", expected_output="x", agent=who, callback=notify)
    write = Task(description="Write", expected_output="x", agent=who, output_pydantic=Report)
    return Crew(tasks=[research, write], **fields)


def cut(crew, inputs=None, run_id="r"):
    with pytest.raises(Stop):
        crew.kickoff(inputs, run_id=run_id)


def ref(config, place="r", **fields):
    return config(restore_from=place, **fields)


class Moody(Agent):
    mood: str = "calm"
