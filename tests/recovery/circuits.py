"""Runs that ask a model behind a circuit breaker. As a program, it runs what it is told, one line after the other."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from crewlite import Agent, CheckpointConfig, Crew, FailurePolicy, Task
from crewlite.errors import CircuitOpen, LLMUnavailable
from crewlite.recovery import CircuitBreaker
from crewlite.testing import ScriptedLLM


class Clock:
    """A clock that several processes read."""

    def __call__(self):
        return float(Path("clock").read_text())

    @staticmethod
    def set(seconds):
        Path("clock").write_text(str(seconds))


def down(messages):
    raise LLMUnavailable("503")


def hang(messages):
    print("probing", flush=True)
    threading.Event().wait()


def ask(run_id, location, reply="up", breaker=None, provider=None, delay=0.0):
    """Ask a model in a run of its own: what it said or how it failed, and how often it was called."""
    llm = ScriptedLLM(reply if callable(reply) else [reply], model="far", delay=delay)
    breaker = breaker or CircuitBreaker(2, cooldown_seconds=30, clock=Clock())
    task = Task(description="Ask", expected_output="A word", agent=Agent(role="Pilot", goal="answer", llm=llm))
    checkpoint = CheckpointConfig(location=str(location), provider=provider) if location else False
    try:
        said = Crew(tasks=[task], failure_policy=FailurePolicy(guards=[breaker]), checkpoint=checkpoint).kickoff(
            run_id=run_id if location else None
        )
    except (LLMUnavailable, CircuitOpen) as error:
        return type(error).__name__, len(llm.calls)
    return said.raw, len(llm.calls)


if __name__ == "__main__":
    for line in sys.stdin:
        print(eval(line), flush=True)
