"""The work of every verb grows as the definition and its run do: twice as many tasks take twice as much work.

Only the texts that models are asked may grow faster: a task without a `context` of its own is shown all earlier answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from crewlite import Agent, CheckpointConfig, ConditionalTask, Crew, History, Task
from crewlite.flow import Flow, FlowFunction, flow, listen, or_, router, start, step
from crewlite.state.journal import writer
from crewlite.testing import ScriptedLLM
from tests import soak
from tests.growth import Work, counted, faster_than_linear

pytestmark = pytest.mark.slow

FEW = 16
EXEMPT = ("/threading.py", "/concurrent/", "Writer._check_branches")  # how often threads wait, and look twice a second
OF_READERS = ("/usage.py", "BaseModel.__init__")  # each checkpoint that is read has the usage of each agent


def crew_of(kind: str, tasks: int, location: Path, *, fails: bool = False, wanted: str = "text") -> Crew:
    def answer(messages: list[dict[str, Any]]) -> str | Exception:
        return ValueError("the power went out") if fails and len(llm.calls) == tasks else f"answer {len(llm.calls)}"

    llm = ScriptedLLM(answer)
    agent = Agent(role="Writer", goal="Write", llm=llm)
    made: list[Task] = []
    for number in range(tasks):
        about: dict[str, Any] = {
            "description": f"Write {number} on {{topic}}",
            "expected_output": wanted,
            "agent": agent,
        }
        match kind:
            case "on the one before":
                about |= {"name": f"part-{number}", "context": made[-1:]}
            case "async" if number < tasks - 1:
                about |= {"context": [], "async_execution": True}
            case "conditional" if number:
                made.append(ConditionalTask(condition=lambda output: True, context=[], **about))
                continue
            case "of other agents":
                about |= {"agent": Agent(role=f"Writer {number}", goal="Write", llm=llm), "context": []}
        made.append(Task(**about))
    return Crew(tasks=made, checkpoint=CheckpointConfig(location=str(location)))


@step
async def one(number: int) -> int:
    return number


def steps_of(kind: str, steps: int, location: Path, *, fails: bool = False) -> FlowFunction[..., Any]:
    @flow(checkpoint=CheckpointConfig(location=str(location)))
    async def many(topic: str) -> int:
        for number in range(steps):
            await one(number)
        if fails:
            raise ValueError("the power went out")
        return steps

    return many


def methods_of(kind: str, methods: int, location: Path, *, fails: bool = False) -> Flow[Any]:
    """A flow with so many methods, or one with two methods that take so many turns."""

    def end(flow: Flow[Any]) -> None:
        if fails:
            raise ValueError("the power went out")

    class Turns(Flow[Any]):
        max_method_calls = 1000

        @start()
        async def begin(self) -> None:
            self.state["left"] = methods

        @listen(or_(begin, "again"))
        async def turn(self) -> None:
            self.state["left"] -= 1

        @router(turn, emit=["again", "done"])
        async def check(self) -> str:
            return "again" if self.state["left"] else "done"

        @listen("done")
        async def last(self) -> None:
            end(self)

    def method(number: int) -> Callable[[Any], Any]:
        async def work(self: Any) -> None:
            if number == methods - 1:
                end(self)

        work.__name__ = work.__qualname__ = f"method_{number}"
        return work

    def named(number: int) -> Any:
        return start()(method(number)) if number == 0 else listen(f"method_{number - 1}")(method(number))

    body = {f"method_{number}": named(number) for number in range(methods)}
    made: type[Flow[Any]] = Turns if kind == "turns of methods" else type("Methods", (Flow,), body)
    return made(checkpoint=CheckpointConfig(location=str(location)))


def in_loop(work: Callable[[], object]) -> None:
    """Do the work in a loop on this thread; what it returns is awaited there."""

    async def done() -> None:
        if inspect.isawaitable(made := work()):
            await made

    asyncio.run(done())


class Story:
    """A definition of a given length, and what is done with it and its run. Each method makes one verb ready to run."""

    def __init__(self, kind: str, length: int, directory: Path) -> None:
        self.kind, self.length, self.location = kind, length, directory / f"runs-{length}"
        self.config = CheckpointConfig(location=str(self.location), restore_from="r")

    def made(self, **more: Any) -> Any:
        return KINDS[self.kind](self.kind, self.length, self.location, **more)

    def run(self, definition: Any) -> Awaitable[object]:
        if isinstance(definition, FlowFunction):
            return definition.akickoff("tides", run_id="r")
        awaited: Awaitable[object] = definition.akickoff(inputs={"topic": "tides"}, run_id="r")
        return awaited

    def begun(self, *, fails: bool = False) -> None:
        with contextlib.suppress(ValueError):
            in_loop(lambda: self.run(self.made(fails=fails)))

    def define(self) -> Callable[[], object]:
        return self.made

    def kickoff(self) -> Callable[[], object]:
        made = self.made()
        return lambda: self.run(made)

    def resume(self) -> Callable[[], object]:
        self.begun(fails=True)
        return self.kickoff()

    def kickoff_again(self) -> Callable[[], object]:
        self.begun()
        return self.kickoff()

    def kickoff_of_other_tasks(self) -> Callable[[], object]:
        self.begun(fails=True)
        crew = self.made(wanted="verse").with_(
            checkpoint=CheckpointConfig(location=self.config.location, on_drift="keep")
        )
        return lambda: self.run(crew)

    def preview(self) -> Callable[[], object]:
        self.begun(fails=True)
        made = self.made()
        return lambda: made.apreview(inputs={"topic": "tides"}, run_id="r")

    def fork(self) -> Callable[[], object]:
        self.begun()
        made = self.made()

        def forked() -> object:
            with History(self.location) as history:
                ref = history.fork(history.run("r").checkpoints()[self.length // 2].ref).ref
            return made.akickoff(from_checkpoint=CheckpointConfig(location=self.config.location, restore_from=ref))

        return forked

    def fork_with_other_inputs(self) -> Callable[[], object]:
        self.begun()
        made = self.made()
        return lambda: made.fork(self.config, inputs={"topic": "rain"}).akickoff()

    def rebuild(self) -> Callable[[], object]:
        self.begun()
        bind: dict[str, Any] = {"llm": ScriptedLLM(["x"])}
        bind |= {"condition": lambda output: True} if self.kind == "conditional" else {}
        return lambda: Crew.from_checkpoint(self.config, bind=bind).akickoff()

    def read(self) -> Callable[[], object]:
        self.begun()

        def read() -> None:
            with History(self.location) as history:
                run = history.run("r")
                checkpoints = run.checkpoints()
                history.diff(checkpoints[len(checkpoints) // 2], run)
                checkpoints[0].diff(checkpoints[-1])
                assert run.status and run.steps and run.events and (run.usage, run.tasks, run.values)
                assert not (run.attempts or run.waiting or run.unsettled or run.abandoned or run.rewinds)
                assert history.runs() and history.branches() and history.checkpoints()

        return read


VERBS = [name for name in vars(Story) if name not in ("made", "run", "begun") and not name.startswith("_")]
OF_FLOWS = ["kickoff", "resume", "kickoff_again", "read"]
KINDS: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("on the one before", "on all before", "async", "conditional", "of other agents"), crew_of),
    "steps": steps_of,
    **dict.fromkeys(("methods", "turns of methods"), methods_of),
}
STORIES = [(kind, verb) for kind, make in KINDS.items() for verb in (VERBS if make is crew_of else OF_FLOWS)]


@pytest.mark.parametrize(("kind", "verb"), soak.sample(STORIES, 2))
def test_twice_as_many_tasks_take_twice_the_work(kind, verb, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_LOOK", 60.0)  # on a slow computer, only the longer run lasts until its writer looks

    def work(length: int) -> Work:
        story: Callable[[], object] = getattr(Story(kind, length, tmp_path), verb)()
        return contextvars.Context().run(counted, lambda: in_loop(story))  # in which no kickoff is remembered

    work(3)  # what is made at the first use alone is there
    exempt = (*EXEMPT, *(OF_READERS if verb in ("read", "fork") else ()))
    for _ in range(3):  # of tasks side by side, chance decides how many share a write; growth shows each time
        found = faster_than_linear(work(FEW), work(2 * FEW), 2 * FEW)
        found = [line for line in found if not any(name in line for name in exempt)]
        if not found:
            break
    assert not found
