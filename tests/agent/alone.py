"""What tests of an agent alone share: the agent, which answers by a script, and a tool."""

from __future__ import annotations

from crewlite import Agent, tool
from crewlite.testing import ScriptedLLM


@tool
def shout(text: str, times: int = 1) -> str:
    """Shout a text.

    Args:
        text: What to shout.
        times: How often.
    """
    return " ".join([text.upper()] * times)


def agent(*replies, **fields):
    return Agent(role="Worker", goal="work", backstory="works", llm=ScriptedLLM(list(replies)), **fields)
