"""What the tests of the source share: every module of the package, and what a fresh interpreter finds."""

from __future__ import annotations

import ast
import json
import sys
import textwrap
from functools import cache
from pathlib import Path
from typing import TypeGuard

import crewlite
from tests import children

ROOT = Path(crewlite.__file__).parent


@cache
def modules() -> dict[str, Path]:
    """Every module of the package, by its dotted name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def is_text(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def ask(code: str) -> object:
    """What a fresh interpreter prints as JSON."""
    done = children.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
