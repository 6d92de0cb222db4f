"""One run of a history: its status, steps, attempts, checkpoints, events and questions to people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from crewlite.codec import JsonObject, decode
from crewlite.state.format.entry import Entry
from crewlite.state.format.outcome import Attempt, LightEvent
from crewlite.state.format.record import Record
from crewlite.state.journal.holder import holder
from crewlite.state.journal.lineage import gone, trace
from crewlite.state.providers import Store
from crewlite.state.reading.checkpoint import Checkpoint, checkpoints, collections_in, values_in
from crewlite.state.reading.steps import StepView, attempts_of, steps_of
from crewlite.state.verbs.transfer import digest
from crewlite.usage import Usage


@dataclass(frozen=True, slots=True)
class Waiting:
    """An open question to a person, which a run waits for."""

    address: str
    question: str
    schema: Any
    """The JSON schema of the answer; None for any text."""
    asked_at: datetime
    until: datetime | None
    """The time at which the question times out; None if it waits without limit."""


@dataclass(frozen=True, slots=True)
class Base:
    """The commit that a fork starts from."""

    branch: str
    seq: int
    checkpoint_id: str | None
    """The checkpoint at that commit, or the newest one before it; None if there is none."""


class RunHistory:
    """One branch of one run. It is read at the first use of a property, and does not follow later commits."""

    def __init__(self, store: Store, run_id: str, branch: str) -> None:
        self._store, self.run_id, self.branch = store, run_id, branch

    @cached_property
    def _trace(self) -> tuple[list[Entry], dict[str, str | None]]:
        entries, lost = trace(self._store, self.run_id, self.branch)
        if not entries:
            raise gone(self._store, f"{self.run_id}/{self.branch}", "branch")
        return entries, lost

    @cached_property
    def _record(self) -> Record:
        return Record.of(self._trace[0])

    @property
    def status(self) -> Literal["finished", "failed", "unfinished", "waiting", "cancelled"]:
        """The status of the branch.

        `waiting`: for answers of people. `unfinished`: running, or interrupted. A kickoff with its run_id resumes a run
        that is unfinished, waiting, failed or cancelled.
        """
        if self._record.finished:
            return "finished"
        if self._record.cancelled:
            return "cancelled"
        if self._record.failed:
            return "failed"
        return "waiting" if self._record.waiting else "unfinished"

    @property
    def stopped_by(self) -> str | None:
        """The budget that an unfinished run has stopped at, in words; None if none did, or it was resumed since."""
        return None if self._record.ended else self._record.stopped

    @property
    def at_work(self) -> str | None:
        """The live process that runs it, by number and host, such as "process 7 on lamp"; None if none does."""
        return holder(self._store, self.run_id, self.branch, self._record.claim)

    @property
    def started_at(self) -> datetime:
        """The time at which the branch was created."""
        return datetime.fromisoformat(self._record.started_at)

    @property
    def base(self) -> Base | None:
        """The commit that this fork starts from; None if it is not a fork."""
        base = self._record.run.get("base")
        return Base(base["branch"], base["seq"], base["place"]["id"] if base["place"] else None) if base else None

    @property
    def tasks(self) -> tuple[str, ...]:
        """The addresses of the finished tasks, in the order in which they finished."""
        return tuple(address for address in self._record.tasks if address in self._record.outcomes)

    @cached_property
    def digest(self) -> str:
        """A digest of the run with all its branches. It is the same for a copy at another location."""
        return digest(self._store, self.run_id)

    @property
    def definition(self) -> JsonObject:
        """Kind, name and tasks of the definition that ran."""
        return dict(self._record.run["definition"])

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of the kickoff."""
        return dict(decode(self._record.run["inputs"]))

    @property
    def values(self) -> dict[str, Any]:
        """The named values of the run after its newest commit, which may be later than its last checkpoint."""
        return values_in(self._record.values)

    @property
    def collections(self) -> dict[str, dict[str, Any]]:
        """The items of each collection by their ids, after the newest commit."""
        return collections_in(self._record.values)

    @property
    def usage(self) -> Usage:
        """Tokens and cost of all recorded work."""
        return self._record.usage

    @property
    def own_usage(self) -> Usage:
        """Of a fork, the usage without what had been paid when it was forked; else the same as `usage`."""
        return self._record.paid.own

    @property
    def waiting(self) -> list[Waiting]:
        """The questions to people that have no answer yet."""
        return [
            Waiting(
                asked["address"],
                asked["question"],
                asked.get("schema"),
                datetime.fromisoformat(asked["at"]),
                datetime.fromisoformat(until) if (until := asked.get("until")) else None,
            )
            for asked in self._record.waiting
        ]

    @property
    def steps(self) -> list[StepView]:
        """Finished steps in the order of their commits, then failed steps, then steps in doubt."""
        return steps_of(self._record)

    @property
    def attempts(self) -> list[Attempt]:
        """Every failed attempt, in order."""
        return attempts_of(self._record)

    def checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints of this branch, first to last; for a fork, also those before the fork."""
        entries, lost = self._trace
        return checkpoints(entries, self._store.ref, lost)

    def events(self) -> list[LightEvent]:
        """Return every recorded event, in order."""
        return list(self._record.events)
