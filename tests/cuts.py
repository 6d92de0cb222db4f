"""A run that is killed right after each of its commits in turn, and gone on with.

What a kill leaves behind is the commits so far, and nothing else: so they are kept as they come, and each beginning of
their list is a store of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from crewlite import CheckpointConfig, History, event_bus
from crewlite.events import BaseEvent
from crewlite.state import InMemoryProvider
from crewlite.state.providers.base import Commit
from crewlite.state.run_history import RunHistory


class Kept:
    """A provider that keeps what is appended at one location, "here", commit by commit."""

    name = "kept"
    in_memory = True

    def __init__(self, commits: Sequence[Any] = ()) -> None:
        self._inner, self.commits = InMemoryProvider(), list[Any](commits)
        self._inner.open("here").append(self.commits)

    @property
    def entries(self) -> list[Any]:
        """All entries, of whatever branch, in the order in which they came."""
        return [entry for commit in self.commits for entry in commit.entries]

    def cut(self, at: int) -> Kept:
        """What was there right after the commit `at`, the first being 1."""
        return Kept(self.commits[:at])

    def open(self, location):
        return _KeptStore(self, self._inner.open(location))


class _KeptStore:
    def __init__(self, provider, inner):
        self._provider, self._inner, self.location = provider, inner, inner.location

    def append(self, commits):
        self._inner.append(commits)
        self._provider.commits += commits

    def __getattr__(self, name):
        return getattr(self._inner, name)


RUN = "run"


def entries_of(setting: CheckpointConfig, run_id: str = RUN) -> list[Any]:
    """The commits of a run, where its `setting` says."""
    with contextlib.closing(setting.provider.open(setting.location)) as store:
        return store.read(run_id, "main")


def cut(entries: list[Any], at: int, *, run_id: str = RUN, **more: Any) -> CheckpointConfig:
    """A store that holds the run as it was after `at` commits."""
    provider = InMemoryProvider()
    provider.open("cut").append([Commit(run_id, "main", 0, "", tuple(entries[:at]))])
    return CheckpointConfig(location="cut", provider=provider, **more)


def kept_by(setting: CheckpointConfig) -> tuple[Any, Any]:
    """The values and the collections that the run has kept."""
    with History(setting.location, setting.provider) as history:
        run = history.run(RUN)
        return run.values, run.collections


def values_of(setting: CheckpointConfig) -> Any:
    """The values that the run has kept."""
    return kept_by(setting)[0]


def cut_anywhere(whole: Callable[..., Any], setting: CheckpointConfig, expected: Any, *, after: int = 1, **more: Any):
    """A flow that has run in `setting`, cut after each commit and kicked off twice, comes to the same result and state.

    `whole(setting)` makes the flow.
    """
    entries = entries_of(setting)
    for at in range(after, len(entries)):
        again = cut(entries, at, **more)
        for _ in range(2):
            assert whole(again).kickoff(run_id=RUN) == expected, f"cut after commit {at}"
        assert kept_by(again) == kept_by(setting), f"cut after commit {at}"


def kick_off(made: Any, **given: Any) -> Any:
    return made.kickoff(**given)


def lives(
    make: Callable[..., Any], verb: Callable[..., Any] = kick_off, *, every: int = 1, **kickoff: Any
) -> Iterator[tuple[Any, Any]]:
    """For each commit, or each `every`-th: what the run came to that nobody disturbed, and the one that was killed right after it.

    `make(checkpoint=...)` makes the crew or agent, and `verb(made, run_id=...)` runs it. Raises AssertionError if a recorded step is begun again.
    """
    kept = Kept()
    whole = verb(make(checkpoint=_at(kept)), run_id="r", **kickoff)
    assert len(kept.commits) > 1
    for count in range(1, len(kept.commits) + 1, every):
        provider = kept.cut(count)
        with History("here", provider) as history:
            finished = {(run.run_id, step.address) for run in history.runs() for step in _finished(run)}
        begun: list[tuple[str | None, str]] = []
        with event_bus.scoped():
            event_bus.on(BaseEvent, lambda source, event, begun=begun: _note(event, begun))
            again = verb(make(checkpoint=_at(provider)), run_id="r")
        assert not finished.intersection(begun), f"recorded, and begun again after commit {count}: {begun}"
        yield whole, again


def _finished(run: RunHistory) -> Iterator[Any]:
    return (step for step in run.steps if step.status == "finished")


def _note(event: BaseEvent, begun: list[tuple[str | None, str]]) -> None:
    further_turn = event.type == "lite_agent_execution_started" and not event.address  # it begins the run again
    if event.type.endswith("_started") and not event.type.startswith(("checkpoint_", "agent_")) and not further_turn:
        begun.append((event.run_id, event.address))


def _at(provider: Any) -> CheckpointConfig:
    return CheckpointConfig(location="here", provider=provider)
