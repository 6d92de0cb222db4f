"""Reading what was recorded: runs, their steps and attempts, checkpoints and events.

```python
from crewlite import Agent, History

Agent(role="Clerk", goal="answer", llm="offline", checkpoint=True).kickoff("What is recorded?", run_id="one")
with History("./.checkpoints") as history:
    for run in history.runs():
        print(run.run_id, run.status, run.usage.total_tokens)
```
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from crewlite.codec import JsonObject, decode
from crewlite.errors import ConfigError, CrewliteError, RefError, StoreError
from crewlite.refs import as_run_id
from crewlite.state.format.entry import Entry
from crewlite.state.format.outcome import Attempt, LightEvent
from crewlite.state.format.record import Record
from crewlite.state.journal.cancel import cancel
from crewlite.state.journal.holder import holder
from crewlite.state.journal.lineage import gone, trace
from crewlite.state.providers import BaseProvider, CheckpointInfo, Store, exists, provider_for
from crewlite.state.reading.checkpoint import Checkpoint, checkpoints
from crewlite.state.reading.locate import Located, locate
from crewlite.state.reading.steps import StepView, attempts_of, steps_of
from crewlite.state.verbs.answer import answer
from crewlite.state.verbs.doctor import Finding, doctor
from crewlite.state.verbs.fork import Changes, fork
from crewlite.state.verbs.prune import Pruned, delete, prune
from crewlite.state.verbs.transfer import digest, export_run, import_run
from crewlite.usage import Usage


@dataclass(frozen=True, slots=True)
class Waiting:
    """A question that a run waits with."""

    address: str
    question: str
    schema: Any
    """JSON schema of the answer; None for any text."""
    asked_at: datetime
    until: datetime | None
    """When it stops waiting."""


@dataclass(frozen=True, slots=True)
class Base:
    """What a fork stands on."""

    branch: str
    seq: int
    checkpoint_id: str | None
    """The checkpoint there, or the newest before; None if there is none."""


class RunHistory:
    """One branch of one run, as it was when it was first looked at."""

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
        """unfinished: running, or cut; kick off again with its run_id to go on, as with failed and cancelled.

        waiting: for people.
        """
        if self._record.finished:
            return "finished"
        if self._record.cancelled:
            return "cancelled"
        if self._record.failed:
            return "failed"
        return "waiting" if self._record.waiting else "unfinished"

    @property
    def at_work(self) -> str | None:
        """Who, alive, is at work on it, such as "process 7 on lamp"; None if nobody is."""
        return holder(self._store, self.run_id, self.branch, self._record.claim)

    @property
    def started_at(self) -> datetime:
        """When the branch was begun."""
        return datetime.fromisoformat(self._record.started_at)

    @property
    def base(self) -> Base | None:
        """Of a fork, what it stands on."""
        base = self._record.run.get("base")
        return Base(base["branch"], base["seq"], base["place"]["id"] if base["place"] else None) if base else None

    @property
    def tasks(self) -> tuple[str, ...]:
        """Addresses of the finished tasks, in the order they finished."""
        return tuple(address for address in self._record.tasks if address in self._record.outcomes)

    @cached_property
    def digest(self) -> str:
        """Names the run as it stands, all branches of it: the same wherever it is kept."""
        return digest(self._store, self.run_id)

    @property
    def definition(self) -> JsonObject:
        """Kind, name and tasks of the definition that ran."""
        definition: JsonObject = self._record.run["definition"]
        return definition

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of the kickoff."""
        inputs: dict[str, Any] = decode(self._record.run["inputs"])
        return inputs

    @property
    def values(self) -> dict[str, Any]:
        """The values beside it, as its newest commit has them: that may be after its last checkpoint."""
        return {name: decode(value) for name, value in self._record.values.items()}

    @property
    def usage(self) -> Usage:
        """Tokens and cost of everything recorded."""
        return self._record.usage

    @property
    def waiting(self) -> list[Waiting]:
        """The questions that nobody has answered yet."""
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
        """Finished steps in the order of their commits, then those that failed or are in doubt."""
        return steps_of(self._record)

    @property
    def attempts(self) -> list[Attempt]:
        """Every try that failed, in order."""
        return attempts_of(self._record)

    def checkpoints(self) -> list[Checkpoint]:
        """The checkpoints of this branch, first to last; of a fork, those before it too."""
        entries, lost = self._trace
        return checkpoints(entries, self._store.ref, lost)

    def events(self) -> list[LightEvent]:
        """Every event, in order."""
        return list(self._record.events)


