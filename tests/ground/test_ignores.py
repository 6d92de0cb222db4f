"""Where the type checker or the linter is told to look away, the line says why."""

from __future__ import annotations

import re
from pathlib import Path

import crewlite

ROOT = Path(crewlite.__file__).parent
TOLD_TO_LOOK_AWAY = re.compile(r"# (?:type: ignore\[[\w,-]+\]|noqa: \w+)(?P<reason>.*)")


def test_the_line_says_why() -> None:
    silent = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted(ROOT.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (found := TOLD_TO_LOOK_AWAY.search(line)) and not re.match(r"  # (?!noqa)\w| - \w", found["reason"])
    ]
    assert silent == []
