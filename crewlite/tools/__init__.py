"""Tools: what agents can do besides talking. Names are imported at their first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewlite.lazy import first_use

if TYPE_CHECKING:
    from crewlite.durable import idempotency_key as idempotency_key
    from crewlite.step_parts import Effect as Effect
    from crewlite.tools.base import BaseTool as BaseTool
    from crewlite.tools.env_var import EnvVar as EnvVar
    from crewlite.tools.foreign import adopt as adopt
    from crewlite.tools.function import FunctionTool as FunctionTool, tool as tool

_NAMES = {
    "durable": "idempotency_key",
    "step_parts": "Effect",
    "tools.base": "BaseTool",
    "tools.env_var": "EnvVar",
    "tools.foreign": "adopt",
    "tools.function": "FunctionTool tool",
}

__all__, __getattr__ = first_use("crewlite.tools", _NAMES)