class History:
    """The runs kept at a location. One that does not exist is a RefError; with `make`, the first import makes it."""

    def __init__(
        self,
        location: str | os.PathLike[str] = "./.checkpoints",
        provider: BaseProvider | None = None,
        *,
        make: bool = False,
    ) -> None:
        self._location = os.fspath(location)
        self._provider = provider_for(self._location, provider)
        if not make and not exists(self._location, self._provider):
            raise RefError(self._location, "does not exist, so it holds no runs")
        self._store = self._provider.open(self._location)

    def runs(self) -> list[RunHistory]:
        """All branches of all runs, newest run first."""
        return [RunHistory(self._store, info.run_id, info.branch) for info in self._store.branches()]

    def run(self, ref: str | UUID | Checkpoint = "latest") -> RunHistory:
        """The run that a ref names: a run_id, `run/branch`, an id of one of its checkpoints, or `latest`."""
        found = self._find(ref)
        return RunHistory(self._store, found.run_id, found.branch)

    def checkpoint(self, ref: str | UUID | Checkpoint = "latest") -> Checkpoint:
        """The checkpoint that a ref names; of a run or branch, its newest. Raises RefError."""
        found = self._find(ref)
        own = RunHistory(self._store, found.run_id, found.branch).checkpoints()
        for checkpoint in reversed(own):
            if found.checkpoint in (None, checkpoint.id):
                return checkpoint
        name = f"{found.run_id}/{found.branch}"
        raise RefError(str(ref), f"names no checkpoint: {name} has {len(own) or 'none'}", [p.id for p in own])

    def checkpoints(self, *, limit: int | None = None, before: str | None = None) -> list[CheckpointInfo]:
        """The checkpoints of all runs, newest first; at most `limit`, all older than the one whose id is `before`.

        For the next page, pass the id of the last one as `before`. Reads no journals.
        """
        return self._store.places(limit=limit, before=before)

    places = checkpoints
    """The old name of `checkpoints`, deprecated."""

    def fork(
        self,
        ref: str | UUID | Checkpoint | RunHistory = "latest",
        *,
        branch: str | None = None,
        operation_id: str | None = None,
        edits: Mapping[str, Any] | None = None,
        rerun: Iterable[str] = (),
        inputs: Mapping[str, Any] | None = None,
    ) -> RunHistory:
        """Begin a branch at the checkpoint that a ref names, or at the head of the run or branch that it names.

        Args:
            ref: What to fork; a checkpoint or run of this history will do.
            branch: The name of the new branch; one is made up if it is left out.
            operation_id: Makes a repeated call safe: the same operation gives the same branch.
            edits: Outcomes to put in the place of recorded ones, by address: `{"task:research": "other text"}`. What is
                made from them runs again, everything else answers from the record.
            rerun: Addresses of finished steps to run again, with what is made from their outcomes.
            inputs: Laid over the recorded ones; a kickoff of the fork has them.

        Raises:
            RefError: there is nothing to fork, or no such step. BranchExists: the name is taken. ConfigError: an input
                that was not recorded, and that nothing in the recorded definition asks for. AnswerRefused: an edit
                does not answer its question. StoreError, OSError: nothing was made.
        """
        changed = Changes.of(edits, rerun, inputs)
        found = fork(self._find(ref), self, branch=branch, operation_id=operation_id, changed=changed)
        return RunHistory(self._store, found.run_id, found.branch)

    def answer(
        self, ref: str | UUID | Checkpoint | RunHistory, address: str | Waiting, value: Any, *, ahead: bool = True
    ) -> None:
        """Answer a question that a run waits with; the run goes on with it when it is kicked off again, anywhere.

        A run that is at work in this process hears the answer at once. `address` is that of the question, or the
        question itself, as `.waiting` of the run lists it.

        A question of an unfinished run (`human:...`) may be answered before it is asked. That answer is checked when it
        is asked, and replaces one that was given ahead before. With `ahead=False` this is a RefError.

        Raises:
            RefError: the run does not ask this. AnswerRefused: the answer does not fit, or is the second.
            BranchConflictError: the run is at work in another process. StoreError: it was not saved.
            ConfigError: `address` is neither.
        """
        address = address.address if isinstance(address, Waiting) else address
        if not isinstance(address, str):
            raise ConfigError(f"address is {address!r}; wanted that of a question, such as 'human:approve'")
        found = self._find(ref)
        with self._saving("the answer was not saved"):
            answer(self._store, found.run_id, found.branch, address, value, ahead=ahead)

    def cancel(self, ref: str | UUID | Checkpoint | RunHistory) -> None:
        """Stop a run, wherever it is at work: its kickoff raises RunCancelled, within a second.

        What it has recorded is kept, and it goes on when it is kicked off again. One that nobody is at work on is
        marked. No harm if that has been done before.

        Raises:
            RefError: there is no such run. RunMismatch: it is a state, which nobody runs. RunEnded: it is finished, or
            has failed. StoreBusy: it commits too fast to
            be stopped so. StoreError: nothing was done.
        """
        found = self._find(ref)
        with self._saving("the run was not cancelled"):
            cancel(self._store, found.run_id, found.branch)

    def prune(
        self, *, keep_last: int | None = None, older_than: timedelta | datetime | None = None, dry_run: bool = False
    ) -> Pruned:
        """Take away what is not needed any more: old finished runs, old checkpoints, the inner detail of steps.

        Args:
            keep_last: Checkpoints to keep of each branch. Labelled ones, and those that forks stand on, stay besides.
            older_than: Finished runs that have not changed for so long, or since then, are deleted as a whole. So are
                results that steps left for other runs.
            dry_run: Only say what would be done.

        A branch that somebody is at work on is left alone. Every run can be resumed and forked as before, from what is
        kept.
        """
        with self._saving("not all of it was pruned"):
            return prune(self._store, keep_last=keep_last, older_than=older_than, dry_run=dry_run)

    def delete(self, run_id: str | UUID) -> Pruned:
        """Delete a run with all its branches, finished or not. Raises RefError, and BranchConflictError if it runs."""
        run_id = as_run_id(run_id)
        if not self._store.branches(run_id):
            raise RefError(run_id, f"names no run in {self._location}", [run.run_id for run in self.runs()])
        with self._saving("the run was not deleted"):
            return delete(self._store, run_id)

    def export(self, ref: str | UUID | Checkpoint | RunHistory, path: str | os.PathLike[str]) -> str:
        """Write the whole run that a ref names, all branches of it, to one JSON file. Returns its digest.

        Raises RefError, JournalCorrupt if the run is not sound, OSError; then there is no such file.
        """
        with self._saving("the run was not exported"):
            return export_run(self._store, self._find(ref).run_id, Path(path))

    def import_run(self, path: str | os.PathLike[str]) -> RunHistory:
        """Bring in a run that `export` wrote, whole or not at all: it goes on, forks and lists as the original.

        One that is here already is no error, if it is the same.

        Raises:
            RunExists: its run_id is taken by a run that stands elsewhere. JournalCorrupt, SchemaTooNew: it is not as
            it was written, or by a newer crewlite. RefError: there is no such file. OSError: it cannot be saved.
        """
        with self._saving("the run was not imported"):
            run_id = import_run(self._store, Path(path))
        if not (branches := [info.branch for info in self._store.branches(run_id)]):
            raise gone(self._store, run_id, "run")
        return RunHistory(self._store, run_id, "main" if "main" in branches else branches[0])

    def doctor(self, *, repair: bool = False) -> list[Finding]:
        """What at this location is not as it was written, and what to do about it; [] if all is well.

        With `repair`, what can be mended is. What is damaged is set aside, never deleted, and a branch then ends at its
        newest sound commit. A branch that somebody is at work on is left alone.
        """
        with self._saving("not all of it was repaired"):
            found = doctor(self._store, repair=repair)
        if any(finding.repaired for finding in found):  # the store may know what is no longer so
            self._store.close()
            self._store = self._provider.open(self._location)
        return found

    def _find(self, ref: str | UUID | Checkpoint | RunHistory) -> Located:
        if isinstance(ref, RunHistory):
            return Located(self._provider, self._location, ref.run_id, ref.branch)
        text = ref.ref if isinstance(ref, Checkpoint) else str(ref) if isinstance(ref, UUID) else ref
        if not isinstance(text, str):
            raise RefError(repr(text), "is no ref; wanted a text, such as 'latest' or 'report-42', or a Checkpoint")
        found = locate(text, self._location, self._provider, None)
        if os.path.realpath(found.location) != os.path.realpath(self._location) and found.provider != self._provider:
            raise RefError(text, f"is kept at {found.location}, not here: History({found.location!r}) has it")
        return found

    @contextlib.contextmanager
    def _saving(self, what: str) -> Iterator[None]:
        """Tell an error of the disk with what to do about it."""
        try:
            yield
        except OSError as error:
            if isinstance(error, CrewliteError):
                raise
            problem = f"{what} ({error}). Nothing is lost: see that it can be written, and do it again"
            raise StoreError(self._location, problem) from error

    def close(self) -> None:
        """Release the location."""
        self._store.close()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
