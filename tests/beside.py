"""A run, before one of whose calls of its store another does something there: to the run, or to the whole store."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from crewlite import CheckpointConfig, History, event_bus
from crewlite.errors import CrewliteError
from crewlite.events import BaseEvent
from crewlite.state import InMemoryProvider
from crewlite.testing import Interleaved
from crewlite.testing.interleaved import outcome_of

Kickoff = Callable[[CheckpointConfig], Any]
"""Kicks the run `RUN` off with this setting, and returns what can be compared of what it comes to."""

RUN = "r"
ACTS: dict[str, Callable[[History], object]] = {
    "fork": lambda history: history.fork(RUN),
    "fork of a checkpoint": lambda history: [history.fork(one.id) for one in history.run(RUN).checkpoints()[:1]],
    "prune": lambda history: history.prune(keep_last=1),
    "delete": lambda history: history.delete(RUN),
    "cancel": lambda history: history.cancel(RUN),
    "repair": lambda history: history.doctor(repair=True),
    "list": lambda history: [(run.digest, run.steps, run.usage) for run in history.runs()],
}
"""What another does; to kick off the run a second time is one more."""
_AGAIN = "kickoff"
EVERY = (*ACTS, _AGAIN)
FALSE_ALARMS = ("JournalCorrupt", "CheckpointMismatch", "SchemaTooNew", "StoreError", "StoreBusy", "StoreUnusable")
"""Errors that must not be raised, as no store here is damaged, full, or locked for long."""


class NeverEnds(Exception):
    """Stands for the outcome of a verb that did not end in time."""


class Beside:
    """Trials of one kickoff, each with something else done before one of its calls of the store."""

    def __init__(self, kickoff: Kickoff, *on_events: str) -> None:
        self._kickoff, self._on_events = kickoff, on_events
        alone = _Trial(self.kicked_off)
        self._whole, self.count = alone.outcome, alone.count
        """How many calls of the store there are."""

    def kicked_off(self, provider: Any) -> Any:
        """Return what the run comes to in the store of this provider."""
        return self._kickoff(CheckpointConfig(location="here", provider=provider, on_events=list(self._on_events)))

    def broken(self, act: str, at: int) -> list[str]:
        """Return the promises that are broken if another does this before the `at`-th call of the store."""
        problems = _Trial(self.kicked_off, act, at).problems(self._whole)
        return [f"{act} before {at} of {self.count}: {problem}" for problem in problems]

    def broken_by_a_sample(self, seed: str) -> list[str]:
        """The same for every act, each before a call drawn at random."""
        chance = random.Random(seed)
        return [problem for act in EVERY for problem in self.broken(act, chance.randint(2, self.count))]

    def broken_anywhere(self) -> list[str]:
        """The same for every act before every call."""
        pairs = itertools.product(EVERY, range(2, self.count + 1))
        return [problem for act, at in pairs for problem in self.broken(act, at)]


class _Trial:
    def __init__(self, kickoff: Callable[[Any], Any], act: str | None = None, at: int | None = None) -> None:
        self._kickoff, self._kept = kickoff, InMemoryProvider()
        beside = Interleaved(self._kept, at=at, act=lambda: self._do(act), patience=2.0)
        self.outcome = bounded(lambda: kickoff(beside))
        self.ended, self.count, self._beside = beside.ended(), beside.count, beside.outcome

    def _do(self, act: str | None) -> object:
        if act == _AGAIN:
            return self._kickoff(self._kept)
        assert act
        with self._history() as history:
            return ACTS[act](history)

    def _history(self) -> History:
        return History("here", self._kept)

    def problems(self, whole: Any) -> Iterator[str]:
        """What is wrong, if undisturbed the run comes to `whole`."""
        yield from (f"the kickoff {text}" for text in bad_manners(self.outcome))
        yield from (f"the act {text}" for text in bad_manners(self._beside)) if self.ended else ["the act never ends"]
        with self._history() as history:
            yield from inconsistencies(history)
            runs = [run for run in history.runs() if run.run_id == RUN and run.branch == "main"]
            finished = {step.address for run in runs for step in run.steps if step.status == "finished"}
        begun: list[str] = []
        with event_bus.scoped():
            event_bus.on(BaseEvent, lambda source, event: begun.append(f"{event.type} {event.address}"))
            came_to = self._kickoff(self._kept)
        for line in begun:
            again = "_started" in line and line.partition(" ")[2] in finished
            if again and not line.startswith(("checkpoint_", "agent_")):
                yield f"begun again: {line}"
        if came_to != whole:
            yield f"it came to {came_to!r} instead of {whole!r}"


def bounded(act: Callable[[], object], longest: float = 20.0) -> object:
    """Call an act and return its result, or the exception that it raises; NeverEnds after `longest` seconds."""
    ended: list[object] = []
    thread = threading.Thread(target=lambda: ended.append(outcome_of(act)), daemon=True)
    thread.start()
    thread.join(longest)
    return ended[0] if ended else NeverEnds()


def bad_manners(outcome: object) -> Iterable[str]:
    """Yield what is wrong with an outcome: an error that is not crewlite's, a false alarm, or no end."""
    if isinstance(outcome, NeverEnds):
        yield "never ends"
    elif isinstance(outcome, BaseException):
        name, text = type(outcome).__name__, str(outcome)[:300]
        if not isinstance(outcome, CrewliteError):
            yield f"raised {name}, which has no type of ours: {text}"
        elif name in FALSE_ALARMS:
            yield f"raised a false alarm: {name}: {text}"


def inconsistencies(history: History) -> Iterable[str]:
    """Yield what is wrong with a location: unreadable journals, forks without a base, listings, doctor's findings."""
    names: set[tuple[str, str]] = set()
    bases: list[tuple[str, str]] = []
    known: set[str] = set()
    for run in history.runs():
        try:
            names.add((run.run_id, run.branch))
            known |= {one.id for one in run.checkpoints() if one.branch == run.branch}
            _ = run.status, run.steps, run.values, run.waiting, run.digest
            if run.base or run.branch != "main":
                bases.append((run.run_id, run.base.branch if run.base else ""))
        except Exception as error:  # an unreadable journal may raise anything
            yield f"unreadable: {run.run_id}/{run.branch}: {type(error).__name__}: {str(error)[:200]}"
    yield from (f"{run_id} has a fork of {base!r}, which is not there" for run_id, base in set(bases) - names)
    listed = {one.id for one in history.checkpoints()}
    if phantoms := listed - known:
        yield f"{len(phantoms)} checkpoints are listed, and no journal has them"
    if missing := known - listed:
        yield f"{len(missing)} checkpoints of journals are not listed"
    yield from (f"doctor: {found.what}: {found.problem}" for found in history.doctor())
