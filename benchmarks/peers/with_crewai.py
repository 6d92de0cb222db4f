"""The scenes in CrewAI: the same crews. Its model is one of the user's own, as its documentation shows to write one."""

from __future__ import annotations

import asyncio
import contextlib
import io
import shutil
import time
from pathlib import Path
from typing import Any

from crewai import Agent, BaseLLM, Crew, Task
from crewai.events import crewai_event_bus
from crewai.state.checkpoint_config import CheckpointConfig
from crewai_cli.checkpoint_cli import list_checkpoints
from serving import ANSWER, seconds, serve, size, whole

_REPLY = f"Thought: I know.\nFinal Answer: {ANSWER}"


class Answering(BaseLLM):
    """Answers at once, or after `delay` seconds, in the form that the agent's prompt asks for."""

    delay: float = 0.0

    def call(self, messages: Any, *args: Any, **kwargs: Any) -> str:
        if self.delay:
            time.sleep(self.delay)
        return _REPLY

    async def acall(self, messages: Any, *args: Any, **kwargs: Any) -> str:
        if self.delay:
            await asyncio.sleep(self.delay)
        return _REPLY


def plain(steps: int) -> dict[str, Any]:
    return {"seconds": seconds(_crew(steps).kickoff)}


def durable(kind: str, steps: int, directory: str) -> dict[str, Any]:
    bare, crew = _crew(steps), _crew(steps, checkpoint=CheckpointConfig(location=directory))
    without, before, already = seconds(bare.kickoff), size(directory), _files(directory)
    with_store = seconds(lambda: (crew.kickoff(), crewai_event_bus.flush(timeout=None)))
    found = len(_files(directory) - already)
    return {"seconds": with_store - without, "bytes": size(directory) - before, "found": found}


def at_once(count: int, delay: float) -> dict[str, Any]:
    crews = [_crew(1, delay=delay) for _ in range(count)]

    async def all_of_them() -> None:
        await asyncio.gather(*(crew.akickoff() for crew in crews))

    return {"seconds": seconds(lambda: asyncio.run(all_of_them()))}


def listing(kind: str, count: int, directory: str) -> dict[str, Any]:
    """What its command line does; it offers no function that returns them."""
    if not _files(directory):
        _fill(count, directory)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        took = seconds(lambda: list_checkpoints(directory))
    return {"seconds": took, "found": whole(printed.getvalue().count("_p-"), count)}


def _fill(count: int, directory: str) -> None:
    """A checkpoint of a crew of one task, and copies of it under other names: the smallest there are."""
    _crew(1, checkpoint=CheckpointConfig(location=directory)).kickoff()
    crewai_event_bus.flush(timeout=None)
    [first] = _files(directory)
    time_of_it, own, _ = first.name.split("_", 2)
    for number in range(1, count):
        shutil.copy(first, first.with_name(first.name.replace(f"{time_of_it}_{own}", f"{time_of_it}_{number:08x}")))


def _crew(tasks: int, *, delay: float = 0.0, checkpoint: CheckpointConfig | None = None) -> Crew:
    llm = Answering(model="scripted", delay=delay)
    agent = Agent(role="Writer", goal="Write what is asked", backstory="You write short texts about the sea.", llm=llm)
    made = [
        Task(description=f"Write part {n} of the report.", expected_output="One paragraph.", agent=agent, context=[])
        for n in range(tasks)
    ]
    return Crew(agents=[agent], tasks=made, checkpoint=checkpoint)


def _files(directory: str) -> set[Path]:
    return set(Path(directory).rglob("*.json"))


serve("crewai", plain=plain, durable=durable, at_once=at_once, listing=listing)
