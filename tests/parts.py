"""What tests of crews, agents and tasks share: an error that stands for a kill, a tool, and looks at what is left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic import BaseModel

from crewlite import CrewOutput, History, tool
from crewlite.state import InMemoryProvider, JsonProvider, SqliteProvider
from crewlite.state.reading.checkpoint import Checkpoint
from crewlite.testing import ScriptedLLM

PROVIDERS = {"memory": InMemoryProvider, "json": JsonProvider, "sqlite": SqliteProvider}


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


class Held(ScriptedLLM):
    """A model that answers once `go` is set."""

    def __init__(self, replies: Any) -> None:
        super().__init__(replies)
        self.go = threading.Event()

    async def acall(self, messages: Any, **context: Any) -> Any:
        await asyncio.to_thread(self.go.wait, 60)
        return await super().acall(messages, **context)


def both_resumed(crew: Any, other: Any = None) -> list[Any]:
    """What two threads get of resuming run `r` at once, values or errors: one ends only when the other was told so.

    The crews share a `Held` model.
    """
    go = crew.tasks[0].agent.llm.go
    go.clear()

    def resume(one: Any) -> Any:
        try:
            return one.kickoff(run_id="r")
        finally:
            go.set()

    crews = [crew, other or crew]
    return at_once(2, lambda number: resume(crews[number]))


def at_once(count: int, act: Callable[[int], Any]) -> list[Any]:
    """What `count` threads get of `act(number)`, called at the same moment: values or errors."""
    gate = threading.Barrier(count)

    def one(number: int) -> Any:
        gate.wait()
        try:
            return act(number)
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def deletes_a_run(operation):
    """Whether an operation of the disk is the one with which a run is deleted from files, or from a database."""
    return operation.data.startswith(b"DELETE FROM branch") or (operation.verb == "rename" and b"/~" in operation.data)
