"""Tools: what agents can do besides talking. Names are imported at their first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewlite.lazy import first_use

if TYPE_CHECKING:
    from crewlite.durable import idempotency_key as idempotency_key
    from crewlite.step_parts import Effect as Effect
    from crewlite.tools.base import BaseTool as BaseTool
    from crewlite.tools.foreign import adopt as adopt
    from crewlite.tools.function import FunctionTool as FunctionTool, tool as tool

_HOMES = {
    "BaseTool": "crewlite.tools.base",
    "Effect": "crewlite.step_parts",
    "FunctionTool": "crewlite.tools.function",
    "adopt": "crewlite.tools.foreign",
    "idempotency_key": "crewlite.durable",
    "tool": "crewlite.tools.function",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - the names of the table

__getattr__ = first_use("crewlite.tools", _HOMES)
