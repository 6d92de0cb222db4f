"""The objects that `step_callback` gets: what an agent has just done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)  # without slots: callbacks for CrewAI read `step.__dict__`
class AgentAction:
    """The agent has used a tool."""

    thought: str
    """What the model said besides the call; mostly ""."""
    tool: str
    """The name of the tool, as the model wrote it."""
    tool_input: str
    """The arguments, as JSON."""
    text: str
    """The reply that the call was part of: its text, else the calls it asks for."""
    result: str
    """What the model was told that the tool returned, not shortened."""


@dataclass(frozen=True)
class AgentFinish:
    """The agent has answered."""

    thought: str
    output: str
    """The answer."""
    text: str
    """The reply that it was read from."""
