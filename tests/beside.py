"""A run, before one of whose calls of its store another does something there: to the run, or to the whole store."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

from crewlite import CheckpointConfig, History, event_bus
from crewlite.events import BaseEvent
from crewlite.state import InMemoryProvider
from crewlite.testing import Interleaved
from crewlite.testing.interleavings import bad_manners, bounded, inconsistencies

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
