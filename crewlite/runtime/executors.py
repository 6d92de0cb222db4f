"""Where the work of a step is done: here, or in a process of its own.

An executor only does the work. Order, retries, limits and the record are the runner's, so a crash of the process is an
attempt that failed, and not the end of the run.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Literal, Protocol, cast

from crewlite import background, codec, durable, tracebacks
from crewlite.errors import ConfigError, NotCodable, StepCrashed, text_of
from crewlite.runtime.failures import Told, raised, written
from crewlite.runtime.future import settled
from crewlite.runtime.step_scope import StepScope

Runtime = Literal["inline", "isolated"]


@dataclass(frozen=True, slots=True)
class Job:
    """A call to make."""

    name: str
    """What errors call it."""
    func: Callable[..., Any]
    is_async: bool
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    idempotency_key: str = ""
    counts: bool = True
    """Whether it is one of so many that may block a thread at once; a flow, which mostly waits, is not."""


class Executor(Protocol):
    """Does the work of steps: `@step(runtime=my_executor)` takes any object with these two methods."""

    def check(self, name: str, func: Callable[..., Any]) -> None:
        """Raises ConfigError for a function that it cannot call; when it is decorated, not in the middle of a run."""

    async def run(self, job: Job) -> Any:
        """Make the call. Raises what it raises. If it is cancelled, the call is over, as far as that can be had."""


class Inline:
    """Here: an async function on the run's loop, a blocking one in a thread of its own."""

    def check(self, name: str, func: Callable[..., Any]) -> None:
        """Any function will do."""

    async def run(self, job: Job) -> Any:
        """Make the call."""
        if job.is_async:
            if isinstance(frame := durable.scope(), StepScope):
                frame.task = asyncio.current_task()
            value = await job.func(*job.args, **job.kwargs)
        else:
            in_thread = background.blocking if job.counts else background.in_thread
            value = await in_thread(job.func, *job.args, **job.kwargs)
        return settled(value, f"the result of {job.name}")


class Isolated:
    """In a process of its own, started anew, with nothing of this one but the arguments; killed when time is up."""

    def check(self, name: str, func: Callable[..., Any]) -> None:
        """It must be found by its name in its module, as nothing but names and plain data travels."""
        if not inspect.isfunction(func):
            raise _unfit(name, f"{func!r}, which is no function of Python")
        if "<lambda>" in func.__qualname__:
            raise _unfit(name, "a lambda, which has no name")
        if "." in func.__qualname__:
            where = "a function" if "<locals>" in func.__qualname__ else "a class"
            raise _unfit(name, f"{func.__qualname__}, which is defined inside {where}")

    async def run(self, job: Job) -> Any:
        """Make the call there. Raises what it raises, or StepRaised for it; StepCrashed if it died; NotCodable."""
        module, called = job.func.__module__, job.func.__name__
        known = getattr(sys.modules.get(module), called, None)
        if getattr(known, "func", known) is not job.func:
            raise _unfit(job.name, f"{called}, which is not what module {module} has under that name")
        if module == "__main__" and getattr(sys.modules[module], "__file__", "<notebook>").startswith("<"):
            raise _unfit(job.name, f"{called}, which is in no file: it was typed into a notebook or at a prompt")
        try:
            call = codec.dumps(codec.encode([list(job.args), job.kwargs]))
        except NotCodable as error:
            raise NotCodable(f"an argument of {job.name}", error.found, "it cannot travel to a process") from None
        here, there = multiprocessing.get_context("spawn").Pipe()
        child = multiprocessing.get_context("spawn").Process(
            target=_serve,
            args=(there, module, called, job.idempotency_key),
            name=f"crewlite-{job.name}",
            daemon=True,
        )
        over = threading.Event()
        try:
            answer = await background.blocking(_ask, child, here, there, call, over)
        finally:
            over.set()  # what is not there yet must not begin, or be killed by who starts it
            if child.pid is not None and child.exitcode is None:
                child.kill()  # cancelled, or its time is up
        if answer is None:
            raise StepCrashed(job.name, child.exitcode)
        told = json.loads(answer)
        if "error" in told:
            raise raised(job.name, Told(**told["error"]))
        return codec.decode(told["value"])


def _unfit(name: str, what: str) -> ConfigError:
    return ConfigError(
        f"@step {name!r} is {what}, so another process cannot find it; runtime='isolated' takes a function at the top "
        f"level of a module, under its own name"
    )


EXECUTORS: dict[Runtime, Executor] = {"inline": Inline(), "isolated": Isolated()}


def executor_of(name: str, runtime: Any) -> Executor:
    """The executor that a step's `runtime` names, or is. Raises ConfigError."""
    if isinstance(runtime, str) and runtime in EXECUTORS:
        return EXECUTORS[runtime]
    check, run = getattr(runtime, "check", None), getattr(runtime, "run", None)
    if isinstance(runtime, type) or not callable(check) or not inspect.iscoroutinefunction(run):
        raise ConfigError(
            f"@step {name!r}: runtime is {runtime!r}; wanted one of {', '.join(EXECUTORS)}, or an executor: an object "
            f"with check(name, func) and async run(job)"
        )
    return cast(Executor, runtime)


def _ask(child: Any, here: Connection, there: Connection, call: bytes, over: threading.Event) -> bytes | None:
    """Start the process and wait for its answer; None if it ended without one, or it is over before. Blocks."""
    with here, there:
        if over.is_set():
            return None
        child.start()
        there.close()
        if over.is_set():
            child.kill()
        try:
            here.send_bytes(call)
            answer = here.recv_bytes()
        except (EOFError, OSError):
            answer = None
        child.join()
        return answer


def _serve(pipe: Connection, module: str, name: str, key: str) -> None:
    """The life of the process: one call."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    call = json.loads(pipe.recv_bytes())
    try:
        func = _found(module, name)
        codec.declare_hints(func)
        args, kwargs = codec.decode(call)
        with durable.entered(_Alone(key)):
            value = asyncio.run(func(*args, **kwargs)) if inspect.iscoroutinefunction(func) else func(*args, **kwargs)
        answer = {"value": codec.encode(value, f"the result of {name}")}
    except Exception as error:  # noqa: BLE001 - the border: told to the run, as its own
        told = {"message": text_of(error), "traceback": tracebacks.text(error), "raised": written(error)}
        answer = {"error": {"error_type": type(error).__qualname__, **told}}
    pipe.send_bytes(codec.dumps(answer))
    pipe.close()


class _Alone(type(durable.PLAIN)):  # type: ignore[misc]
    """The scope of a step in another process: no run, only the idempotency key of the call that started it."""

    def __init__(self, key: str) -> None:
        self.idempotency_key = key


def _found(module: str, name: str) -> Any:
    if module == "__main__":  # as the process that was started knows the program's own file
        module = "__mp_main__" if "__mp_main__" in sys.modules else module
    found = getattr(importlib.import_module(module), name)
    return getattr(found, "func", found)  # of the step that was made of it


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # nobody is left to hear the answer
