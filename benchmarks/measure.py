"""What the subjects share: a row of the table, a clock that takes turns, a place on a real disk."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_SCRATCH = Path(__file__).parent / ".scratch"
PROC = Path("/proc/self")
_PROGRAM = sys.modules["__main__"]
if _PROGRAM.__spec__ is None and Path(getattr(_PROGRAM, "__file__", "")).parent == Path(__file__).parent:
    sys.exit(f"This is one subject of the table: python -m benchmarks {Path(str(_PROGRAM.__file__)).stem}")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. Smaller is better for us; no target means it is shown for its own sake.

    Without a value it was not measured, and `detail` says why.
    """

    measure: str
    value: float | None
    unit: str = ""
    target: float | None = None
    detail: str = ""
    """What the value was made from."""

    @property
    def verdict(self) -> str:
        """ok, over, or nothing where there is no target."""
        if self.target is None or self.value is None:
            return ""
        return "ok" if self.value <= self.target else "over"


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes. Garbage of what ran before is collected first."""
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(rounds: int, *works: Callable[[], object]) -> list[list[float]]:
    """Seconds of each of `works`, in each of `rounds` rounds: A, B, A, B, ..., after a round that does not count.

    A computer that is busy for a while is busy for all of them.
    """
    for work in works:
        work()
    return [list(each) for each in zip(*([seconds(work) for work in works] for _ in range(rounds)), strict=True)]


def ratio(of: list[float], to: list[float]) -> float:
    """The median of the ratios of each round."""
    return statistics.median(a / b for a, b in zip(of, to, strict=True))


def median_ms(times: list[float]) -> float:
    """The median of seconds, in milliseconds."""
    return statistics.median(times) * 1000


def scratch() -> Path:
    """Make an empty directory beside this file. Raises RuntimeError if it would be in memory.

    It is deleted when the program ends: ext4 does not use the place of a deleted file again for minutes, and looks for
    another one for each new file, so a deletion here would slow down what is measured next.
    """
    _SCRATCH.mkdir(exist_ok=True)
    if (kind := _file_system(_SCRATCH)) in ("tmpfs", "ramfs"):
        raise RuntimeError(f"{_SCRATCH} is on {kind}, where a sync costs nothing: move the checkout to a disk")
    directory = Path(tempfile.mkdtemp(dir=_SCRATCH))
    (directory / ".gitignore").write_text("*\n")
    inside = directory / "inside"
    inside.mkdir()
    atexit.register(_delete, directory)
    return inside


def _delete(directory: Path) -> None:
    shutil.rmtree(directory)
    with contextlib.suppress(OSError):  # others are left, or somebody else measures at the same time
        _SCRATCH.rmdir()


def _file_system(path: Path) -> str:
    """The kind of file system `path` is on, where the system tells ("" elsewhere)."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return ""
    known = (line.split()[1:3] for line in mounts.read_text().splitlines())
    holding = [(len(point), kind) for point, kind in known if path.resolve().is_relative_to(point)]
    return max(holding)[1] if holding else ""


def resident() -> int:
    """Resident memory in KB; 0 where there is no /proc."""
    gc.collect()
    if not PROC.exists():
        return 0
    pages = int((PROC / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024
