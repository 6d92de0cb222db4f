"""Seeded faults, each in one place of a crew or flow, and what a policy makes of them.

Refresh the figures in docs/recovery.md: python -m tests.recovery.faults_table
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crewlite.recovery import usual_policy

from . import faults_flows, faults_places
from .faults_script import Place

WELL, SPENT, VAIN = "can be recovered", "lasts longer than any budget", "cannot be recovered"
FOREVER = 12
PLACES = {
    name.replace("_", " "): build
    for module in (faults_places, faults_flows)
    for name, build in inspect.getmembers(module, inspect.isfunction)
    if list(inspect.signature(build).parameters) == ["place"] and not name.startswith("_")
}
RESULTS = ("done", '{"hour": 11}')
"""What runs in these places result in if nothing fails, or all is mended."""


@dataclass(frozen=True)
class Fault:
    """One row. The n-th call of what fails in the place goes as the n-th word of the script says."""

    where: str
    script: tuple[str, ...]
    kind: str
    fewest: int
    """The calls of models, tools and steps that reach the result, or the failure, on the shortest way."""
    extra: int = 0
    """The calls that the policy may pay beyond that."""

    @property
    def name(self) -> str:
        last = self.script[-1]
        if len(self.script) == FOREVER:
            return f"{self.where}: {last}, always"
        return f"{self.where}: {', '.join(self.script)}"


def well(where: str, *script: str, fewest: int, extra: int = 0) -> Fault:
    """A fault that passes, or that a model can be told of."""
    return Fault(where, script, WELL, fewest, extra)


def spent(where: str, word: str, *, fewest: int) -> Fault:
    """A fault that never passes, of a kind that may pass: `fewest` is what the budget allows."""
    return Fault(where, (word,) * FOREVER, SPENT, fewest)


def vain(where: str, word: str, *, fewest: int) -> Fault:
    """A fault after which no other try can succeed; were it tried again, it would be counted."""
    return Fault(where, (word,) * FOREVER, VAIN, fewest)


SECTIONS: dict[str, tuple[Fault, ...]] = {
    "calls of models": (
        well("model of a task", "503", fewest=4),
        well("model of a task", "503", "503", "429", fewest=6),
        well("model of a task", "503", "503", "503", "503", "503", fewest=8),
        well("model of a task", "429", fewest=4),
        well("model of a task", "no reply in time", fewest=4),
        well("model of a task", "no reply in time", "503", "empty reply", fewest=6),
        well("model of a task", "empty reply", "empty reply", fewest=5),
        well("model of a task", "HTTP 503", fewest=4),
        well("model of a task", "HTTP 429", "HTTP 504", fewest=5),
        well("model of a task", "lost connection", fewest=4),
        well("model of a task", "too slow", fewest=4),
        well("model of a task", "rate limit in words", fewest=4),
        spent("model of a task", "503", fewest=7),
        spent("model of a task", "no reply in time", fewest=4),
        vain("model of a task", "rejected key", fewest=2),
        vain("model of a task", "bad request", fewest=2),
        vain("model of a task", "quota used up", fewest=2),
        vain("model of a task", "refused to answer", fewest=2),
        vain("model of a task", "429 for an hour", fewest=2),
        vain("model of a task", "ConfigError", fewest=2),
        vain("model of a task", "HTTP 402", fewest=2),
        vain("model of a task", "TypeError", fewest=2),
        well("model after a tool", "503", fewest=4),
        well("model after a tool", "503", "lost connection", "503", "503", fewest=7),
        vain("model after a tool", "rejected key", fewest=3),
        well("model after a tool", "context overflow", fewest=5, extra=2),  # looks again after the summary
        well("model of a kickoff for each", "503", "503", fewest=8),
        well("model without summaries", "context overflow", fewest=5, extra=1),
        well("model beside others", "503", "503", fewest=5),
        well("model with a spare", "rejected key", fewest=2),
        well("model with a spare", "refused to answer", fewest=2),
        well("model with a spare", "503", "503", fewest=3),
        well("agent alone", "503", "503", fewest=3),
        vain("agent alone", "bad request", fewest=1),
        well("model of a planner", "503", "no object", fewest=4),
        well("model of a planner", "no object", "no object", "no object", fewest=5),
        vain("model of a planner", "rejected key", fewest=1),
    ),
    "what models say": (
        well("model that calls tools", "unknown tool called", fewest=4),
        well("model that calls tools", "wrong arguments", fewest=4),
        well("model with few turns", "another look", "another look", "another look", fewest=6),
        vain("model on a budget", "another look", fewest=4),
        well("output of an agent", "no object", "no object", "no object", fewest=4),
        well("guardrail of an agent", "a guess", "a guess", fewest=3),
        well("structured output", "no object", fewest=2),
        well("structured output", "wrong field", "no object", fewest=3),
        well("structured output", "no object", "wrong field", "no object", fewest=4),
        well("structured output", "503", "no object", "no object", "no object", fewest=5),
        well("guardrail", "a guess", fewest=2),
        well("guardrail", "a guess", "503", "a guess", fewest=4),
        well("guardrail", "a guess", "a guess", "a guess", "a guess", fewest=5),
        well("guardrail without retries", "a guess", fewest=3),
        well("guardrail without retries", "503", "a guess", "a guess", fewest=5),
    ),
    "tools": (
        well("tool of a task", "lost connection", fewest=4),
        well("tool of a task", "HTTP 503", "HTTP 429", fewest=5),
        well("tool of a task", "too slow", fewest=4),
        well("tool of a task", "KeyError", fewest=4, extra=1),
        well("tool of a task", "wrong shape", fewest=4, extra=1),
        well("tool of a task", *["lost connection"] * 3, fewest=6, extra=1),
        spent("tool of a task", "lost connection", fewest=13),
        well("crew in a tool", "503", "lost connection", fewest=6),
        vain("crew in a tool", "ConfigError", fewest=3),
        well("async tool", "HTTP 503", "too slow", fewest=5),
        vain("tool of a task", "ConfigError", fewest=2),
        vain("tool of a task", "missing input", fewest=2),
        well("tool once", "lost connection", fewest=4, extra=1),
    ),
    "tasks": (
        well("guardrail itself", "lost connection", fewest=3),
        well("model of a guardrail", "503", "503", fewest=4),
        well("model of a guardrail", "no object", fewest=3),
        vain("model of a guardrail", "bad request", fewest=2),
        vain("guardrail itself", "TypeError", fewest=2),
        well("callback of a task", "HTTP 503", fewest=3),
        well("callback before a kickoff", "lost connection", fewest=3),
        vain("callback before a kickoff", "made up", fewest=1),
        vain("callback of a task", "KeyError", fewest=2),
    ),
    "delegation": (
        well("model of a coworker", "503", "503", fewest=5),
        vain("model of a coworker", "rejected key", fewest=2),
        well("output of a coworker", "a guess", "503", fewest=5),
        well("tool of a coworker", "lost connection", fewest=6),
        well("tool of a coworker", "ZeroDivisionError", fewest=6, extra=1),
        well("model of a manager", "503", fewest=4),
        vain("model of a manager", "rejected key", fewest=1),
    ),
    "flows of functions": (
        well("step of a flow", "lost connection", fewest=4),
        well("step of a flow", "HTTP 503", "HTTP 504", "too slow", fewest=6),
        well("step of a flow", "made up", fewest=4),
        well("step of a flow", "wrong shape", "no JSON", fewest=5),
        well("step of a flow", "off topic", fewest=4),
        well("step of a flow", "part missing", fewest=4),
        well("step of a flow", "loop", fewest=4),
        well("step of a flow", "unknown tool", fewest=4),
        spent("step of a flow", "lost connection", fewest=7),
        spent("step of a flow", "made up", fewest=4),
        vain("step of a flow", "KeyError", fewest=2),
        vain("step of a flow", "ZeroDivisionError", fewest=2),
        vain("step of a flow", "no model", fewest=2),
        vain("step of a flow", "missing input", fewest=2),
        vain("step of a flow", "deadline over", fewest=2),
        vain("step of a flow", "no answer in time", fewest=2),
        vain("step of a flow", "HTTP 404", fewest=2),
        vain("step of a flow", "quota used up", fewest=2),
        vain("step once", "lost connection", fewest=2),
        vain("step once", "made up", fewest=2),
        well("steps beside each other", "lost connection", "too slow", fewest=4),
        well("async step", "rate limit in words", fewest=2),
        well("step around a crew", "503", "503", fewest=6),
        vain("step around a crew", "rejected key", fewest=3),
        well("crew in a flow", "503", "empty reply", fewest=6),
        well("tool in a flow", "too slow", fewest=6),
        well("flow in a flow", "lost connection", "made up", fewest=5),
    ),
    "flows of methods": (
        well("method of a flow", "HTTP 503", fewest=4),
        well("method of a flow", "made up", "made up", fewest=5),
        vain("method of a flow", "TypeError", fewest=2),
        well("crew in a method", "429", "503", fewest=5),
        well("claim in a method", "a guess", "503", "a guess", fewest=5),
        well("router of a flow", "lost connection", "too slow", fewest=5),
        vain("cycle of methods", "loop", fewest=4),
        vain("cycle in a flow", "loop", fewest=5),
        vain("crew in a method", "rejected key", fewest=3),
    ),
    "functions that recover": (
        well("phase of a recoverable", "lost connection", fewest=3),
        well("body of a recoverable", "made up", fewest=4, extra=1),
        well("body of a recoverable", "off topic", "made up", fewest=5, extra=3),
        well("claim in a recoverable", "a guess", fewest=3),
        well("claim in a recoverable", "503", "a guess", "a guess", fewest=5),
        spent("claim in a recoverable", "a guess", fewest=4),
        vain("body of a recoverable", "ConfigError", fewest=3),
        well("agent in a recoverable", "503", "no reply in time", fewest=4),
    ),
}
FAULTS = tuple(fault for faults in SECTIONS.values() for fault in faults)
DOCS = Path(__file__).parents[2] / "docs" / "recovery.md"
BEGIN, END = "<!-- made by: python -m tests.recovery.faults_table -->", "<!-- end of what is made -->"


@dataclass(frozen=True)
class Ran:
    """How a run with a fault ended."""

    error: BaseException | None
    calls: int
    waited: float
    """The seconds for which the policy would have waited."""


class WrongResult(Exception):
    """The run has finished, but not with what it would result in without the fault."""


@functools.cache
def ran(fault: Fault, *, on: bool) -> Ran:
    """Run the place with the fault, under the recommended policy (`on`) or without a policy."""
    place = Place(fault.script, usual_policy() if on else None)
    try:
        result = PLACES[fault.where](place)()
    except Exception as error:  # whatever the run fails with is what the table is about
        return Ran(error, place.calls.total(), place.waited)
    text = str(getattr(result, "raw", result))
    wrong = None if text in RESULTS else WrongResult(text)
    return Ran(wrong, place.calls.total(), place.waited)


def figures() -> str:
    """The table for the page."""
    lines = ["| faults | | finished, without a policy | finished, with it | calls at least | without | with |"]
    lines.append("|---|---|---|---|---|---|---|")
    for section, faults in SECTIONS.items():
        lines.append(_line(f"in {section}", [fault for fault in faults if fault.kind == WELL]))
    lines.append(_line("all that can be recovered", [fault for fault in FAULTS if fault.kind == WELL]))
    lines.append(_line("that outlast every budget", [fault for fault in FAULTS if fault.kind == SPENT]))
    lines.append(_line("that no other try can mend", [fault for fault in FAULTS if fault.kind == VAIN]))
    return "\n".join(lines) + "\n"


def _line(title: str, faults: Sequence[Fault]) -> str:
    off, on = ([ran(fault, on=on) for fault in faults] for on in (False, True))
    cells: list[object] = [title, len(faults)]
    cells += [sum(one.error is None for one in off), sum(one.error is None for one in on)]
    cells += [sum(fault.fewest for fault in faults), *(sum(one.calls for one in runs) for runs in (off, on))]
    return f"| {' | '.join(map(str, cells))} |"


def refreshed(text: str) -> str:
    """The page with the figures made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{figures()}\n{END}{after}"


if __name__ == "__main__":
    DOCS.write_text(refreshed(DOCS.read_text(encoding="utf-8")), encoding="utf-8")
