"""The tools of an agent or a task: what was given for them, and finding one by what a model calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex

from crewlite.definitions.field_list import FieldList
from crewlite.errors import ConfigError
from crewlite.lazy import lazy
from crewlite.texts.wording import what_is
from crewlite.tools.base import BaseTool
from crewlite.tools.naming import safe_name

if TYPE_CHECKING:
    from crewlite.tools import foreign, function
else:  # only for tools that are none of BaseTool
    foreign, function = lazy("crewlite.tools.foreign"), lazy("crewlite.tools.function")


class ForeignTool(Protocol):
    """A tool of another framework."""

    @property
    def name(self) -> str:
        """What a model calls it."""

    @property
    def description(self) -> str:
        """What the model is told about it."""


if TYPE_CHECKING:
    _Given = BaseTool | Callable[..., Any] | ForeignTool

    class Tools(FieldList[BaseTool]):
        """The list of a field of tools. Whatever is added becomes a tool."""

        def append(self, item: _Given) -> None:
            """Add one at the end."""

        def extend(self, items: Iterable[_Given]) -> None:
            """Add several at the end."""

        def insert(self, at: SupportsIndex, item: _Given) -> None:
            """Add one before the item with this number."""
else:
    Tools = FieldList[BaseTool]


def as_tools(value: object) -> object:
    """Return the value of `tools=` as tools, functions and tools of other frameworks wrapped. Raises ConfigError."""
    if isinstance(value, str | bytes):
        raise ConfigError(f"tools is {value!r}; wanted a list of tools: tools=[...]")
    if isinstance(value, BaseTool) or callable(value) or isinstance(getattr(value, "name", None), str):
        raise ConfigError("tools is one tool; wanted a list: tools=[...]")
    if not isinstance(value, list | tuple):
        return value
    tools = [_as_tool(item, f"tools[{number}]") for number, item in enumerate(value)]
    for at, item in enumerate(tools):
        if any(value[at] is earlier for earlier in value[:at]):
            raise ConfigError(f"the tool {item.name} is listed twice; remove one")
    made = _told_apart(tools)
    by_name: dict[str, BaseTool] = {}
    for item in made:
        other = by_name.setdefault(item.safe_name, item)
        if other is not item:
            names = " and ".join(sorted({other.name, item.name}))
            raise ConfigError(f"two tools are named {names}; a model could not tell them apart: rename one")
    return made


def _told_apart(tools: Sequence[BaseTool]) -> tuple[BaseTool, ...]:
    """Number the names of several instances of one class, which differ by their settings: search, search_2."""
    used = {tool.safe_name for tool in tools}
    found: dict[str, BaseTool] = {}
    made = []
    for tool in tools:
        first = found.setdefault(tool.safe_name, tool)
        is_alone = first is tool or type(first) is not type(tool)
        if is_alone or isinstance(tool, function.FunctionTool | foreign.ForeignTool):
            made.append(tool)
            continue
        numbered = tool.model_copy()  # the same object may be the tool of another agent, under its own name
        names = (f"{tool.name}_{number}" for number in count(2))
        numbered.name = next(name for name in names if safe_name(name) not in used)
        used.add(numbered.safe_name)
        made.append(numbered)
    return tuple(made)


def as_names(value: object) -> object:
    """Return the value of `allowed_tools=` as names; a tool in it is replaced by its name. Raises ConfigError."""
    if value is None:
        return None
    if not isinstance(value, list | tuple | set | frozenset):
        raise ConfigError(f"allowed_tools is {value!r}; wanted a list of names of tools: allowed_tools=['search']")
    named = ((item, f"allowed_tools[{at}]") for at, item in enumerate(value))
    names = [item if isinstance(item, str) else _as_tool(item, where).name for item, where in named]
    return tuple(sorted(names) if isinstance(value, set | frozenset) else names)


def permitted(tools: Iterable[BaseTool], names: Sequence[str] | None) -> tuple[BaseTool, ...]:
    """Return the tools with these names, their own or those that models are told; None means all."""
    if names is None:
        return tuple(tools)
    return tuple(tool for tool in tools if not {tool.name, tool.safe_name}.isdisjoint(names))


class Toolbox:
    """The tools of an agent at work. Of two tools with the same name for models, the later one replaces the earlier."""

    def __init__(self, tools: Iterable[BaseTool], allowed: Sequence[str] | None = None) -> None:
        self._allowed = allowed
        self.tools = tuple({tool.safe_name: tool for tool in tools}.values())

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """What models are told of the tools."""
        return [tool.schema_for_model for tool in self.tools]

    def find(self, name: str) -> BaseTool | None:
        """Return the tool with this name, its own or the one that models are told; None if there is none."""
        return next((tool for tool in self.tools if name in (tool.safe_name, tool.name)), None)

    def missing(self, name: str) -> str:
        """Return what a model is told if it calls a tool that the agent does not have."""
        known = ", ".join(self.names) or "none"
        what = f"There is no tool {name!r}."
        if self._allowed is not None and name not in self._allowed:
            what = f"You are not allowed to call {name!r}."
        return f"{what} Tools you can use: {known}."

    @property
    def names(self) -> list[str]:
        """What models call them."""
        return sorted(tool.safe_name for tool in self.tools)


def _as_tool(item: object, where: str) -> BaseTool:
    if isinstance(item, BaseTool):
        return item
    if isinstance(item, type):
        raise ConfigError(f"{where} is the class {item.__name__}; wanted an instance: {item.__name__}(...)")
    adopted = foreign.adopt(item)
    if adopted is not None:
        return adopted
    if callable(item):
        return function.tool(item)
    raise ConfigError(
        f"{where} is {what_is(item)}; wanted a function with a docstring, a BaseTool, or a "
        f"tool of another framework (an object with a name, a description and a run or invoke)"
    )
