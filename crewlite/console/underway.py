"""The state of a run at this moment, collected from its events: the open steps, and the usage so far.

This is plain data; `crewlite.console.status_lines` shows it on a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crewlite import kinds
from crewlite.events.base import BaseEvent
from crewlite.system.steady_clock import steady
from crewlite.texts.wording import number_of

if TYPE_CHECKING:
    from crewlite.usage import Usage

_CHUNKS = ("llm_stream_chunk", "llm_thinking_chunk")
_PER_LINE = 1.0  # seconds


@dataclass(slots=True)
class Open:
    """A task, call or step that has begun and not ended."""

    title: str
    address: str
    since: float
    depth: int
    """How many steps deep it is inside the kickoff that is shown; a task of a crew is 1."""
    streamed: int = 0
    """Characters that a model has sent so far."""
    reported: str = ""
    """How far its code says that it has come."""


class Underway:
    """One kickoff: a run, or a part of one."""

    def __init__(self, clock: Callable[[], float] = steady) -> None:
        self._clock = clock
        self.since = clock()
        self.base = ""
        """The address of the step that was kicked off; "" for a run."""
        self.open: dict[str, Open] = {}
        """The open steps in the order they began, by the id of the event of their start."""
        self.usage: Usage | None = None
        self.checkpoints = self.retries = 0
        self._lines: dict[str | None, float] = {}
        """When the last line about the progress of a step was shown, by its address."""

    def hear(self, event: BaseEvent, usage: Usage | None) -> None:
        """Update the state from an event, and the usage up to that event if it is known."""
        if usage is not None:
            self.usage = usage
        if event.type == "checkpoint_completed":
            self.checkpoints += 1
        elif event.type == "recovery_started":
            self.retries += 1
        elif event.type in _CHUNKS:
            for one in self._newest_at(event.address):
                one.streamed += len(getattr(event, "chunk", ""))
        elif event.type == "progress_reported":
            for one in self._newest_at(event.address):
                one.reported = getattr(event, "text", "")
        elif event.started_event_id is not None:
            self._ended(event.started_event_id)
        elif title := _title(event):
            self.open[event.event_id] = Open(
                title, event.address or "", self._clock(), depth_of(event.address or "", self.base)
            )

    def _newest_at(self, address: str | None) -> list[Open]:
        """Return the open step at an address that began last, if there is one."""
        return [one for one in self.open.values() if one.address == address][-1:]

    def is_due(self, event: Any) -> bool:
        """Return whether a report of progress is worth a line: one a second of each step, and the last one."""
        now, before = self._clock(), self._lines.get(event.address)
        last = event.total is not None and event.done == event.total
        if before is not None and now - before < _PER_LINE and not last:
            return False
        self._lines[event.address] = now
        return True

    def _ended(self, started: str) -> None:
        ended = self.open.pop(started, None)
        if ended is None:
            return
        for inner in [key for key, one in self.open.items() if one.address.startswith(f"{ended.address}/")]:
            del self.open[inner]


def depth_of(address: str, base: str) -> int:
    """Return how many steps deep inside `base` a step is; 0 for `base` itself."""
    return address[len(base) :].count("/") + (not base and bool(address))


def seen_from(event: BaseEvent, base: str) -> BaseEvent:
    """Return the event of a step inside `base` with its address there, so that it is named as if `base` ran alone.

    A question keeps its address, by which it is answered.
    """
    address = event.address or ""
    if not base or kinds.at(address).asks_person:
        return event
    return event.model_copy(update={"address": address[len(base) :].removeprefix("/")})


def is_part_of(address: str, base: str) -> bool:
    """Return whether a step is `base` or inside it. Every step is inside "", the run."""
    return not base or address == base or address.startswith((f"{base}/", f"{base}!"))


def still_open(runs: Iterable[Underway]) -> list[tuple[Open, float]]:
    """Return the open steps of several runs, each with the seconds since its beginning."""
    return [(one, run._clock() - one.since) for run in list(runs) for one in list(run.open.values())]


def spent(runs: Sequence[Underway]) -> str:
    """Return a summary of several runs so far: time, tokens, cost, checkpoints, retries."""
    usages = [run.usage for run in runs if run.usage is not None]
    costs = [usage.cost for usage in usages if usage.cost is not None]
    saved = sum(run.checkpoints for run in runs)
    again = sum(run.retries for run in runs)
    parts = [
        f"{len(runs)} runs" if len(runs) > 1 else "",
        elapsed(max((run._clock() - run.since for run in runs), default=0.0)),
        number_of(sum(usage.total_tokens for usage in usages), "token"),
        f"${sum(costs):,.4f}" if costs else "",
        number_of(saved, "checkpoint") if saved else "",
        number_of(again, "retry", "retries") if again else "",
    ]
    return ", ".join(part for part in parts if part)


def elapsed(seconds: float) -> str:
    """Return a duration to the second as text, such as `7 s` or `2 min 05 s`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def task_of(event: Any) -> str:
    """Return which task an event is about, by its name or, without one, its address."""
    return f"task {event.task_name}" if event.task_name else str(event.address)


def titled(event: Any) -> str:
    """Return the kind and name of a step, with its type if its author gave one."""
    return f"{event.kind} {event.name}{f' ({event.step_type})' if event.step_type else ''}"


def _title(event: Any) -> str:
    match event.type:
        case "task_started":
            return f"{task_of(event)}: {event.agent_role}" if event.agent_role else task_of(event)
        case "llm_call_started":
            return f"model {event.model}"
        case "tool_usage_started":
            return f"tool {event.tool_name}"
        case "step_started":
            return titled(event)
    return ""
