"""Tools: what agents can do besides talking."""

from crewlite.coming_from import missing_import
from crewlite.durable import idempotency_key
from crewlite.step_parts import Effect
from crewlite.tools.base import BaseTool
from crewlite.tools.foreign import adopt
from crewlite.tools.function import FunctionTool, tool

__all__ = ["BaseTool", "Effect", "FunctionTool", "adopt", "idempotency_key", "tool"]


def __getattr__(name: str) -> None:
    raise missing_import("crewlite.tools", name) or AttributeError(f"crewlite.tools has no {name!r}")
