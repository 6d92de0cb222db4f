"""The tools of an agent or a task: what was given for them, and finding one by what a model calls it."""

from __future__ import annotations

from collections.abc import Iterable

from crewlite.errors import ConfigError, an
from crewlite.tools.base import BaseTool
from crewlite.tools.foreign import adopt
from crewlite.tools.function import tool as make_tool


def as_tools(value: object) -> object:
    """What was given as `tools=`, as tools: functions and tools of other frameworks become some. Raises ConfigError."""
    if isinstance(value, str | bytes):
        raise ConfigError(f"tools is {value!r}; wanted a list of tools: tools=[...]")
    if isinstance(value, BaseTool) or callable(value) or isinstance(getattr(value, "name", None), str):
        raise ConfigError("tools is one tool; wanted a list: tools=[...]")
    if not isinstance(value, list | tuple):
        return value
    made = tuple(_as_tool(item, number) for number, item in enumerate(value))
    by_name: dict[str, BaseTool] = {}
    for item in made:
        other = by_name.setdefault(item.safe_name, item)
        if other is not item or made.count(item) > 1:
            names = " and ".join(sorted({other.name, item.name}))
            what = f"the tool {names} is listed twice" if other is item else f"two tools are named {names}"
            raise ConfigError(
                f"{what}; a model could not tell them apart: {'remove' if other is item else 'rename'} one"
            )
    return made


class Toolbox:
    """An agent's tools at work. Of two that a model knows by the same name, the later one takes the place."""

    def __init__(self, tools: Iterable[BaseTool]) -> None:
        self.tools = tuple({tool.safe_name: tool for tool in tools}.values())
        self._named = {tool.name: tool for tool in self.tools} | {tool.safe_name: tool for tool in self.tools}

    def find(self, name: str) -> BaseTool | None:
        """The tool of this name, be it its own or the one it is offered under."""
        return self._named.get(name)

    @property
    def names(self) -> list[str]:
        """What models call them."""
        return sorted(tool.safe_name for tool in self.tools)


def _as_tool(item: object, number: int) -> BaseTool:
    if isinstance(item, BaseTool):
        return item
    if isinstance(item, type):
        raise ConfigError(f"tools[{number}] is the class {item.__name__}; wanted an instance: {item.__name__}(...)")
    adopted = adopt(item)
    if adopted is not None:
        return adopted
    if callable(item):
        return make_tool(item)
    raise ConfigError(
        f"tools[{number}] is {an(type(item).__name__)}; wanted a function with a docstring, a BaseTool, or a "
        f"tool of another framework (an object with a name, a description and a run or invoke)"
    )
