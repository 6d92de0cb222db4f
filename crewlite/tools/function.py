"""Tools made from functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, overload

from crewlite import background
from crewlite.callables import is_async
from crewlite.errors import ConfigError
from crewlite.keywords import known_keywords
from crewlite.recovery.port import Policy
from crewlite.step_parts import Effect
from crewlite.tools.base import BaseTool
from crewlite.tools.schema import summary


class FunctionTool(BaseTool):
    """A function as a tool. Calling it calls the function."""

    func: Callable[..., Any]

    async def _arun(self, **kwargs: Any) -> Any:
        return await self.func(**kwargs) if is_async(self.func) else await background.blocking(self.func, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, as if it were no tool."""
        return self.func(*args, **kwargs)

    def _code(self) -> Any:
        return self.func


@overload
def tool(name: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    name: str | None = None,
    /,
    *,
    effect: Effect = "idempotent",
    timeout: float | None = None,
    result_as_answer: bool = False,
    max_usage_count: int | None = None,
    cache_function: Callable[[dict[str, Any], Any], bool] | None = None,
    requires_approval: bool = False,
    failure_policy: Policy | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
@known_keywords("@tool")
def tool(
    name: str | Callable[..., Any] | None = None,
    /,
    *,
    effect: Effect = "idempotent",
    timeout: float | None = None,
    result_as_answer: bool = False,
    max_usage_count: int | None = None,
    cache_function: Callable[[dict[str, Any], Any], bool] | None = None,
    requires_approval: bool = False,
    failure_policy: Policy | None = None,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a function, sync or async. Its docstring tells the model what it does.

    >>> @tool
    ... def add(a: int, b: int) -> int:
    ...     '''Add two numbers.'''
    ...     return a + b
    >>> add.name, add.description, add(1, 2)
    ('add', 'Add two numbers.', 3)

    `@tool("other name", effect="once", timeout=30)` sets what the signature cannot say: see BaseTool for the words.
    """
    more = {
        "effect": effect,
        "timeout": timeout,
        "result_as_answer": result_as_answer,
        "max_usage_count": max_usage_count,
        "cache_function": cache_function,
        "requires_approval": requires_approval,
        "failure_policy": failure_policy,
    }
    if callable(name):
        return _make(name, None, more)
    return lambda fn: _make(fn, name, more)


def _make(fn: Callable[..., Any], name: str | None, more: dict[str, Any]) -> FunctionTool:
    title = name if name is not None else getattr(fn, "__name__", type(fn).__name__)
    description = summary(inspect.getdoc(fn) or "")
    if not description:
        raise ConfigError(f"Tool {title!r} has no docstring; write one: it is what the model reads")
    made = FunctionTool(name=title, description=description, func=fn, **more)
    _ = made.schema_for_model  # an unusable signature is told here, not in the middle of a run
    return made
