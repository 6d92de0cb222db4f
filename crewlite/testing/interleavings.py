"""Interrupt every verb of a run by every other, right before each call of the store.

```python
import itertools
from crewlite.state import InMemoryProvider
from crewlite.testing import check_interleavings

fresh = itertools.count()
print(check_interleavings(lambda: (InMemoryProvider(), f"store-{next(fresh)}"), share=50).trials)
```
"""

from __future__ import annotations

import asyncio
import itertools
import random
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.errors import CrewliteError
from crewlite.events import LLMCallStartedEvent, TaskCompletedEvent
from crewlite.events.event_bus import event_bus
from crewlite.state.providers import BaseProvider
from crewlite.state.run_history import RunHistory
from crewlite.testing.interleaved import Interleaved, outcome_of
from crewlite.testing.laws import Make
from crewlite.testing.scripted import ScriptedLLM

FALSE_ALARMS = ("JournalCorrupt", "CheckpointMismatch", "SchemaTooNew", "StoreError", "StoreBusy", "StoreUnusable")
"""Errors that must not be raised, as no store here is damaged, full, or locked for long."""
_LONGEST = 20.0  # seconds after which a verb counts as one that never ends
_PATIENT = 2.0  # seconds to wait for an act, which may need something that the interrupted verb holds
_RUN, _BRANCH, _OTHER = "r", "side", "z"
_ANSWERS = [f"answer {n}" for n in range(4)]


class NeverEnds(Exception):
    """Stands for the outcome of a verb that did not end in time."""


@dataclass
class Explored:
    """The trials that were made, and the broken promises found."""

    trials: int = 0
    verbs: set[str] = field(default_factory=set)
    acts: set[str] = field(default_factory=set)
    violations: dict[str, list[str]] = field(default_factory=dict)
    """The broken promises, each with the trials in which it was broken."""

    def add(self, where: tuple[str, str, int], broken: Iterable[str]) -> None:
        """Count a trial. `where` is the verb, the act, and the number of the store's call before which the act ran."""
        self.trials += 1
        self.verbs.add(where[0])
        self.acts.add(where[1])
        for text in broken:
            self.violations.setdefault(text, []).append("{}, {} before {}".format(*where))

    def __str__(self) -> str:
        counts = f"{len(self.verbs)} verbs, {len(self.acts)} acts, {self.trials} positions"
        lines = [f"{len(where):5} x {text}\n        {', '.join(where[:6])}" for text, where in self.violations.items()]
        return "\n".join([f"{counts}: {len(self.violations)} violations", *lines])


def check_interleavings(make: Make, *, share: int = 25, seed: int = 1) -> Explored:
    """Check that a provider keeps the promises of runs while other processes use the same location.

    Resume, fork, prune, delete, export, import, cancel, repair and listings of one run are each interrupted by each,
    right before each verb of the store. Afterwards nothing that was acknowledged is lost, every journal can be read and
    resumed, nothing is paid twice, and listings show what journals hold.

    Args:
        make: Returns `(provider, location)`, fresh at every call, as for `check_provider`.
        share: One of this many trials is made, chosen at random; 1 makes all of them, some hundreds.
        seed: The seed of the random choice.

    Returns: the trials that were made.

    Raises:
        AssertionError: A promise is broken; the message says which, and where.
    """
    found, chance = Explored(), random.Random(seed)  # noqa: S311 - a sample, not a secret
    counts = {verb: _count(make, verb) for verb in _VERBS}
    for verb, act in itertools.product(_VERBS, _VERBS):
        for at in range(1, counts[verb] + 1):
            if share == 1 or not chance.randrange(share):
                found.add((verb, act, at), _trial(make, verb, act, at))
    assert not found.violations, str(found)
    return found


def bounded(act: Callable[[], object], longest: float = _LONGEST) -> object:
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
            yield f"unreadable: {run.run_id}/{run.branch}: {_said(error)}"
    yield from (f"{run_id} has a fork of {base!r}, which is not there" for run_id, base in set(bases) - names)
    listed = {one.id for one in history.checkpoints()}
    if phantoms := listed - known:
        yield f"{len(phantoms)} checkpoints are listed, and no journal has them"
    if missing := known - listed:
        yield f"{len(missing)} checkpoints of journals are not listed"
    yield from (f"doctor: {found.what}: {found.problem}" for found in history.doctor())


