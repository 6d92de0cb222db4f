"""The crews that are measured: as many tasks as wanted, and a model that answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.state.providers import BaseProvider, JsonProvider, SqliteProvider
from crewlite.testing import ScriptedLLM

Kind = Literal["json", "sqlite"]
KINDS: tuple[Kind, ...] = ("sqlite", "json")
ANSWER = 200
"""Characters of an answer, unless the subject says otherwise."""


def answering(length: int = ANSWER, *, delay: float = 0.0) -> ScriptedLLM:
    """A model whose n-th answer is `length` characters, different from all others."""
    words = "the tide follows the moon and the moon follows nobody at all "
    text = words * (length // len(words) + 1)

    def answer(messages: list[dict[str, Any]]) -> str:
        return f"{len(llm.calls):06d} {text}"[:length]

    llm = ScriptedLLM(answer, delay=delay)
    return llm


def failing_at(number: int) -> ScriptedLLM:
    """The same, but its call `number` fails for good."""

    def answer(messages: list[dict[str, Any]]) -> str | Exception:
        done = len(llm.calls)
        return ValueError("the power went out") if done == number else f"{done:06d} ".ljust(ANSWER, "~")

    llm = ScriptedLLM(answer)
    return llm


def crew_of(
    tasks: int,
    llm: ScriptedLLM,
    *,
    chained: bool = False,
    named: bool = True,
    checkpoint: CheckpointConfig | None = None,
) -> Crew:
    """A sequential crew. Each task builds on nothing, or, `chained`, on the one before it."""
    agent = Agent(role="Writer", goal="Write what is asked", backstory="You write short texts about the sea.", llm=llm)
    made: list[Task] = []
    for n in range(tasks):
        task = Task(
            name=f"part-{n}" if named else None,
            description=f"Write part {n} of the report.",
            expected_output="One paragraph.",
            agent=agent,
            context=made[-1:] if chained else [],
        )
        made.append(task)
    return Crew(agents=[agent], tasks=made, checkpoint=checkpoint)


def stored(kind: Kind, directory: Path, name: str = "store", **more: Any) -> CheckpointConfig:
    """A configuration that keeps runs in `directory`, synced: a checkpoint for every task. `more` are its fields."""
    location = directory / (f"{name}.db" if kind == "sqlite" else name)
    return CheckpointConfig(location=location, provider=_provider(kind), **more)


def size(directory: Path) -> int:
    """Bytes of all files in a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _provider(kind: Kind) -> BaseProvider:
    return SqliteProvider() if kind == "sqlite" else JsonProvider()
