"""Importing: what a program pays before it does anything, and with all that its first kickoff imports.

The CPU time of whole fresh processes, in turns: one that imports Agent, Crew and Task; one that kicks off a crew of one
task on a JSON store; both with an earlier commit; one that imports pydantic and makes one small model, which no program
of this kind can avoid; one that does nothing.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Row, median_ms, ratio, scratch

_ROUNDS = 15
_CREWLITE = "from crewlite import Agent, Crew, Task"
_PYDANTIC = "from pydantic import BaseModel\nclass Small(BaseModel):\n    name: str\n    size: int = 0\nSmall(name='a')"
_FIRST = """
import sys
from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.testing import ScriptedLLM

agent = Agent(role="Writer", goal="write", backstory="", llm=ScriptedLLM(["yes"]))
task = Task(description="say yes", expected_output="yes", agent=agent)
Crew(agents=[agent], tasks=[task], checkpoint=CheckpointConfig(location=sys.argv[1])).kickoff()
"""
_LATER = ("litellm", "sqlite_utils", "sqlite3", "jinja2", "rich", "click")
_HERE = Path(__file__).parents[1]
_BEFORE = "6576a54"


def measure() -> Iterator[Row]:
    place = scratch()
    before = _checked_out(_BEFORE, place / "before")
    homes = {"own": _HERE, "first": _HERE, "bare": _HERE, "floor": _HERE}
    homes |= {"before": before, "first before": before} if before else {}
    codes = {"own": _CREWLITE, "bare": "pass", "floor": _PYDANTIC, "before": _CREWLITE}
    codes |= {"first": _FIRST, "first before": _FIRST}
    times: dict[str, list[float]] = {name: [] for name in homes}
    for number in range(_ROUNDS + 1):
        for name, home in homes.items():
            took = _cpu(codes[name], home, place / "bytecode", place / f"{name}-{number}")
            if number:  # the first one compiles
                times[name].append(took)
    own, floor, bare = times["own"], times["floor"], times["bare"]
    detail = f"{median_ms(own):.0f} ms; pydantic and a model {median_ms(floor):.0f} ms; python {median_ms(bare):.0f} ms"
    yield Row("import, CPU, against pydantic and one model", ratio(own, floor), "x", 1.8, detail)
    if before:
        detail = f"{median_ms(times['before']):.0f} ms then"
        yield Row(f"import, CPU, against commit {_BEFORE}", ratio(own, times["before"]), "x", 0.55, detail)
        first, earlier = times["first"], times["first before"]
        detail = f"{median_ms(first):.0f} ms; {median_ms(earlier):.0f} ms then"
        yield Row(f"program of one task, CPU, against commit {_BEFORE}", ratio(first, earlier), "x", 1.0, detail)
    else:
        yield Row(f"import, CPU, against commit {_BEFORE}", None, "x", 0.55, "this checkout has no such commit")
    loaded = _loaded()
    yield Row("heavy modules loaded by import", len(loaded), "", 0, " ".join(loaded) or f"none of {', '.join(_LATER)}")


def _checked_out(commit: str, place: Path) -> Path | None:
    done = subprocess.run(["git", "archive", commit, "crewlite"], cwd=_HERE, capture_output=True, check=False)
    if done.returncode:
        return None
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(place, filter="data")
    return place


def _cpu(code: str, home: Path, bytecode: Path, store: Path) -> float:
    """Seconds of CPU of one fresh process, which finds its modules compiled. `store`: its argument."""
    env = {**os.environ, "PYTHONPATH": str(home), "PYTHONPYCACHEPREFIX": str(bytecode)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    child = subprocess.Popen([sys.executable, "-c", code, str(store)], env=env, cwd=bytecode.parent)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, code)
    return used.ru_utime + used.ru_stime


def _loaded() -> list[str]:
    code = f"{_CREWLITE}\nimport sys\nprint(*[name for name in {_LATER} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
