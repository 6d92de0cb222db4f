"""One run of a history: its status, steps, attempts, checkpoints, events and questions to people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from crewlite.definitions.keywords import methods_with_known_keywords
from crewlite.encoding.codec import JsonObject, decode
from crewlite.errors import RefError
from crewlite.state.format.addresses import around
from crewlite.state.format.checkpoints import recorded_in
from crewlite.state.format.entry import Entry
from crewlite.state.format.outcome import Attempt, LightEvent
from crewlite.state.format.record import Record
from crewlite.state.format.rewinds import ends_of_tails, valid_at
from crewlite.state.format.times import CountedUsage
from crewlite.state.journal.effects import arguments_of
from crewlite.state.journal.lineage import Lineage, gone, read_lineage
from crewlite.state.providers import Store
from crewlite.state.reading.checkpoint import Checkpoint, collections_in, usage_change, values_in
from crewlite.state.reading.checkpoints import Checkpoints
from crewlite.state.reading.locate import abandoned_by
from crewlite.state.reading.progress import RunStatus, result_of, status_of, status_text_of
from crewlite.state.reading.prompts import Prompt, Prompts
from crewlite.state.reading.steps import StepView, attempts_of, steps_of, unsettled
from crewlite.state.verbs.answer import decode_answer, unused_answers
from crewlite.state.verbs.from_outside import holder_at
from crewlite.state.verbs.transfer import digest
from crewlite.system.forked import cached_property
from crewlite.usage import NO_USAGE, Usage


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
class UnusedAnswer:
    """An answer of a person that the run has not used yet."""

    address: str
    question: str | None
    """The question; None if the answer was given before the question was asked."""
    value: Any
    answered_at: datetime


@dataclass(frozen=True, slots=True)
class Base:
    """The commit that a fork starts from."""

    branch: str
    seq: int
    checkpoint_id: str | None
    """The checkpoint at that commit, or the newest one before it; None if there is none."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """A rewind of a branch: its time, the commit it went back to, and the reason given."""

    at: datetime
    seq: int
    """The number of the commit that the branch went back to."""
    reason: str


class _Reading(NamedTuple):
    """A branch as it was read."""

    lineage: Lineage
    checkpoints: Checkpoints
    holder: str | None
    """The live process that ran the branch then. Without one, all that any has recorded has been read."""


@methods_with_known_keywords("a run", constructed=False)
class RunHistory:
    """One branch of one run. It is read at the first use of a property, and does not follow later commits.

    With `abandoned_by`, the number of a rewind from 1, it shows the branch right before that rewind. With `as_of`, the
    id of a checkpoint, it shows the branch at that checkpoint. With neither, it shows the branch as it is now.
    """

    def __init__(
        self, store: Store, run_id: str, branch: str, abandoned_by: int | None = None, as_of: str | None = None
    ) -> None:
        self._store, self.run_id, self.branch = store, run_id, branch
        self.abandoned_by, self.as_of = abandoned_by, as_of

    def __repr__(self) -> str:
        return f"RunHistory({self.ref!r})"

    @cached_property
    def _reading(self) -> _Reading:
        store, name, before = self._store, (self.run_id, self.branch), 0
        while True:
            lineage = read_lineage(store, *name)
            checkpoints = Checkpoints(lineage.entries, store.ref, lineage.lacks)
            claim, seq = checkpoints.record.claim, checkpoints.record.seq
            by = holder_at(store.location, *name, claim, store.touched(*name) if claim else 0.0)
            if by or claim is None or seq == before or store.sum_at(*name, seq + 1) is None:
                return _Reading(lineage, checkpoints, by)
            before = seq  # the process that ran it has ended since it was read, and has recorded more

    @cached_property
    def _entries(self) -> list[Entry]:
        entries = self._reading.lineage.entries
        if self.as_of is not None:
            places = (place for entry in entries for place in recorded_in(entry))
            if (seq := next((place["seq"] for place in places if place["id"] == self.as_of), None)) is None:
                raise gone(self._store, self.ref, "checkpoint")
            return [entry for entry in entries if entry.seq <= seq]
        return entries if self.abandoned_by is None else abandoned_by(entries, self.abandoned_by, self.ref)

    @cached_property
    def _record(self) -> Record:
        return Record.of(self._entries) if self.place else self._checkpoints.record

    @property
    def ref(self) -> str:
        """The ref that names this branch within its location."""
        return f"{self.run_id}/{self.branch}" + (f"@{self.place}" if self.place else "")

    @property
    def place(self) -> str | None:
        """The part of the ref behind the @: the id of `as_of`, or `abandoned:1`; None for the branch as it is now."""
        return self.as_of if self.abandoned_by is None else f"abandoned:{self.abandoned_by}"

    @property
    def abandoned(self) -> tuple[RunHistory, ...]:
        """The branch as it was right before each of its rewinds, in order."""
        count = len(ends_of_tails(self._entries))
        tails = tuple(RunHistory(self._store, self.run_id, self.branch, number) for number in range(1, count + 1))
        for tail in tails:
            tail._reading = self._reading  # the branch is read once
        return tails

    @property
    def rewinds(self) -> tuple[Rewind, ...]:
        """The rewinds of this branch, in order. `abandoned` shows what each of them has abandoned."""
        own = [entry.commit for entry in self._entries if entry.seq > self._record.base]
        found = [(back, commit["at"]) for commit in own if (back := commit.get("rewind"))]
        return tuple(Rewind(datetime.fromisoformat(at), back["seq"], back.get("reason", "")) for back, at in found)

    def read(self) -> tuple[list[Entry], Record]:
        """Return (entries that no rewind abandoned, record). Raises RefError if its checkpoint is gone."""
        entries = self._entries
        return valid_at(entries, entries[-1].seq)[0], self._record

    @property
    def status(self) -> RunStatus:
        """The status of the branch.

        `waiting`: for answers of people. `unfinished`: running, or interrupted. A kickoff with its run_id resumes a run
        that is unfinished, waiting, failed or cancelled.
        """
        return status_of(self._record)

    @property
    def kicked_off(self) -> bool:
        """Whether the branch has run: False for a fork that nobody has kicked off yet."""
        return not self._record.fresh

    @property
    def status_text(self) -> str:
        """The status, for people: `at work` while a process runs it, `not run yet` for a new unfinished fork."""
        return "at work" if self.at_work else status_text_of(self.status, kicked_off=self.kicked_off)

    @property
    def result(self) -> Any:
        """The result: what a flow returned, what `test` or `train` returned, or the answer of a crew or agent as text.

        None if the run is not finished.
        """
        return result_of(self._record)

    @property
    def stopped_by(self) -> str | None:
        """The budget that stopped this unfinished run, in words; None if none did, or it was resumed since."""
        ended = self._record.finished or self._record.failed
        return None if ended else self._record.stopped

    @property
    def because(self) -> str | None:
        """Why the run has failed or was stopped by a budget, in words: such as "ValueError: no such report".

        None for any other status; the questions that a run waits for are `waiting`.
        """
        if self.status != "failed":
            return self.stopped_by
        last = self._record.attempts[""][-1]
        return f"{last.error_type}: {last.message}"

    @property
    def at_work(self) -> str | None:
        """The live process that ran this branch when it was read, such as "process 7 on lamp"; None if none did."""
        return None if self.place else self._reading.holder

    def touched(self) -> float:
        """Return the time of the branch's last commit or sign of life, in seconds since the epoch; 0 if it was deleted.

        Unlike the properties, this is looked up at every call, without reading the journal.
        """
        return self._store.touched(self.run_id, self.branch)

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
    def name(self) -> str:
        """The name of the definition that ran; "" if it has none."""
        return str(self._record.run["definition"]["name"] or "")

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
        """Tokens and cost of all recorded work, also of what rewinds have abandoned."""
        return self._record.paid.total

    @property
    def abandoned_usage(self) -> Usage:
        """The part of `usage` that work has cost which rewinds have abandoned, and which runs again."""
        return usage_change(self._record.paid.without_abandoned.total, self._record.paid.total)

    @property
    def own_usage(self) -> Usage:
        """For a fork, the usage since it was forked; for any other branch the same as `usage`."""
        return self._record.paid.own

    def usage_of(self, address: str) -> Usage:
        """Return tokens and cost of a step and all steps inside it, in all attempts; for "" the same as `usage`.

        For a step, what a rewind has abandoned does not count. In a fork, what its base has paid counts only for steps
        that finished there and have not run again. Raises RefError if the run has no such step.
        """
        if not address:
            return self.usage
        used = self._spent.of(address)
        if used is NO_USAGE and address not in self._addresses:
            raise RefError(address, f"names no step of {self.ref}", [one.address for one in self.steps if one.address])
        return used

    @cached_property
    def _addresses(self) -> set[str]:
        """The addresses of the steps, and of those that enclose them."""
        own = {one.address for one in self.steps}
        return own | around(own)

    @cached_property
    def _spent(self) -> CountedUsage:
        return CountedUsage(self._record)

    @property
    def waiting(self) -> list[Waiting]:
        """The questions to people that have no answer yet, with what fits. `Suspended.waiting` has their texts."""
        return [
            Waiting(
                address=asked["address"],
                question=asked["question"],
                schema=asked.get("schema"),
                asked_at=datetime.fromisoformat(asked["at"]),
                until=datetime.fromisoformat(until) if (until := asked.get("until")) else None,
            )
            for asked in self._record.waiting
        ]

    @property
    def unused_answers(self) -> list[UnusedAnswer]:
        """The answers that the run has not used yet: its next kickoff does, or they were given before their questions.

        Until then, `History.answer(..., replace=True)` puts another in the place of one.
        """
        return [
            UnusedAnswer(
                address=given["address"],
                question=asked["question"] if asked else None,
                value=decode_answer(given, asked.get("schema") if asked else None),
                answered_at=datetime.fromisoformat(given["at"]),
            )
            for asked, given in unused_answers(self._record)
        ]

    @property
    def unsettled(self) -> dict[str, int]:
        """The calls with effect="once" that did not finish: by address, how often each was begun.

        The next kickoff raises InDoubt there.
        """
        return unsettled(self._record)

    def arguments_of(self, address: str) -> str:
        """Return the beginning of the arguments, as JSON, of a call with effect="once"; "" if none are recorded."""
        return arguments_of(self._entries).get(address, "")

    @property
    def steps(self) -> list[StepView]:
        """Finished steps in the order of their commits, then failed steps, then steps in doubt.

        In a fork, an inherited step is left out once its enclosing step has finished in the fork without asking for it.
        Steps that code which has changed does not ask for any more are left out, too, but for the calls with
        effect="once" and the steps around them: these are listed as unused.
        """
        return steps_of(self._record)

    def prompt(self, address: str) -> Prompt:
        """Return the prompt of the model call at an address, such as `task:write/llm#1`, as far as that is recorded.

        Raises RefError if no reply to such a call is recorded.
        """
        return Prompts(self._record).in_full(address)

    @property
    def attempts(self) -> list[Attempt]:
        """Every failed attempt, in order. A failure that a model was told of is not one, but the outcome of a step.

        In a fork, the attempts of its base count only for steps that finished there.
        """
        return attempts_of(self._record)

    def checkpoints(self, *, abandoned: bool = False) -> list[Checkpoint]:
        """Return the checkpoints of this branch, first to last; for a fork, also those before the fork.

        Those that the branch has abandoned are left out, unless `abandoned` is True.
        """
        return self._checkpoints.all(self._record, abandoned=abandoned)

    def checkpoint(self, identifier: str | None = None) -> Checkpoint | None:
        """Return the checkpoint with this id, abandoned or not; without an id, the newest one.

        None if there is none.
        """
        if identifier is not None:
            return self._checkpoints.find(identifier)
        return self._checkpoints.newest(self._record)

    @property
    def _checkpoints(self) -> Checkpoints:
        return self._reading.checkpoints

    def events(self) -> list[LightEvent]:
        """Return every recorded event, in order."""
        return list(self._record.events)
