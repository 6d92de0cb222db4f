"""Tools made from functions."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, overload

from pydantic import BaseModel

from crewlite.concurrency import background
from crewlite.definitions.callables import is_async
from crewlite.definitions.keywords import known_keywords, shows_options
from crewlite.errors import ConfigError
from crewlite.lazy import lazy
from crewlite.recovery.port import Policy
from crewlite.step_parts import Effect
from crewlite.texts.wording import what_is
from crewlite.tools.base import BaseTool
from crewlite.tools.schema import summary

if TYPE_CHECKING:
    from crewlite.tools import foreign
else:  # only for tools that are none of BaseTool
    foreign = lazy("crewlite.tools.foreign")


_STRIPPED = sys.flags.optimize >= 2


class FunctionTool(BaseTool):
    """A function as a tool. Calling it calls the function."""

    func: Callable[..., Any]

    @classmethod
    def from_function(
        cls,
        func: Callable[..., Any],
        name: str | None = None,
        description: str | None = None,
        return_direct: bool = False,
        args_schema: type[BaseModel] | None = None,
        **fields: Any,
    ) -> Self:
        """Make a tool of a function, as CrewAI's `CrewStructuredTool.from_function` does.

        The name and the description are by default those of the function: `__name__`, and what its docstring says.
        `return_direct`: whether its result is the answer (`result_as_answer`). `fields` are further ones of BaseTool.
        Raises ConfigError if there is no description, or a signature that no model can be told.
        """
        title = name if name is not None else getattr(func, "__name__", type(func).__name__)
        said = summary(inspect.getdoc(func) or "") if description is None else description
        if not said:
            instead = "run without python -OO and PYTHONOPTIMIZE=2, which leave them out" if _STRIPPED else "write one"
            raise ConfigError(f"Tool {title!r} has no docstring; {instead}: it is what the model reads")
        fields = {"result_as_answer": return_direct, **fields}
        made = cls(name=title, description=said, args_schema=args_schema, func=func, **fields)
        _ = made.schema_for_model  # an unusable signature is told here, not in the middle of a run
        return made

    @classmethod
    def from_langchain(cls, tool: Any) -> BaseTool:
        """Return a tool of LangChain as one of crewlite; `tools=[...]` also takes it as it is. Raises ConfigError."""
        adopted = foreign.adopt(tool)
        if adopted is None:
            raise ConfigError(f"from_langchain was given {what_is(tool)}; wanted a tool of LangChain")
        return adopted

    async def _arun(self, /, **kwargs: Any) -> Any:
        return await self.func(**kwargs) if is_async(self.func) else await background.blocking(self.func, **kwargs)

    def _run(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.func(*args, **kwargs)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function, as if it were no tool."""
        return self.func(*args, **kwargs)

    def _code(self) -> Any:
        return self.func

    def __eq__(self, other: object) -> bool:  # `func in agent.tools`, and `remove(func)`, once tools=[func] was given
        return self is other or (not isinstance(other, BaseTool) and bool(self.func == other))

    __hash__ = BaseTool.__hash__


class ToolOptions(TypedDict, total=False):
    """The options of `@tool`, which are fields of BaseTool."""

    effect: Effect
    timeout: float | None
    result_as_answer: bool
    max_usage_count: int | None
    cache_function: Callable[[dict[str, Any], Any], bool] | None
    requires_approval: bool
    failure_policy: Policy | None


def _option(name: str) -> inspect.Parameter:
    field, written = BaseTool.model_fields[name], BaseTool.__annotations__[name]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=written)


@overload
def tool(name: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    name: str | None = None, /, **options: Unpack[ToolOptions]
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
@known_keywords("@tool", instead={"description": "the docstring of the function says it"})
@shows_options(*map(_option, ToolOptions.__annotations__))
def tool(
    name: str | Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]
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
    if callable(name):
        return FunctionTool.from_function(name, **options)
    return lambda fn: FunctionTool.from_function(fn, name, **options)
