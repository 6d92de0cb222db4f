"""Every border at which code of users is called, as tables: a kickoff for each; and all that such code may raise."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from crewlite import (
    Agent,
    BaseLLM,
    BaseTool,
    CheckpointConfig,
    ConditionalTask,
    Crew,
    Flow,
    Task,
    ToolCall,
    around,
    tool,
)
from crewlite.events import TaskCompletedEvent
from crewlite.events.event_bus import event_bus
from crewlite.flow import flow, listen, router, start, step
from crewlite.recovery import DEFAULT, FailurePolicy, Guard, RiskThreshold, abort, compensate
from crewlite.state.providers.memory import InMemoryProvider
from crewlite.testing import ScriptedLLM

LONGEST = 20.0  # seconds until a run counts as one that never ends


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__(threading.Lock())


class Rude(BaseException):
    pass


KINDS: dict[str, Callable[[], BaseException]] = {
    "an error": lambda: ValueError("boom"),
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
    "StopIteration": lambda: StopIteration(1),
    "StopAsyncIteration": StopAsyncIteration,
    "GeneratorExit": GeneratorExit,
    "without a text": Mute,
    "unpicklable": Unpicklable,
    "a group": lambda: ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
    "a group of exits": lambda: BaseExceptionGroup("several", [KeyboardInterrupt(), SystemExit(1)]),
    "of no known family": Rude,
}


class Raises:
    """Code of a user that raises, in the forms in which crewlite calls it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def plain(self, *args: Any, **kwargs: Any) -> Any:
        raise KINDS[self.kind]()

    async def awaited(self, *args: Any, **kwargs: Any) -> Any:
        raise KINDS[self.kind]()


def memory() -> CheckpointConfig:
    return CheckpointConfig(location="memory", provider=InMemoryProvider())


def agent(llm: Any = None, **fields: Any) -> Agent:
    return Agent(role="Pilot", goal="answer", llm=llm or ScriptedLLM(lambda messages: "hello"), **fields)


def task(cls: type[Task] = Task, name: str = "t", **fields: Any) -> Task:
    return cls(name=name, description="d", expected_output="e", **{"agent": agent(), **fields})


def crew(*tasks: Task, **fields: Any) -> Crew:
    return Crew(tasks=list(tasks) or [task()], **{"checkpoint": memory(), **fields})


def uses(made: BaseTool, **fields: Any) -> Any:
    llm = ScriptedLLM([ToolCall(made.name, {"n": 1}), "done"])
    crew(task(agent=agent(llm, tools=[made])), **fields).kickoff()
    return llm.calls[-1][-1]["content"]


@tool
def quiet(n: int) -> str:
    """Do nothing."""
    return "ok"


def quiet_with(**settings: Any) -> BaseTool:
    return tool("quiet", **settings)(quiet.func)


def heard_by(handler: Any) -> Any:
    with event_bus.scoped():
        event_bus.on(TaskCompletedEvent, handler)
        result = crew().kickoff()
        assert event_bus.flush(LONGEST)
    return result


def handler(call: Any) -> Any:
    if inspect.iscoroutinefunction(call):

        async def heard(source: Any, event: Any) -> None:
            await call()

        return heard
    return lambda source, event: call()


def tool_of(call: Any) -> BaseTool:
    if inspect.iscoroutinefunction(call):

        async def odd(n: int) -> str:
            """Be odd."""
            return str(await call())

        return tool("odd")(odd)

    def plainly_odd(n: int) -> str:
        """Be odd."""
        return str(call())

    return tool("odd")(plainly_odd)


def guarded(**methods: Any) -> Any:
    guard = type("Own", (Guard,), {name: staticmethod(call) for name, call in methods.items()})()
    return uses(quiet, failure_policy=FailurePolicy(DEFAULT.rules, guards=[guard]))


def scored(call: Any) -> Any:
    return uses(quiet, failure_policy=FailurePolicy(DEFAULT.rules, guards=[RiskThreshold(call)]))


def policed(**methods: Any) -> Any:
    """Let a task fail with a ZeroDivisionError."""
    own = type("Own", (), {name: staticmethod(call) for name, call in methods.items()})()
    policy = FailurePolicy(DEFAULT.rules, classifier=own) if "classify" in methods else own
    return crew(task(guardrail=lambda output: 1 / 0), failure_policy=policy).kickoff()


def hooked(hook: Any) -> Any:
    with around(hook):
        return crew().kickoff()


def after_attempts(call: Any) -> Any:
    @contextlib.contextmanager
    def hook(attempt: Any) -> Iterator[None]:
        yield
        call()

    return hooked(hook)


class Plain(BaseLLM):
    def __init__(self, reply: Any) -> None:
        super().__init__("plain")
        self.reply = reply

    def call(self, messages: Any, **context: Any) -> Any:
        return self.reply()


class Opened(BaseTool):
    name: str = "opened"
    description: str = "Opened and closed."
    to_open: Any = None
    to_close: Any = None

    def _run(self, n: int) -> str:
        return "ok"

    async def ready(self) -> None:
        if self.to_open:
            self.to_open()

    async def aclose(self) -> None:
        if self.to_close:
            self.to_close()


def in_flow(call: Any, **options: Any) -> Any:
    probe = step(name="probe", **options)(call)
    if inspect.iscoroutinefunction(call):

        async def body() -> Any:
            return await probe()
    else:

        def body() -> Any:
            return probe()

    return flow(name="f", checkpoint=memory())(body).kickoff()


def as_flow(call: Any) -> Any:
    return flow(name="f", checkpoint=memory())(call).kickoff()


