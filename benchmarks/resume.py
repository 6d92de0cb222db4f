"""Resuming: how long until a run of 1,000 finished tasks goes on.

The last of 1,001 tasks fails. Then the same crew is kicked off again with its run_id, in the same process, and the
last task succeeds: the whole second kickoff, from a fresh copy of the store each time.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Row, median_ms, scratch, seconds
from benchmarks.scenes import KINDS, Kind, answering, crew_of, failing_at, stored

_FINISHED = 1000
_ROUNDS = 5


def measure() -> Iterator[Row]:
    for kind in KINDS:
        for named in (True, False):
            directory = scratch()
            times = _resumes(kind, directory, named)
            title = f"{kind}: resume of 1,000 finished tasks, {'named' if named else 'without names'}"
            yield Row(title, median_ms(times), "ms", 150)


def _resumes(kind: Kind, directory: Path, named: bool) -> list[float]:
    original = directory / "original"
    crew = crew_of(_FINISHED + 1, failing_at(_FINISHED + 1), named=named, checkpoint=stored(kind, original))
    with contextlib.suppress(ValueError):
        crew.kickoff(run_id="report")
    times = []
    for number in range(_ROUNDS):
        copy = directory / f"copy-{number}"
        shutil.copytree(original, copy)
        llm = answering()
        again = crew_of(_FINISHED + 1, llm, named=named, checkpoint=stored(kind, copy))
        times.append(seconds(lambda again=again: again.kickoff(run_id="report")))
        assert len(llm.calls) == 1, f"{len(llm.calls)} calls were made, and one was to be"
    return times
