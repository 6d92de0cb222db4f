"""Executors make the call of a step: in this process, or in a separate one.

An executor only makes the call. Order, retries, limits and recording happen around it, so the crash of a separate
process is one failed attempt and not the end of the run.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, Literal, Protocol, cast

from crewlite import durable
from crewlite.concurrency import background
from crewlite.concurrency.own_threads import on_own_loop
from crewlite.encoding import codec
from crewlite.errors import ConfigError, StepCrashed, text_of
from crewlite.runtime.steps.failures import ReportedFailure, raised, written
from crewlite.runtime.steps.future import settled
from crewlite.runtime.steps.step_scope import StepScope
from crewlite.texts import tracebacks

Runtime = Literal["inline", "isolated"]


@dataclass(frozen=True, slots=True)
class Job:
    """A call for an executor to make. It can be pickled if the function and its arguments can."""

    name: str
    """The step's name, for error messages."""
    func: Callable[..., Any]
    is_async: bool
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    idempotency_key: str = ""
    """A key for services that the step calls: the same in all attempts, different for each step, run and branch."""
    counts: bool = True
    """Whether a blocking call counts towards the limit on threads that block at once. Calls of flows, which mostly
    wait, do not."""
    blocks: bool = False
    """Whether the function is async and calls a method that blocks, so that it needs an event loop of its own."""


class Executor(Protocol):
    """Makes the calls of steps: `@step(runtime=my_executor)` takes any object with these two methods."""

    def check(self, name: str, func: Callable[..., Any]) -> None:
        """Raise ConfigError for a function that this executor cannot call.

        Called when `func` is decorated, so that the error does not come in the middle of a run.
        """

    async def run(self, job: Job) -> Any:
        """Make the call and return its result. Raises what the call raises.

        If this coroutine is cancelled, the call should end as well, as far as that is possible.
        """


class Inline:
    """Runs an async function on the run's loop, and one that blocks in a thread of this process."""

    def check(self, name: str, func: Callable[..., Any]) -> None:
        """Accept any function."""

    async def run(self, job: Job) -> Any:
        """Make the call."""
        in_thread = background.blocking if job.counts else background.in_thread
        if job.is_async and not job.blocks:
            if isinstance(frame := durable.scope(), StepScope):
                frame.children.task = asyncio.current_task()
            value = await job.func(*job.args, **job.kwargs)
        elif job.is_async:
            value = await on_own_loop(in_thread, job.func, *job.args, **job.kwargs)
        else:
            value = await in_thread(job.func, *job.args, **job.kwargs)
        return settled(value, f"the result of {job.name}")


class Isolated:
    """Starts a new process for each call. Only the arguments are passed to it.

    The process is killed when the call is cancelled or its time is up.
    """

    def check(self, name: str, func: Callable[..., Any]) -> None:
        """Raise ConfigError unless `func` is at the top level of a module: only names and plain data can be sent."""
        if not inspect.isfunction(func):
            raise _unfit(name, f"{func!r}, which is not a Python function")
        if "<lambda>" in func.__qualname__:
            raise _unfit(name, "a lambda, which has no name")
        if "." in func.__qualname__:
            where = "a function" if "<locals>" in func.__qualname__ else "a class"
            raise _unfit(name, f"{func.__qualname__}, which is defined inside {where}")

    async def run(self, job: Job) -> Any:
        """Make the call in a new process and return its result.

        Raises the error of the function, or StepRaised in its place; StepCrashed if the process died; NotCodable for
        an argument that cannot be sent.
        """
        module, called = job.func.__module__, job.func.__name__
        known = getattr(sys.modules.get(module), called, None)
        if getattr(known, "func", known) is not job.func:
            raise _unfit(job.name, f"{called}, but module {module} has something else under that name")
        if module == "__main__" and getattr(sys.modules[module], "__file__", "<notebook>").startswith("<"):
            raise _unfit(job.name, f"{called}, which is in no file: it was typed into a notebook or at a prompt")
        sent = f"@step {job.name!r} with runtime='isolated': the argument"
        args = [codec.encode_to_keep(value, f"{sent} {n}") for n, value in enumerate(job.args, 1)]
        kwargs = {name: codec.encode_to_keep(value, f"{sent} {name}") for name, value in job.kwargs.items()}
        call = codec.dumps([args, codec.encode(kwargs)])
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
            over.set()  # a process that has not started must not start; if `_ask` is just starting it, `_ask` kills it
            if child.pid is not None and child.exitcode is None:
                child.kill()  # cancelled, or its time is up
        if answer is None:
            raise StepCrashed(job.name, child.exitcode)
        reply = json.loads(answer)
        if "error" in reply:
            raise raised(job.name, ReportedFailure(**reply["error"]))
        return codec.decode(reply["value"])