def foreseen(call: Any) -> Any:
    """Preview a flow whose code has never come to an end."""
    failed: list[int] = []

    def now_or_then() -> Any:
        failed.append(1)
        return call() if len(failed) > 1 else 1 / 0

    if inspect.iscoroutinefunction(call):

        async def body() -> Any:
            return await now_or_then()
    else:

        def body() -> Any:
            return now_or_then()

    pipeline = flow(name="f", checkpoint=memory())(body)
    with pytest.raises(ZeroDivisionError):
        pipeline.kickoff(run_id="r")
    return str(pipeline.preview(run_id="r"))


def in_class(place: str, call: Any) -> Any:
    def first(self: Any) -> str:
        return "x"

    if inspect.iscoroutinefunction(call):

        async def odd(self: Any) -> Any:
            return await call()
    else:

        def odd(self: Any) -> Any:
            return call()

    methods = {"odd": start()(odd)}
    if place != "start":
        methods = {"first": start()(first), "odd": {"listen": listen, "router": router}[place]("first")(odd)}
    return type("Own", (Flow,), methods)(checkpoint=memory()).kickoff()


def undone(call: Any) -> Any:
    book = step(name="book", compensate=call)(lambda: 1)

    @step
    def pay() -> None:
        raise ValueError("no money")

    @flow(name="f", checkpoint=memory(), failure_policy=FailurePolicy(default=compensate(then=abort())))
    def trip() -> None:
        book()
        pay()

    return trip.kickoff()


def with_executor(call: Any) -> Any:
    class Own:
        def check(self, name: str, func: Any) -> None: ...

        async def run(self, job: Any) -> Any:
            return call()

    return in_flow(lambda: 1, runtime=Own())


def validated(call: Any) -> Any:
    class Shape(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def odd(cls, value: int) -> int:
            return int(call())

    return crew(task(agent=agent(ScriptedLLM(lambda messages: '{"n": 1}')), output_pydantic=Shape)).kickoff()


def trained(call: Any, folder: Any) -> Any:
    return crew().train(1, str(folder / "trained.json"), feedback=call)


def judged(call: Any) -> Any:
    explored = crew()
    explored.kickoff(run_id="r")
    return str(explored.explore("r", [{"name": "v"}], judge=call))


def stored(verb: str, after: int, call: Any, on_save_error: Any = "warn") -> Any:
    """Run a crew whose store raises from the `after`-th call of a verb on."""
    left = [after]

    class Store:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            if name != verb:
                return getattr(self.inner, name)
            left[0] -= 1
            return call if left[0] < 0 else getattr(self.inner, name)

    class Provider(InMemoryProvider):
        def open(self, location: str) -> Any:
            return call() if verb == "open" else Store(super().open(location))

    config = CheckpointConfig(location="own", provider=Provider(), on_save_error=on_save_error)
    return crew(checkpoint=config).kickoff()


FAILS: dict[str, Callable[[Any], Any]] = {
    "task callback": lambda call: crew(task(callback=call)).kickoff(),
    "task_callback": lambda call: crew(task_callback=call).kickoff(),
    "step_callback": lambda call: crew(task(agent=agent(step_callback=call))).kickoff(),
    "before_kickoff": lambda call: crew(before_kickoff_callbacks=[call]).kickoff(),
    "after_kickoff": lambda call: crew(after_kickoff_callbacks=[call]).kickoff(),
    "guardrail": lambda call: crew(task(guardrail=call)).kickoff(),
    "agent guardrail": lambda call: agent(guardrail=call).kickoff("Hi"),
    "condition": lambda call: crew(task(), task(ConditionalTask, "u", condition=call)).kickoff(),
    "step": in_flow,
    "step with a timeout": lambda call: in_flow(call, timeout=LONGEST),
    "flow": as_flow,
    "start": lambda call: in_class("start", call),
    "listen": lambda call: in_class("listen", call),
    "router": lambda call: in_class("router", call),
    "guard.before": lambda call: guarded(before=call),
}
"""Borders that take a plain function or an async one, and fail the run with what it raises."""
FAILS_PLAIN: dict[str, Callable[[Any], Any]] = {
    "guard.asks": lambda call: guarded(asks=call),
    "model": lambda call: crew(task(agent=agent(ScriptedLLM(call)))).kickoff(),
    "blocking model": lambda call: crew(task(agent=agent(Plain(call)))).kickoff(),
    "executor": with_executor,
    "hook": hooked,
    "scorer": scored,
    "policy": lambda call: policed(decide=call),
    "store.open": lambda call: stored("open", 0, call),
    "store, at the start": lambda call: stored("append", 0, call),
    "store that must save": lambda call: stored("append", 2, call, "raise"),
}
LOGGED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "handler": (lambda call: heard_by(handler(call)), "failed on task_completed"),
    "guard.after": (lambda call: guarded(after=call), "Own.after raised"),
    "classifier": (lambda call: policed(classify=call), "Own raised"),
}
LOGGED_PLAIN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "cache_function": (lambda call: uses(quiet_with(cache_function=call)), "the cache_function of tool 'quiet' raised"),
    "hook, after the attempt": (after_attempts, "raised after attempt 1 of crew"),
    "aclose": (lambda call: uses(Opened(to_close=call)), "aclose() of Opened raised"),
    "store": (lambda call: stored("append", 2, call), "not everything is saved"),
    "store.close": (lambda call: stored("close", 0, call), "was not closed"),
}
TOLD: dict[str, tuple[Callable[[Any], Any], str]] = {
    "tool": (lambda call: uses(tool_of(call)), "Tool odd failed"),
    "ready": (lambda call: uses(Opened(to_open=call.__self__.plain)), "Tool opened failed"),
    "judge": (judged, "not judged"),
    "preview": (foreseen, "After these steps flow 'f' raises"),
}
