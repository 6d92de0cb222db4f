"""Whether there is an error is asked with `is None`: an error of the user's may be false, or have the length 0."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import crewlite

ROOT = Path(crewlite.__file__).parent
MAY_BE_NONE = re.compile(r"(?<!type\[)\b(Base)?Exception \| None")
LED_TO_IT = {"__cause__", "__context__"}


def doubtful(source: str) -> Iterator[str]:
    """Where code takes an error as a truth value: one that is the argument of a function, or that a future has."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            names = set(errors_in(function))
            for tested in truths_in(function):
                if is_error(tested) or ast.unparse(named(tested)) in names:
                    yield f"{tested.lineno}: {ast.unparse(tested)}"


def errors_in(function: ast.AST) -> Iterator[str]:
    """The names of a function that may be errors."""
    for node in ast.walk(function):
        match node:
            case ast.arg(arg=name, annotation=ast.expr() as hint) if MAY_BE_NONE.search(ast.unparse(hint)):
                yield name
            case ast.AnnAssign(target=target, annotation=hint) if MAY_BE_NONE.search(ast.unparse(hint)):
                yield ast.unparse(target)
            case ast.Assign(targets=[target], value=value) | ast.NamedExpr(target=target, value=value):
                if any(map(is_error, (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,))):
                    yield ast.unparse(target)
            case ast.ExceptHandler(name=str() as name):
                yield name


def is_error(value: ast.AST) -> bool:
    """Whether this is `future.exception()`, or what led to an error."""
    match named(value):
        case ast.Call(func=ast.Attribute(attr="exception")):
            return True
        case ast.Attribute(attr=name):
            return name in LED_TO_IT
    return False


def named(value: ast.AST) -> ast.AST:
    """What a walrus names, or the expression itself."""
    return value.value if isinstance(value, ast.NamedExpr) and is_error(value.value) else value


def truths_in(function: ast.AST) -> Iterator[ast.expr]:
    """The expressions in a function that are taken as truth values."""
    for node in ast.walk(function):
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
                yield from parts(test)
            case ast.UnaryOp(op=ast.Not(), operand=test):
                yield from parts(test)
            case ast.BoolOp(values=[*tested, _]):  # the last one is the value, unless the whole is tested
                yield from tested
            case ast.comprehension(ifs=tests):
                yield from tests


def parts(test: ast.expr) -> list[ast.expr]:
    return test.values if isinstance(test, ast.BoolOp) else [test]


def test_no_error_is_taken_as_a_truth_value():
    found = {str(path.relative_to(ROOT)): [*doubtful(path.read_text("utf-8"))] for path in sorted(ROOT.rglob("*.py"))}
    assert {path: places for path, places in found.items() if places} == {}


@pytest.mark.parametrize(
    "body",
    [
        "if error: pass",
        "return 1 if error else 2",
        "return error or other",
        "return [one for one in all if not error]",
        "while not done and error: pass",
        "if (found := future.exception()): pass",
        "found = task.exception() if task.done() else None\n    return found or 1",
        "return error.__cause__ or error.__context__",
        "try: pass\n    except ValueError as failed:\n        return failed or 1",
    ],
)
def test_the_check_finds(body):
    assert [*doubtful(f"def call(error: BaseException | None):\n    {body}")]


@pytest.mark.parametrize(
    "body",
    [
        "if error is not None: pass",
        "future.add_done_callback(lambda done: done.cancelled() or done.exception())",
        "if (found := future.exception()) is not None: pass",
        "if errors: pass",
    ],
)
def test_the_check_lets_pass(body):
    assert not [*doubtful(f"def call(error: BaseException | None):\n    {body}")]
