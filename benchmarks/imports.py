"""Importing: what a program pays before it does anything.

Whole fresh processes, timed from outside, in turns: one that imports Agent, Crew and Task; one that imports pydantic
and makes one small model, which no program of this kind can avoid; one that does nothing. Nothing is subtracted,
except in the second row, which leaves out the start of the interpreter.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.measure import Row, in_turns, median_ms, ratio

_ROUNDS = 15
_CREWLITE = "from crewlite import Agent, Crew, Task"
_PYDANTIC = "from pydantic import BaseModel\nclass Small(BaseModel):\n    name: str\n    size: int = 0\nSmall(name='a')"
_LATER = ("litellm", "sqlite_utils", "sqlite3", "jinja2", "rich", "click")


def measure() -> Iterator[Row]:
    own, floor, bare = in_turns(
        _ROUNDS, lambda: _python(_CREWLITE), lambda: _python(_PYDANTIC), lambda: _python("pass")
    )
    detail = f"{median_ms(own):.0f} ms; pydantic and a model {median_ms(floor):.0f} ms; python {median_ms(bare):.0f} ms"
    yield Row("import, whole process, against pydantic", ratio(own, floor), "x", 2.0, detail)
    start = statistics.median(bare)
    less = [t - start for t in own], [t - start for t in floor]
    yield Row("import, without the interpreter's start", ratio(*less), "x")
    loaded = _loaded()
    yield Row("heavy modules loaded by import", len(loaded), "", 0, " ".join(loaded) or f"none of {', '.join(_LATER)}")


def _loaded() -> list[str]:
    return _python(f"{_CREWLITE}\nimport sys\nprint(*[name for name in {_LATER} if name in sys.modules])").split()


def _python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
