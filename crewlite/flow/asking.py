"""Whether a flow asks people, as far as its code tells: one that nobody could answer is refused before it is paid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from crewlite.flow.steps import StepFunction
from crewlite.runtime.human import ask


def asks_people(func: Callable[..., Any]) -> bool:
    """Whether a function calls `ask`, or a step does that it names, or a function of its own module that it names."""
    seen: set[int] = set()
    todo: list[Any] = [func]
    while todo:
        looked_at = todo.pop()
        if id(looked_at) in seen or not isinstance(looked_at, FunctionType):
            continue
        seen.add(id(looked_at))
        for named in _named(looked_at):
            if named is ask:
                return True
            if isinstance(named, StepFunction):
                todo.append(named.func)
            elif getattr(named, "__module__", None) == looked_at.__module__:
                todo.append(getattr(named, "func", named))  # a flow, too, is called as a part of this one
    return False


def _named(func: FunctionType) -> Iterator[object]:
    """What the names in a function stand for, with the `ask` of a module that it names."""
    names = set(_names(func.__code__))
    cells = zip(func.__code__.co_freevars, func.__closure__ or (), strict=False)
    inner = {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
    for name in names | inner.keys():
        found = inner.get(name, func.__globals__.get(name))
        yield found
        if isinstance(found, ModuleType) and "ask" in names:
            yield getattr(found, "ask", None)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # what it stands for comes later
        return False
