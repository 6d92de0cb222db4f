"""The path of one step: how much of crewlite runs, and how much of it a reader of an error has to look at.

A crew of one task, whose model answers once, on a JSON store. Counted are entries into functions of the package (a
coroutine that goes on counts again), on all threads, from the first line of the task's work to its last.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import crewlite
from benchmarks.measure import Row, scratch
from benchmarks.scenes import crew_of
from crewlite import CheckpointConfig, durable, kinds
from crewlite.durable import Step
from crewlite.flow import flow
from crewlite.runtime.steps.frame import Frame
from crewlite.testing import ScriptedLLM

_PACKAGE = str(Path(crewlite.__file__).parent)
_ROUNDS = 5


def measure() -> Iterator[Row]:
    calls, files, here = min(_inside_the_task() for _ in range(_ROUNDS))
    yield Row("crewlite calls inside a task, all threads", calls, "", 160, f"{here[0]} of them on the run's own")
    yield Row("files they are in", files, "", 18, f"{here[1]} of them on the run's own")
    yield Row("coroutines between asking for a step and its work", len(_between()), "", 3, ", ".join(_between()))
    yield Row("crewlite frames printed for a KeyError in a model", _printed(), "", 25)
    yield Row("attributes of a Frame", len(_attributes()), "", 10, ", ".join(_attributes()))


def _inside_the_task() -> tuple[int, int, tuple[int, int]]:
    """Calls and files on all threads, and the same on the thread of the run."""
    seen: list[tuple[str, int]] = []
    first = last = 0

    def hook(frame: FrameType, event: str, arg: object) -> None:
        nonlocal first, last
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return
        work = frame.f_code.co_qualname == "task_step.<locals>.act"
        if event == "call":
            seen.append((frame.f_code.co_filename, threading.get_ident()))
            first = first or work * len(seen)
        elif event == "return" and work:
            last = len(seen)

    directory = scratch()
    crew = crew_of(1, ScriptedLLM(["yes", "yes"]), checkpoint=CheckpointConfig(location=str(directory)))
    crew.kickoff()
    asyncio.run(_profiled(hook, crew.akickoff))
    counted = seen[first - 1 : last]
    own = [file for file, thread in counted if thread == threading.get_ident()]
    return len(counted), len({file for file, _ in counted}), (len(own), len(set(own)))


async def _profiled(hook: Callable[[FrameType, str, Any], None], work: Callable[[], Any]) -> None:
    threading.setprofile(hook)
    sys.setprofile(hook)
    try:
        await work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _between() -> list[str]:
    """The coroutines of crewlite on the stack between one that asks for a step and the work of that step."""
    found: list[str] = []

    async def work() -> None:
        frame = sys._getframe().f_back
        while frame and frame.f_code is not ask.__code__:
            if frame.f_code.co_flags & inspect.CO_COROUTINE:
                found.append(frame.f_code.co_name)
            frame = frame.f_back

    async def ask() -> None:
        await durable.scope().step(Step(kind=kinds.STEP, name="looked_at", work=work, question=None, events=_Silent()))

    flow(name="asking")(ask).kickoff()
    return found[::-1]


class _Silent:
    source = None

    def started(self) -> None:
        return None

    def completed(self, value: object) -> None:
        return None

    def failed(self, error: str, error_type: str) -> None:
        return None


def _printed() -> int:
    try:
        crew_of(1, ScriptedLLM([KeyError("colour")])).kickoff()
    except KeyError as error:
        printed = "".join(traceback.format_exception(error))
        return printed.count(f'File "{_PACKAGE}')
    raise RuntimeError("the model raised, and nobody heard of it")


def _attributes() -> list[str]:
    return [name for cls in Frame.__mro__ for name in getattr(cls, "__slots__", ())]
