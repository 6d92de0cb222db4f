"""The history of runs: reading their steps and attempts, checkpoints and events; forking, answering, pruning them.

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
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from crewlite.errors import ConfigError, CrewliteError, RefError, StoreError
from crewlite.refs import as_run_id
from crewlite.state.journal.cancel import cancel
from crewlite.state.journal.lineage import gone
from crewlite.state.providers import BaseProvider, CheckpointInfo, exists, provider_for
from crewlite.state.reading.checkpoint import Checkpoint
from crewlite.state.reading.locate import Located, locate
from crewlite.state.run_history import RunHistory, Waiting
from crewlite.state.verbs.answer import answer
from crewlite.state.verbs.doctor import Finding, doctor
from crewlite.state.verbs.fork import Changes, fork
from crewlite.state.verbs.prune import Pruned, delete, prune
from crewlite.state.verbs.transfer import export_run, import_run


class History:
    """The runs that are stored at a location. Use it in a `with` statement, or `close` it.

    Raises RefError if the location does not exist; with `make`, the first import creates it instead.
    """

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
            raise RefError(self._location, "does not exist, so it holds no runs: pass the location of the kickoff")
        self._store = self._provider.open(self._location)

    def runs(self) -> list[RunHistory]:
        """Return all branches of all runs, newest run first."""
        return [RunHistory(self._store, info.run_id, info.branch) for info in self._store.branches()]

    def run(self, ref: str | UUID | Checkpoint = "latest") -> RunHistory:
        """Return the run that a ref names: a run_id, `run/branch`, a checkpoint id, or `latest`. Raises RefError."""
        found = self._find(ref)
        return RunHistory(self._store, found.run_id, found.branch)

    def checkpoint(self, ref: str | UUID | Checkpoint = "latest") -> Checkpoint:
        """Return the checkpoint that a ref names; for a ref to a run or branch, its newest one. Raises RefError."""
        found = self._find(ref)
        own = RunHistory(self._store, found.run_id, found.branch).checkpoints()
        for checkpoint in reversed(own):
            if found.checkpoint in (None, checkpoint.id):
                return checkpoint
        name = f"{found.run_id}/{found.branch}"
        raise RefError(str(ref), f"names no checkpoint: {name} has {len(own) or 'none'}", [p.id for p in own])

    def checkpoints(self, *, limit: int | None = None, before: str | None = None) -> list[CheckpointInfo]:
        """Return the checkpoints of all runs, newest first, without reading journals.

        Returns at most `limit` of them, all older than the checkpoint with the id `before`: for the next page, pass the
        id of the last one.
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
        """Create a branch that starts at the checkpoint that a ref names, or at the head of the run or branch it names.

        Args:
            ref: The checkpoint, run or branch to fork: a ref, or an object of this history.
            branch: The name of the new branch; generated if left out.
            operation_id: A text of your choice that makes a repeated call safe: it returns the same branch again.
            edits: Outcomes that replace recorded ones, by address: `{"task:research": "another text"}`. Steps that
                are asked something else because of them run again; all others answer from the record.
            rerun: Addresses of finished steps to run again, and with them the steps that depend on their outcomes.
            inputs: New values for some of the recorded inputs. A kickoff of the fork uses them.

        Raises:
            RefError: there is nothing to fork, or no such step. BranchExists: the name is taken. ConfigError: an
            argument has the wrong type, or no task of the run uses an input. AnswerRefused: the edit of a person's
            answer does not fit the question. StoreError, OSError: the branch was not created.
        """
        changed = Changes.of(edits, rerun, inputs)
        found = fork(self._find(ref), self, branch=branch, operation_id=operation_id, changed=changed)
        return RunHistory(self._store, found.run_id, found.branch)

    def answer(
        self, ref: str | UUID | Checkpoint | RunHistory, address: str | Waiting, value: Any, *, ahead: bool = True
    ) -> None:
        """Record a person's answer to a question that a run waits for. The next kickoff continues with it.

        `address` is the address of the question, or the question as `.waiting` of the run lists it. A run that this
        process is running receives the answer at once.

        A question of an unfinished run (`human:...`) may be answered before it is asked. That answer is checked when
        the question is asked, and replaces an earlier one of this kind. With `ahead=False` it raises RefError.

        Raises:
            RefError: the run does not ask this question. AnswerRefused: the answer does not fit, or the question has
            one already. BranchConflictError: another process is running the run. ConfigError: `address` is of another
            type. StoreError: the answer was not saved.
        """
        address = address.address if isinstance(address, Waiting) else address
        if not isinstance(address, str):
            raise ConfigError(f"address is {address!r}; wanted the address of a question, such as 'human:approve'")
        found = self._find(ref)
        with self._saving("the answer was not saved"):
            answer(self._store, found.run_id, found.branch, address, value, ahead=ahead)

    def cancel(self, ref: str | UUID | Checkpoint | RunHistory) -> None:
        """Stop a run, whichever process is running it: its kickoff raises RunCancelled within about a second.

        Its recorded work is kept, and another kickoff resumes it. A run that no process is running is marked as
        cancelled. Cancelling a cancelled run again does nothing.

        Raises:
            RefError: there is no such run. RunMismatch: it is a state without a run. RunEnded: it is finished, or
            has failed. StoreBusy: the run commits so often that the cancellation finds no gap. StoreError: the
            cancellation was not saved.
        """
        found = self._find(ref)
        with self._saving("the run was not cancelled"):
            cancel(self._store, found.run_id, found.branch)

    def prune(
        self, *, keep_last: int | None = None, older_than: timedelta | datetime | None = None, dry_run: bool = False
    ) -> Pruned:
        """Delete what is no longer needed: old finished runs, old checkpoints, and details inside finished steps.

        A branch that a live process runs is left alone. The remaining runs can be resumed, and forked from the
        remaining checkpoints, as before. A prune that was interrupted can be repeated.

        Args:
            keep_last: The number of checkpoints to keep of each branch, besides labelled ones and those that forks
                start from.
            older_than: Delete finished runs that have not changed for this long (a timedelta) or since this time (a
                datetime with a zone), and results kept for other runs that are as old.
            dry_run: Only report what would be deleted.

        Raises ConfigError if neither limit is given or one is unusable, JournalCorrupt if a run cannot be read,
        StoreError if storage fails.
        """
        with self._saving("not all of it was pruned"):
            return prune(self._store, keep_last=keep_last, older_than=older_than, dry_run=dry_run)

    def delete(self, run_id: str | UUID) -> Pruned:
        """Delete a run with all its branches. Raises RefError, BranchConflictError if a process runs it, StoreError."""
        run_id = as_run_id(run_id)
        if not self._store.branches(run_id):
            known = list(dict.fromkeys(run.run_id for run in self.runs()))
            raise RefError(run_id, f"names no run in {self._location}", known)
        with self._saving("the run was not deleted"):
            return delete(self._store, run_id)

    def export(self, ref: str | UUID | Checkpoint | RunHistory, path: str | os.PathLike[str]) -> str:
        """Write the run that a ref names, with all its branches, to one JSON file. Returns the digest of the run.

        Raises RefError, JournalCorrupt if the run is damaged, StoreError; then the file is not written.
        """
        with self._saving("the run was not exported"):
            return export_run(self._store, self._find(ref).run_id, Path(path))

    def import_run(self, path: str | os.PathLike[str]) -> RunHistory:
        """Store a run that `export` wrote, all or nothing. It can be resumed, forked and listed like the original.

        Importing a run that is stored here already, with the same digest, is no error.

        Raises:
            RunExists: the location has a different run with this run_id. JournalCorrupt: the file is damaged.
            SchemaTooNew: a newer crewlite wrote it. RefError: there is no such file. StoreError: it cannot be saved.
        """
        with self._saving("the run was not imported"):
            run_id = import_run(self._store, Path(path))
        if not (branches := [info.branch for info in self._store.branches(run_id)]):
            raise gone(self._store, run_id, "run")
        return RunHistory(self._store, run_id, "main" if "main" in branches else branches[0])

    def doctor(self, *, repair: bool = False) -> list[Finding]:
        """Return the damage at this location, with what to do about it; [] if there is none.

        With `repair`, repair what can be repaired: damaged data is set aside, never deleted, and a branch then ends at
        its newest intact commit. A branch that a live process runs is left alone. Raises StoreError.
        """
        with self._saving("not all of it was repaired"):
            found = doctor(self._store, repair=repair)
        if any(finding.repaired for finding in found):  # the open store may remember facts that the repair has changed
            self._store.close()
            self._store = self._provider.open(self._location)
        return found

    def _find(self, ref: str | UUID | Checkpoint | RunHistory) -> Located:
        if isinstance(ref, RunHistory):
            return Located(self._provider, self._location, ref.run_id, ref.branch)
        text = ref.ref if isinstance(ref, Checkpoint) else str(ref) if isinstance(ref, UUID) else ref
        if not isinstance(text, str):
            raise RefError(repr(text), "is not a ref; wanted a text, such as 'latest' or 'report-42', or a Checkpoint")
        found = locate(text, self._location, self._provider, None)
        if os.path.realpath(found.location) != os.path.realpath(self._location) and found.provider != self._provider:
            raise RefError(text, f"is stored at {found.location}, not here: open History({found.location!r})")
        return found

    @contextlib.contextmanager
    def _saving(self, what: str) -> Iterator[None]:
        """Turn an OSError of the block into a StoreError that says what to do."""
        try:
            yield
        except OSError as error:
            if isinstance(error, CrewliteError):
                raise
            problem = f"{what} ({error}). Nothing is lost: make sure that it can be written, and repeat this"
            raise StoreError(self._location, problem) from error

    def close(self) -> None:
        """Release the files and connections of the location."""
        self._store.close()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
