"""What a location holds before something is done there, and the crews and flows that its runs are of.

A scene is a handful of exported runs, made once: so every provider can be given the same one, as often as it takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.errors import Suspended
from crewlite.events import LLMCallStartedEvent, StepCompletedEvent, StepStartedEvent, TaskCompletedEvent
from crewlite.events.base import BaseEvent
from crewlite.events.event_bus import event_bus
from crewlite.flow import FlowFunction, ask, step
from crewlite.llm.base import Message, Reply
from crewlite.state import InMemoryProvider, RuntimeState
from crewlite.state.providers import BaseProvider
from crewlite.testing.scripted import ScriptedLLM

TASKS = 4
LONG = 36
"""Tasks of a run with more than 64 commits, so that its journal is compacted while it runs."""
RUN, BYSTANDER = "r", "z"
QUESTION = "human:more"
PAYMENT = "step:pay"
BY_HAND = 5
"""What a person says that the payment gave."""


class Stop(Exception):
    """The model gives up, which no rule retries: the run fails there."""


class Trace:
    """What was paid, acknowledged and taken away, in the order in which it happened."""

    def __init__(self) -> None:
        self._lines: list[list[str]] = []

    def note(self, *words: str) -> None:
        """Keep a line."""
        self._lines.append(list(words))

    def lines(self) -> list[list[str]]:
        """All lines so far."""
        return list(self._lines)


@dataclass(frozen=True)
class Site:
    """Where a trial takes place."""

    location: str
    provider: BaseProvider | None
    documents: Path
    """Where exported runs lie."""
    trace: Trace = field(default_factory=Trace)
    hold: Callable[[], None] = lambda: None
    """Called by an act that stays at work; returns when it shall go on."""

    def config(self, **fields: Any) -> CheckpointConfig:
        """How a definition is told to keep its runs here."""
        return CheckpointConfig(location=self.location, provider=self.provider, **fields)

    def history(self, *, make: bool = False) -> History:
        """What is kept here."""
        return History(self.location, self.provider, make=make)


def give_up() -> None:
    """What a model does in a run that is to fail."""
    raise Stop


def crew(
    site: Site,
    *,
    tasks: int = TASKS,
    stop_at: int | None = None,
    stop: Callable[[], None] = give_up,
    hold_at: Sequence[int] = (),
    **fields: Any,
) -> Crew:
    """Tasks that do not build on each other; in one of them the model gives up, or waits."""

    class Model(ScriptedLLM):
        async def acall(self, messages: list[Message], **context: Any) -> Reply:
            if _number(messages) in hold_at:
                await asyncio.to_thread(site.hold)
            return await super().acall(messages, **context)

    def reply(messages: Sequence[Message]) -> str:
        if _number(messages) == stop_at:
            stop()
        return f"answer {_number(messages)}"

    agent = Agent(role="Worker", goal="work", llm=Model(reply))
    made = [
        Task(name=f"t{n}", description=f"Do {n} {{who}}", expected_output="text", agent=agent, context=[])
        for n in range(tasks)
    ]
    return Crew(tasks=made, checkpoint=site.config(**fields))


def _number(messages: Sequence[Message]) -> int:
    return int(str(messages[1]["content"]).split()[1])


@step
def first(n: int) -> int:
    """Before the question."""
    return n + 1


@step
def last(n: int) -> int:
    """After it."""
    return n * 2


@step(effect="once")
def pay(n: int) -> int:
    """Made once, or again when a person says so: it gives a receipt."""
    return n * 10


@step(cache=True, version="1")
def dear(n: int) -> int:
    """Kept for other runs."""
    return n * 100


def asks(n: int) -> int:
    """Waits for a person."""
    got = first(n)
    more = ask("How much more?", int, name="more")
    return last(got + more)


def pays(n: int) -> int:
    """Makes a payment that may be made only once."""
    return last(pay(first(n)))


def buys(n: int) -> int:
    """Takes what another run has paid."""
    return dear(n) + 1


def flow(site: Site, func: Callable[[int], int]) -> FlowFunction[..., int]:
    """One of these as a flow."""
    return FlowFunction(func, checkpoint=site.config())


@contextlib.contextmanager
def traced(site: Site) -> Iterator[None]:
    """Note what is paid and acknowledged by the runs of this process."""

    def hear(source: object, event: BaseEvent) -> None:
        what = "paid" if isinstance(event, (LLMCallStartedEvent, StepStartedEvent)) else "ack"
        address = (event.address or "").partition("/llm#")[0]
        site.trace.note(what, event.run_id or "", event.branch or "", address, event.event_id)

    with contextlib.ExitStack() as heard:
        for kind in (LLMCallStartedEvent, StepStartedEvent, TaskCompletedEvent, StepCompletedEvent):
            heard.enter_context(event_bus.on(kind, hear))
        yield


def _cut(site: Site) -> None:
    _cut_short(site, 2, inputs={"who": "x"}, run_id=RUN)


def _long(site: Site) -> None:
    _cut_short(site, LONG - 2, tasks=LONG, inputs={"who": "x"}, run_id=RUN)


def _grove(site: Site) -> None:
    crew(site).kickoff({"who": "x"}, run_id=RUN)
    with site.history() as history:
        history.fork(history.run(RUN).checkpoints()[0].id, branch="side")
        history.fork(RUN, branch="twig")
    _cut_short(site, 2, from_checkpoint=f"{RUN}/side")


def _cut_short(site: Site, at: int, *, tasks: int = TASKS, **how: Any) -> None:
    """A kickoff that is cancelled while its model thinks."""

    async def main() -> None:
        def stop() -> None:
            work.cancel()
            raise asyncio.CancelledError

        work = asyncio.ensure_future(crew(site, tasks=tasks, stop_at=at, stop=stop).akickoff(**how))
        with contextlib.suppress(asyncio.CancelledError):
            await work

    asyncio.run(main())


def _back(site: Site) -> None:
    crew(site).kickoff({"who": "x"}, run_id=RUN)
    with site.history() as history:
        history.rewind(f"{RUN}@task:t1", reason="the rest was wrong")


def _waiting(site: Site) -> None:
    with contextlib.suppress(Suspended):
        flow(site, asks).kickoff(1, run_id=RUN)


def _doubt(site: Site) -> None:
    _pays_until(site, StepStartedEvent, PAYMENT)


def _paid(site: Site) -> None:
    _pays_until(site, StepStartedEvent, "step:last")


def _pays_until(site: Site, kind: type[BaseEvent], address: str) -> None:
    """A payment whose process is cut off as a step begins."""

    async def main() -> None:
        def stop(source: object, event: BaseEvent) -> None:
            if event.address == address:
                work.cancel()

        with event_bus.on(kind, stop):
            work = asyncio.ensure_future(flow(site, pays).akickoff(1, run_id=RUN))
            with contextlib.suppress(asyncio.CancelledError):
                await work

    asyncio.run(main())


def _state(site: Site) -> None:
    with RuntimeState.open(RUN, site.location, site.provider) as state:
        for count in (1, 2):
            state["count"] = count
            state.snapshot()


def _bought(site: Site) -> None:
    flow(site, buys).kickoff(1, run_id="b1")


SCENES: dict[str, Callable[[Site], None]] = {
    "new": lambda site: None,
    "cut": _cut,
    "long": _long,
    "grove": _grove,
    "back": _back,
    "waiting": _waiting,
    "doubt": _doubt,
    "paid": _paid,
    "state": _state,
    "bought": _bought,
}
"""What there is beside a finished run that nobody is concerned with."""


@functools.cache
def _documents(scene: str) -> dict[str, bytes]:
    """The exported runs of a scene, by run_id."""
    with tempfile.TemporaryDirectory() as directory:
        site = Site(scene, InMemoryProvider(), Path(directory))
        crew(site, tasks=1).kickoff({"who": "x"}, run_id=BYSTANDER)
        SCENES[scene](site)
        found = {}
        with site.history() as history:
            for run_id in {run.run_id for run in history.runs()}:
                history.export(run_id, site.documents / "run.json")
                found[run_id] = (site.documents / "run.json").read_bytes()
    return found


def lay_out(scene: str, site: Site) -> None:
    """Bring a scene to a site, and to its documents a run that can be imported there."""
    brought = dict(_documents(scene))
    with site.history(make=True) as history:
        for run_id, data in brought.items():
            path = site.documents / f"{run_id}.json"
            path.write_bytes(data)
            history.import_run(path)
    if RUN not in brought:
        (site.documents / f"{RUN}.json").write_bytes(_documents("cut")[RUN])
    if scene == "bought":
        flow(site, buys).kickoff(1, run_id="b0")  # what is kept for other runs is no part of a run
