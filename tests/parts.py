"""What tests of crews, agents and tasks share: an error that stands for a kill, a tool, and looks at what is left."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from crewlite import CrewOutput, History, tool
from crewlite.state.reading.checkpoint import Checkpoint


class Stop(Exception):
    """Stands for a kill: the laptop lid."""


class Fact(BaseModel):
    word: str


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"saw {where}"


def outputs(result: CrewOutput) -> list[str]:
    return [output.raw for output in result.tasks_output]


def asked(crew: Any) -> list[str]:
    """What the model of a crew's first agent was asked, call by call."""
    return [call[-1]["content"] for call in crew.tasks[0].agent.llm.calls]


def history(config: Any) -> History:
    return History(config.location, config.provider)


def checkpoints(config: Any, ref: str = "latest") -> list[Checkpoint]:
    with history(config) as found:
        return found.run(ref).checkpoints()
