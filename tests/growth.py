"""Count the work of a piece of code, function by function, to compare it for an input of one size and one twice as long.

Counted are lines that Python begins and the items of collections that methods written in C go through, on all threads.
Nothing is timed: how busy the machine is does not matter.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sized
from types import CodeType, FrameType
from typing import Any, NamedTuple

Work = dict[str, int]
"""Units of work by function, as file:name."""

_MOST = 2.5  # times the work for an input twice as long; what is linear but for a logarithm stays below
_FEW = 5  # units of work for each item of the longer input, from which a function is looked at
_ON_ALL = frozenset(("copy", "count", "difference", "index", "issubset", "remove", "reverse", "sort", "union"))
"""Methods of builtin collections that go through all that the collection holds."""


def counted(code: Callable[[], object]) -> Work:
    """Run the code and return its work."""
    units, others = dict[int, Units](), Counter[CodeType]()

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        code_object = frame.f_code  # to hash it, Python hashes its constants and names each time
        found = units.get(id(code_object)) or units.setdefault(id(code_object), _units_of(code_object))
        return found.count(frame, event, arg)

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call" and arg.__name__ in _ON_ALL and isinstance(arg.__self__, Sized):
            others[frame.f_code] += len(arg.__self__)

    before = sys.gettrace(), sys.getprofile()
    gc.collect()  # garbage of other code is found by some of what is counted: asyncio's set of all tasks, for one
    gc.freeze()  # what is alive need not be looked through again the next time
    gc.disable()  # what it finalises belongs to other code
    threading.settrace(trace)
    threading.setprofile(profile)
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        code()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
        threading.settrace(before[0])  # type: ignore[arg-type]
        threading.setprofile(before[1])  # type: ignore[arg-type]
        gc.enable()
    found = Counter[str]()
    lines = [(one.code, one.so_far()) for one in list(units.values())]  # other threads go on counting
    for code_object, count in (*lines, *dict(others).items()):
        found[f"{code_object.co_filename}:{code_object.co_qualname}"] += count
    return found


class Units(NamedTuple):
    """The lines that a code object begins: what counts them, and how many there are so far."""

    code: CodeType
    count: Callable[[FrameType, str, object], Any]
    so_far: Callable[[], int]


def _units_of(code: CodeType) -> Units:
    units = 0

    def count(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal units
        if event in ("call", "line"):
            units += 1
        return count

    return Units(code, count, lambda: units)


def faster_than_linear(short: Work, long: Work, items: int) -> list[str]:
    """Return a line for each function whose work more than doubles where the input does. `items`: of the longer input."""
    return [
        f"{name}: {short.get(name, 0):,} units of work, and {count:,} for twice as many"
        for name, count in sorted(long.items(), key=lambda one: -one[1])
        if count > _MOST * short.get(name, 0) and count > _FEW * items
    ]
