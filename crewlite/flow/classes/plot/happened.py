"""What has happened in a run of a flow: each start of a method with its state, result, time, tokens and cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from crewlite import kinds
from crewlite.agent.output import LiteAgentOutput
from crewlite.crew.output import CrewOutput
from crewlite.errors import ConfigError, RunMismatch
from crewlite.flow.classes.conditions import method_at
from crewlite.flow.classes.graph import Graph
from crewlite.flow.classes.machine import Firing, Machine
from crewlite.pages.rendering import beginning
from crewlite.state.format.addresses import BEGINNING, outers
from crewlite.state.format.numbering import Numbering
from crewlite.state.reading.steps import StepView
from crewlite.state.run_history import RunHistory
from crewlite.tools.base import as_text
from crewlite.usage import Usage

State = Literal["finished", "failed", "waiting", "interrupted", "at work", "not reached"]
_LONG = 10_000  # characters of a result that are shown


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a method in a run."""

    address: str
    method: str
    state: State
    began: float | None
    """Seconds from the beginning of the branch; negative if a fork has inherited this start; None if not recorded."""
    seconds: float
    text: str
    """The result of this start, the question that it waits for, or its error."""
    attempts: int
    """How many attempts have failed."""
    usage: Usage


@dataclass(frozen=True, slots=True)
class Happened:
    """What has happened in a run."""

    run: RunHistory
    starts: Sequence[Start]
    of: Mapping[str, Sequence[Start]]
    """The starts of each method that was started, in order."""
    seconds: float
    """From the beginning of the branch to its last recorded outcome of a method."""
    labels: Mapping[str, set[str]]
    """The labels that each router has returned."""
    status: str
    """The status of the run, as `RunHistory.status_text`."""

    def state(self, method: str) -> State:
        """Return the state of a method. Of several starts, the one that needs most attention gives it."""
        order: tuple[State, ...] = ("failed", "waiting", "interrupted", "at work", "finished")
        states = {start.state for start in self.of.get(method, ())}
        return next((state for state in order if state in states), "not reached")


def happened(graph: Graph, flow: str, run: RunHistory) -> Happened:
    """Read what has happened in a run. Raises RunMismatch if it is of something else than this flow."""
    about = run.definition
    if not kinds.has_methods(about) or about.get("name") != flow:
        was = f"{about.get('kind')} {about.get('name')!r}"
        raise RunMismatch(
            f"run {run.run_id!r} is of {was}, not of flow {flow!r}; pass the run_id of a run of this flow"
        )
    parts: dict[str, list[StepView]] = {}
    for step in run.steps:
        parts.setdefault([step.address, *outers(step.address)][-1], []).append(step)
    waits = {[asked.address, *outers(asked.address)][-1]: asked.question for asked in run.waiting}
    status = run.status_text
    open_: State = "at work" if status == "at work" else "interrupted"
    begun = _begun(graph, run.steps) if status in ("at work", "unfinished") else ()
    addresses = [at for at in dict.fromkeys([*parts, *waits, *begun]) if kinds.at(at) is kinds.METHOD]
    starts = [_start(at, parts.get(at, ()), waits.get(at), run.started_at, open_) for at in addresses]
    starts.sort(key=lambda start: (start.began is None, start.began or 0.0))
    ends = [start.began + start.seconds for start in starts if start.began is not None]
    labels: dict[str, set[str]] = {}
    for at in addresses:
        own = next((step for step in parts.get(at, ()) if step.address == at and step.status == "finished"), None)
        if own and (label := _label(graph, method_at(at), own.value)):
            labels.setdefault(method_at(at), set()).add(label)
    of: dict[str, list[Start]] = {}
    for start in starts:
        of.setdefault(start.method, []).append(start)
    return Happened(run, starts, of, max(ends, default=0.0), labels, status)


def _begun(graph: Graph, steps: Sequence[StepView]) -> list[str]:
    """Return the addresses of the methods that have been started and have not finished.

    No start is recorded, but the graph and the recorded results say which methods the flow has started.
    """
    results = {
        step.address: step.value for step in steps if step.kind == kinds.METHOD.name and step.status == "finished"
    }
    machine, numbering, open_ = Machine(graph), Numbering(""), dict[str, Firing]()

    def start(firings: Iterable[Firing]) -> None:
        for firing in firings:
            name = graph.methods[firing.method].step_name if firing.cause else firing.method
            open_[numbering.next(kinds.METHOD.name, name)] = firing

    if any(step.address == BEGINNING and step.status == "finished" for step in steps):
        start(machine.begin())
    while address := next((at for at in results if at in open_), None):
        firing = open_.pop(address)
        start(machine.ended(firing, _label(graph, firing.method, results[address])))
    return [*open_]


def _start(address: str, steps: Sequence[StepView], question: str | None, begun: datetime, otherwise: State) -> Start:
    own = next((step for step in steps if step.address == address), None)
    failed = own.attempts[-1] if own and own.attempts else None
    first = min((step.begun_at for step in steps if step.begun_at), default=None)
    state: State
    if own and own.status == "finished":
        state, text = "finished", _shown(own.value)
    elif question is not None:
        state, text = "waiting", question
    elif own and own.status == "failed" and failed and (failed.final or otherwise != "at work"):
        state, text = "failed", f"{failed.error_type}: {failed.message}"
    else:
        state, text = otherwise, ""
    began = (first - begun).total_seconds() if first else None
    spent = sum((step.usage for step in steps), Usage())
    seconds = own.milliseconds / 1000 if own else 0.0
    return Start(address, method_at(address), state, began, seconds, text, len(own.attempts) if own else 0, spent)


def _label(graph: Graph, method: str, value: Any) -> str | None:
    try:
        return graph.label(method, value)
    except ConfigError:  # the router has changed since the run
        return None


def _shown(value: Any) -> str:
    text = value.raw if isinstance(value, CrewOutput | LiteAgentOutput) else "" if value is None else as_text(value)
    return beginning(text, _LONG)
