"""What the tests of callbacks share: a crew about a topic, what its model was asked, and a callback for its inputs."""

from __future__ import annotations

from crewlite import Agent, Crew, Task
from crewlite.testing import ScriptedLLM
from tests import parts


def crew_of(replies, *, tasks=1, agent=(), task=(), **fields):
    who = Agent(role="Clerk of {topic}", goal="g", llm=ScriptedLLM(replies), **dict(agent))
    work = [
        Task(name=f"t{n}", description=f"About {{topic}}, {n}", expected_output="x", agent=who, **dict(task))
        for n in range(tasks)
    ]
    return Crew(tasks=work, **fields)


def asked(crew):
    return [text.partition("\n")[0] for text in parts.asked(crew)]


def upper(inputs):
    return inputs | {"topic": inputs["topic"].upper()}
