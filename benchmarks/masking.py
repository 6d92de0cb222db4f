"""What a kickoff costs beside a tool that holds a million texts, which are data and no configuration."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.measure import Row, in_turns, median_ms
from benchmarks.scenes import answering
from crewlite import Agent, BaseTool

_ROUNDS = 9


class _Lookup(BaseTool):
    name: str = "lookup"
    description: str = "Look a text up."
    texts: list[str]

    def _run(self, number: int) -> str:
        return self.texts[number]


def measure() -> Iterator[Row]:
    small, large = (_agent(count) for count in (1, 1_000_000))
    without, beside = in_turns(_ROUNDS, lambda: small.kickoff("Say it."), lambda: large.kickoff("Say it."))
    more = median_ms(beside) - median_ms(without)
    yield Row("a tool with 1,000,000 texts: added to a kickoff", max(more, 0.0), "ms", 2.0)


def _agent(texts: int) -> Agent:
    return Agent(role="Clerk", goal="say", llm=answering(), tools=[_Lookup(texts=["a text"] * texts)])