@dataclass(frozen=True)
class _Site:
    """A location with an interrupted run, a fork of it, and a finished run that no verb changes."""

    location: str
    provider: BaseProvider
    document: Path
    """The exported run."""
    paid: list[tuple[str, str]] = field(default_factory=list)
    acknowledged: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of a branch and a task."""

    def history(self) -> History:
        return History(self.location, self.provider, make=True)

    def crew(self, before: Callable[[int], object] = lambda number: None) -> Crew:
        """Return a crew of four independent tasks. `before` is called before each reply."""

        def reply(messages: Sequence[Any]) -> str:
            number = int(str(messages[1]["content"]).split()[1])
            before(number)
            return _ANSWERS[number]

        agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(reply))
        tasks = [
            Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=agent, context=[])
            for n in range(len(_ANSWERS))
        ]
        return Crew(tasks=tasks, checkpoint=CheckpointConfig(location=self.location, provider=self.provider))

    def kickoff(self, **how: Any) -> list[str]:
        """Kick off the crew, or resume a run of it. Notes the calls that are paid and the acknowledged tasks."""

        def pay(source: object, event: LLMCallStartedEvent) -> None:
            self.paid.append((f"{event.run_id}/{event.branch}", str(event.address).partition("/")[0]))

        def acknowledge(source: object, event: TaskCompletedEvent) -> None:
            self.acknowledged.append((f"{event.run_id}/{event.branch}", str(event.address)))

        with event_bus.on(LLMCallStartedEvent, pay), event_bus.on(TaskCompletedEvent, acknowledge):
            return [output.raw for output in self.crew().kickoff(**how).tasks_output]

    async def cut(self) -> None:
        """Begin a run, and cancel it while the model answers the third task."""

        def cancel(number: int) -> None:
            if number == 2:
                work.cancel()
                raise asyncio.CancelledError

        work = asyncio.ensure_future(self.crew(cancel).akickoff(run_id=_RUN))
        await asyncio.wait({work})

    def finished(self) -> dict[str, set[str]]:
        """Return the recorded tasks of each branch."""
        with self.history() as history:
            return {f"{run.run_id}/{run.branch}": _finished(run) for run in history.runs()}


def _finished(run: RunHistory) -> set[str]:
    return {step.address for step in run.steps if step.status == "finished" and "/" not in step.address}


def _set_up(make: Make, documents: str) -> _Site:
    provider, location = make()
    site = _Site(location, provider, Path(documents) / "run.json")
    site.kickoff(run_id=_OTHER)
    asyncio.run(site.cut())
    with site.history() as history:
        history.fork(history.run(_RUN).checkpoints()[0].id, branch=_BRANCH)
        history.export(_RUN, site.document)
    return site


def _of_history(do: Callable[[History, _Site], object]) -> Callable[[_Site], object]:
    def verb(site: _Site) -> object:
        with site.history() as history:
            return do(history, site)

    return verb


_VERBS: dict[str, Callable[[_Site], object]] = {
    "resume": lambda site: site.kickoff(run_id=_RUN),
    "resume the fork": lambda site: site.kickoff(from_checkpoint=f"{_RUN}/{_BRANCH}"),
    "fork": _of_history(lambda history, site: history.fork(_RUN)),
    "prune": _of_history(lambda history, site: history.prune(keep_last=1)),
    "delete": _of_history(lambda history, site: history.delete(_RUN)),
    "export": _of_history(lambda history, site: history.export(_RUN, site.document.with_name("out.json"))),
    "import": _of_history(lambda history, site: history.import_run(site.document)),
    "cancel": _of_history(lambda history, site: history.cancel(_RUN)),
    "repair": _of_history(lambda history, site: history.doctor(repair=True)),
    "list": _of_history(lambda history, site: [run.digest for run in history.runs()]),
}


def _count(make: Make, verb: str) -> int:
    """Return how many calls of the store a verb makes if it is not interrupted."""
    with tempfile.TemporaryDirectory() as documents:
        site = _set_up(make, documents)
        counted = Interleaved(site.provider)
        _through(site, counted, verb)()
        return counted.count


def _through(site: _Site, provider: BaseProvider, verb: str) -> Callable[[], object]:
    return lambda: _VERBS[verb](_Site(site.location, provider, site.document, site.paid, site.acknowledged))


def _trial(make: Make, verb: str, act: str, at: int) -> list[str]:
    """Run a verb, with an act right before its `at`-th call of the store. Returns the broken promises."""
    with tempfile.TemporaryDirectory() as documents:
        site = _set_up(make, documents)
        before = site.finished()
        beside = Interleaved(site.provider, at=at, act=lambda: _VERBS[act](site), patience=_PATIENT)
        outcomes = {verb: bounded(_through(site, beside, verb))}
        outcomes[f"the {act} in between"] = beside.outcome if beside.ended(_LONGEST) else NeverEnds()
        broken = [f"{name} {text}" for name, outcome in outcomes.items() for text in bad_manners(outcome)]
        try:
            with site.history() as history:
                broken += inconsistencies(history)
            broken += _lost(site, before, may_be_gone="delete" in (verb, act))
            broken += _resumed(site)
        except Exception as error:  # any error at an intact location is a finding
            broken.append(f"afterwards it raised {_said(error)}")
        return [text.replace(site.location, "") for text in broken]


def _lost(site: _Site, before: dict[str, set[str]], *, may_be_gone: bool) -> Iterable[str]:
    found = site.finished()
    wanted = [*site.acknowledged, *((name, task) for name, tasks in before.items() for task in tasks)]
    for name, task in dict.fromkeys(wanted):
        if task not in found.get(name, ()) and not (may_be_gone and name.startswith(f"{_RUN}/")):
            yield f"lost: {task} of {name}, which was acknowledged"


def _resumed(site: _Site) -> Iterable[str]:
    """Resume every branch and yield what is wrong: each must give the complete result and repeat no recorded task."""
    for name, recorded in site.finished().items():
        site.paid.clear()
        result = site.kickoff(from_checkpoint=name)
        if result != _ANSWERS:
            yield f"{name} came to {result}"
        yield from (f"{task} of {name} is recorded, and was paid again" for _, task in site.paid if task in recorded)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
