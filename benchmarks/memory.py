"""Memory: a process that kicks off all day must not grow.

In a process of its own: 200 kickoffs of a crew of two tasks to warm up, then 2,000. The value is how much resident
memory grew over them, per kickoff; the trend is what the last third grew by, per kickoff, beyond the third before it.
Threads and open files are counted before and after. On JSON files something else keeps the store open all the while,
and each kickoff has inputs of 200 kB. Needs /proc; elsewhere there is nothing to show.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator

from benchmarks.measure import PROC, Row, resident, scratch
from benchmarks.scenes import answering, crew_of, stored
from crewlite.state import RuntimeState

_WARM_UP, _KICKOFFS = 200, 2000
_INPUTS = 200_000  # bytes


def measure() -> Iterator[Row]:
    if not PROC.exists():
        return
    for store in ("no store", "sqlite", "json"):
        command = [sys.executable, "-m", __name__, store]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        start, first, second, third = found["kilobytes"]
        detail = f"{start / 1024:.1f} MB, then {first - start:+} {second - start:+} {third - start:+} KB"
        yield Row(f"{store}: memory growth per kickoff", (third - start) / _KICKOFFS, "KB", 2.0, detail)
        trend = ((third - second) - (second - first)) / (_KICKOFFS / 3)
        yield Row(f"{store}: growth of the last third beyond the one before", trend, "KB", 0.5)
        yield Row(f"{store}: threads and files left open", found["threads"] + found["files"], "", 0)


def _grow(store: str) -> None:
    directory = scratch()
    with contextlib.ExitStack() as stack:
        llm = answering()
        checkpoint = stored("sqlite" if store == "sqlite" else "json", directory) if store != "no store" else None
        crew, inputs = crew_of(2, llm, checkpoint=checkpoint), dict[str, object]()
        if store == "json" and checkpoint:
            stack.enter_context(RuntimeState.open("beside", location=checkpoint.location))
            inputs = {"notes": "x" * _INPUTS}
        for _ in range(_WARM_UP):
            crew.kickoff(inputs)
        llm.calls.clear()
        threads, files, kilobytes = threading.active_count(), _open_files(), [resident()]
        for n in range(1, _KICKOFFS + 1):
            crew.kickoff(inputs)
            llm.calls.clear()  # the model remembers what it was asked, for tests to look at
            if n in (_KICKOFFS // 3, _KICKOFFS * 2 // 3, _KICKOFFS):
                kilobytes.append(resident())
        found = {"threads": threading.active_count() - threads, "files": _open_files() - files}
    print(json.dumps({"kilobytes": kilobytes, **found}))


def _open_files() -> int:
    return len(list((PROC / "fd").iterdir()))


if __name__ == "__main__":
    _grow(sys.argv[1])
