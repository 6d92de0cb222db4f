"""Find the labels that a router may return, from its annotations or its source code."""

from __future__ import annotations

import ast
import inspect
import textwrap
import tokenize
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from types import FunctionType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from crewlite.definitions.callables import types_of
from crewlite.errors import ConfigError, meant


def label_of(result: object, router: str, declared: frozenset[str] | None = None, recorded_at: str = "") -> str | None:
    """Return the label that a router's result stands for: a text, the value of an Enum, True or False; None for None.

    The value of an Enum may be text or a whole number. Raises ConfigError for anything else, and for a label that is
    not `declared`. `recorded_at`: the address of a recorded result, for the message.
    """
    value = result.value if isinstance(result, Enum) else result
    if value is None:
        return None
    if not isinstance(value, str | bool) and not (isinstance(result, Enum) and isinstance(value, int)):
        raise ConfigError(
            f"Router {router!r} returned {result!r}; wanted a label: a text, a member of an Enum, True or False, or "
            f"None for no label"
        )
    label = str(value)
    if declared is not None and label not in declared:
        hint = meant(label, declared) or f"its labels are {', '.join(map(repr, sorted(declared))) or 'none'}"
        verb, then = "returned", ""
        if recorded_at:
            verb = "has recorded"
            then = f". Undo the change to its code, or run it again: flow.fork(ref, rerun=[{recorded_at!r}]).kickoff()"
        raise ConfigError(f"Router {router!r} {verb} the label {label!r}, which it does not declare; {hint}{then}")
    return label


def listed(emit: object) -> tuple[str, ...] | None:
    """Return the labels that `emit=` lists as texts or members of an Enum; None if it lists none, or anything else."""
    given = [label_of(one, "") if isinstance(one, Enum) else one for one in emit] if isinstance(emit, Iterable) else []
    labels = tuple(one for one in given if isinstance(one, str) and one)
    return labels if labels and len(labels) == len(given) else None


def known_labels(func: Callable[..., Any]) -> frozenset[str] | None:
    """Return the labels that a router may return, from its return annotation or its source; None if not known."""
    annotated = annotated_labels(func)
    return _of_source(func) if annotated is None else annotated


def annotated_labels(func: Callable[..., Any]) -> frozenset[str] | None:
    """Return the labels that a router's return annotation lists; None if it lists none."""
    return _of_hint(types_of(func).get("return", inspect.Parameter.empty), getattr(func, "__name__", ""))


def _of_hint(hint: Any, router: str) -> frozenset[str] | None:
    if hint is None or hint is type(None):
        return frozenset()
    if get_origin(hint) is Literal:
        return _labels(get_args(hint), router)
    if get_origin(hint) in (Union, UnionType):
        parts = [_of_hint(part, router) for part in get_args(hint)]
        return None if None in parts else frozenset().union(*(part for part in parts if part))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _labels(hint)
    return frozenset(("True", "False")) if hint is bool else None


def _labels(values: Iterable[object], router: str = "") -> frozenset[str]:
    found = (label_of(value, router) for value in values)
    return frozenset(label for label in found if label is not None)


def _of_source(router: Callable[..., Any]) -> frozenset[str] | None:
    func = inspect.unwrap(router)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(func)))
    except (OSError, TypeError, SyntaxError, tokenize.TokenError):
        return None
    own = next((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)), None)
    if not isinstance(func, FunctionType) or own is None or own.name != func.__code__.co_name:
        return None  # for code compiled from a text, inspect may return lines of another file
    found: set[object] = set()
    local = _constants(own, func)
    for node in _own_nodes(own):
        if isinstance(node, ast.Return) and node.value is not None:
            values = _values(node.value, local, func)
            if values is None:
                return None
            found |= values
    return _labels(found)


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those of nested functions."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield child
            yield from _own_nodes(child)


def _constants(function: ast.AST, func: FunctionType) -> dict[str, set[object] | None]:
    """Return the values that each local name of a function may have; None for a name that may have any value."""
    code, assigned = func.__code__, dict[str, set[object] | None]()
    plain = set[ast.AST]()  # the targets of assignments such as `a = b = "left"`
    for node in _own_nodes(function):
        if isinstance(node, ast.Assign) and all(isinstance(target, ast.Name) for target in node.targets):
            values = _values(node.value, {}, func)
            for target in node.targets:
                assert isinstance(target, ast.Name)
                before = assigned.get(target.id, set())
                assigned[target.id] = None if values is None or before is None else before | values
                plain.add(target)
    stored = (node for node in _own_nodes(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    otherwise = {*inspect.signature(func).parameters, *(name.id for name in stored if name not in plain)}
    local = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    return {name: None if name in otherwise else assigned.get(name) for name in local}


def _values(node: ast.AST, local: dict[str, set[object] | None], func: FunctionType) -> set[object] | None:
    """Return the values that an expression may have; None if they cannot be known."""
    match node:
        case ast.Constant(value=None | str() | bool() as value):
            return {value}
        case ast.IfExp(body=one, orelse=other):
            first, second = _values(one, local, func), _values(other, local, func)
            return None if first is None or second is None else first | second
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return {True, False}
        case ast.Name(id=name) if name in local:
            return local[name]
        case ast.Name(id=name):
            value = func.__globals__.get(name)
            return {value} if isinstance(value, str) else None
        case ast.Attribute(value=ast.Attribute() as inside, attr="value"):
            members = _values(inside, local, func) or ()
            return {one.value for one in members if isinstance(one, Enum) and isinstance(one.value, str | bool)} or None
        case ast.Attribute(value=ast.Name(id=name), attr=member):
            kind = func.__globals__.get(name)
            if isinstance(kind, type) and issubclass(kind, Enum) and member in kind.__members__:
                return {kind[member]}
    return None
