"""Agents: who does the work, and the loop of thinking and tools in which they do it."""

from crewlite.agent.agent import Agent
from crewlite.agent.output import LiteAgentOutput

__all__ = ["Agent", "LiteAgentOutput"]
