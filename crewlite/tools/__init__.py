"""Tools: what agents can do besides talking."""

from crewlite.durable import Effect, idempotency_key
from crewlite.tools.base import BaseTool
from crewlite.tools.function import FunctionTool, tool

__all__ = ["BaseTool", "Effect", "FunctionTool", "idempotency_key", "tool"]
