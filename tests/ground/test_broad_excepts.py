"""No exception is swallowed: whoever catches them all raises one, or reports it, or stands in a short list."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import crewlite

ROOT = Path(crewlite.__file__).parent
BROAD = {"Exception", "BaseException"}
SILENT = {
    "cli/checkpoint/where.py: _completed",
    "errors/foreign.py: add_note",
    "errors/foreign.py: attribute_of",
    "llm/library.py: cost",
    "runtime/kickoffs/stream.py: __aexit__",
    "runtime/kickoffs/stream.py: __exit__",
    "runtime/steps/failures.py: _built",
    "runtime/steps/beside.py: _alike",
    "runtime/steps/handover.py: hand_over",
    "state/journal/writer.py: _fence",
}
"""Where a broad except drops the exception: nobody wants it, or another error is raised in any case."""


class Catch(NamedTuple):
    """A place that catches all exceptions."""

    where: str
    line: int
    drops: bool
    """Whether it neither raises nor uses the exception."""
    goes_on: bool
    """Whether code after it may run: it does not end by raising, or may be left before it does."""
    comment: str


def catches(source: str, name: str) -> Iterator[Catch]:
    lines = source.splitlines()

    def walk(node: ast.AST, function: str) -> Iterator[Catch]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.ExceptHandler) and (node.type is None or names(node.type) & BROAD):
            inside = [one for part in node.body for one in ast.walk(part)]
            told = any(isinstance(one, ast.Name) and one.id == node.name for one in inside)
            told |= any(isinstance(one, ast.Attribute) and one.attr == "exception" for one in inside)  # log.exception
            drops = not told and not any(isinstance(one, ast.Raise) for one in inside)
            leaves = any(isinstance(one, ast.Return | ast.Continue | ast.Break) for one in inside)
            goes_on = leaves or not isinstance(node.body[-1], ast.Raise)
            yield Catch(f"{name}: {function}", node.lineno, drops, goes_on, comment_of(lines[node.lineno - 1]))
        if isinstance(node, ast.withitem) and isinstance(call := node.context_expr, ast.Call):
            if "suppress" in names(call.func) and any(names(one) & BROAD for one in call.args):
                yield Catch(f"{name}: {function}", call.lineno, True, True, comment_of(lines[call.lineno - 1]))
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function)

    yield from walk(ast.parse(source), "")


def names(node: ast.AST) -> set[str]:
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return found | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def comment_of(line: str) -> str:
    return line.partition("  # ")[2]


def all_catches() -> list[Catch]:
    return [
        catch
        for root in (ROOT, ROOT.parent / "examples")
        for path in sorted(root.rglob("*.py"))
        for catch in catches(path.read_text(encoding="utf-8"), path.relative_to(root).as_posix())
    ]


def test_who_catches_all_exceptions_and_goes_on_says_why_on_the_line() -> None:
    missing = [f"{one.where} (line {one.line})" for one in all_catches() if one.goes_on and not one.comment]
    assert not missing, f"no reason beside a broad except: {missing}"


def test_no_exception_is_dropped_but_in_the_listed_places() -> None:
    assert {one.where for one in all_catches() if one.drops} == SILENT


@pytest.mark.parametrize(
    ("source", "drops", "goes_on", "comment"),
    [
        ("try: f()\nexcept Exception:  # nobody cares\n    pass", True, True, "nobody cares"),
        ("try: f()\nexcept:\n    pass", True, True, ""),
        ("try: f()\nexcept (ValueError, Exception) as error:\n    log(error)", False, True, ""),
        ("try: f()\nexcept BaseException:\n    close()\n    raise", False, False, ""),
        ("def g():\n  try: f()\n  except Exception:\n    if odd(): return\n    raise", False, True, ""),
        ("with contextlib.suppress(Exception):  # why\n    f()", True, True, "why"),
    ],
)
def test_the_law_sees_what_it_is_about(source: str, drops: bool, goes_on: bool, comment: str) -> None:
    [found] = catches(source, "x.py")
    assert (found.drops, found.goes_on, found.comment) == (drops, goes_on, comment)
