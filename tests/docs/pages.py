"""What the documentation consists of: pages, the code blocks on them, and the docstrings of the package."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

import crewlite

ROOT = Path(__file__).parents[2]
PACKAGE = Path(crewlite.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "AGENTS.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

_FENCE = re.compile(r"^( *)```(.*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block. `line` is that of its first line of code, counted from 1."""

    language: str
    file: str
    """On ```python name.py, ```yaml name.yaml or ```jsonc name.jsonc: the file that the page says to save it as."""
    code: str
    line: int
    follows: bool
    """Nothing but blank lines stands between the block before and this one."""


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a text, in order. Raises ValueError if one is not closed.

    Languages: python (run), yaml and jsonc (saved), text (what the one above printed), console (commands and what they print),
    json (parsed), none (a drawing).
    """
    found: list[Block] = []
    lines = text.splitlines()
    number, blank = 0, False
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        if not opened:
            blank = blank and not lines[number].strip()
            number += 1
            continue
        indent, (language, _, file) = len(opened[1]), opened[2].strip().partition(" ")
        end = next((n for n in range(number + 1, len(lines)) if lines[n].strip() == "```"), None)
        if end is None:
            raise ValueError(f"the block opened in line {number + 1} is not closed")
        code = "\n".join(line[indent:] for line in lines[number + 1 : end])
        found.append(Block(language, file, code, number + 2, blank))
        number, blank = end + 1, True
    return found


@dataclass(frozen=True)
class Docstring:
    """A docstring of a module, class, function or attribute."""

    path: Path
    line: int
    text: str

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(PACKAGE.parent)}:{self.line}"


def docstrings(module: Path, containing: str = "") -> list[Docstring]:
    """The docstrings of a module that contain a text: the strings that stand alone as a statement."""
    source = module.read_text(encoding="utf-8")
    if containing not in source:
        return []
    return [
        Docstring(module, node.lineno, inspect.cleandoc(node.value.value))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and containing in node.value.value
    ]


_CODE = (ast.Assign, ast.AnnAssign, ast.Call, ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.With)


def stray_code(text: str) -> list[str]:
    """Paragraphs that are Python and stand neither in a fence nor in a doctest, so that no test would run them."""
    bare = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = []
    for paragraph in re.split(r"\n[ \t]*\n", bare):
        code = textwrap.dedent(paragraph).strip()
        if code and not code.startswith((">>>", "Returns:", "Raises:")) and _is_code(code):
            found.append(code)
    return found


def _is_code(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return False
    return any(isinstance(node, _CODE) for node in ast.walk(tree))