def _unfit(name: str, what: str) -> ConfigError:
    return ConfigError(
        f"@step {name!r} is {what}, so another process cannot find it. runtime='isolated' wants a function at the top "
        f"level of a module, under its own name: move it there, or leave runtime='isolated' out"
    )


EXECUTORS: dict[Runtime, Executor] = {"inline": Inline(), "isolated": Isolated()}


def executor_of(name: str, runtime: Any, kind: str = "@step", takes: Collection[str] = tuple(EXECUTORS)) -> Executor:
    """Return the executor that `runtime` names (one of `takes`), or `runtime` itself if it is an executor.

    Raises ConfigError, in which `kind` is the thing that has this `runtime`.
    """
    if isinstance(runtime, str) and runtime in takes:
        return EXECUTORS[cast(Runtime, runtime)]
    check, run = getattr(runtime, "check", None), getattr(runtime, "run", None)
    if isinstance(runtime, type) or not callable(check) or not inspect.iscoroutinefunction(run):
        raise ConfigError(
            f"{kind} {name!r}: runtime is {runtime!r}; wanted one of {', '.join(takes)}, or an executor: an object "
            f"with check(name, func) and async run(job)"
        )
    return cast(Executor, runtime)


def _ask(child: Any, here: Connection, there: Connection, call: bytes, over: threading.Event) -> bytes | None:
    """Start the process, send the call and wait for the answer. Blocks.

    Returns None if the process ended without an answer, or if `over` was set before the process had started.
    """
    with here, there:
        if over.is_set():
            return None
        _start(child)
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


def _start(child: Any) -> None:
    """Start the process. Ctrl-C at a terminal reaches it too, but only after `_serve` has set a handler for it."""
    if sys.platform == "win32":
        child.start()
        return
    resource_tracker.ensure_running()  # now, as its start would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the process inherits the blocked signal
    try:
        child.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, module: str, name: str, key: str) -> None:
    """Run in the new process: receive one call, make it and send its result or error."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, lambda *_: None)  # ignored: the run decides when this process ends
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    call = json.loads(pipe.recv_bytes())
    try:
        func = _found(module, name)
        codec.declare_hints(func)
        args, kwargs = codec.decode(call)
        with durable.entered(_Alone(key)):
            value = asyncio.run(func(*args, **kwargs)) if inspect.iscoroutinefunction(func) else func(*args, **kwargs)
        answer = {"value": codec.encode_to_keep(value, f"the result of {name}")}
    except Exception as error:  # the border: sent to the run, which raises it
        failure = {"message": text_of(error), "traceback": tracebacks.text(error), "raised": written(error)}
        answer = {"error": {"error_type": type(error).__qualname__, **failure}}
    pipe.send_bytes(codec.dumps(answer))
    pipe.close()


class _Alone(durable.Scope):
    """The scope inside a separate process. It has no run, only the idempotency key of the call."""

    idempotency_key = ""

    def __init__(self, key: str) -> None:
        self.idempotency_key = key


def _found(module: str, name: str) -> Any:
    if module == "__main__":  # multiprocessing loads the program's main file under another name
        module = "__mp_main__" if "__mp_main__" in sys.modules else module
    found = getattr(importlib.import_module(module), name)
    return getattr(found, "func", found)  # the function inside a @step


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # nobody is left to read the answer
