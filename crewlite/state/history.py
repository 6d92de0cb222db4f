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

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import UUID

from crewlite.definitions.keywords import methods_with_known_keywords
from crewlite.errors import ConfigError, RefError
from crewlite.state.config import CheckpointConfig
from crewlite.state.journal.cancel import cancel
from crewlite.state.journal.lineage import gone
from crewlite.state.providers import BaseProvider, exists, provider_for
from crewlite.state.reading.checkpoint import Checkpoint
from crewlite.state.reading.located import Located
from crewlite.state.run_history import RunHistory, Waiting
from crewlite.state.stored_runs import StoredRuns
from crewlite.state.verbs.answer import answer
from crewlite.state.verbs.doctor import Finding, doctor
from crewlite.state.verbs.fork import Changes, fork
from crewlite.state.verbs.from_outside import saving
from crewlite.state.verbs.label import label
from crewlite.state.verbs.prune import Pruned, delete, prune
from crewlite.state.verbs.rewind import rewind
from crewlite.state.verbs.transfer import export_run, import_run
from crewlite.system.paths import why_no_path

E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)


class Explorable(Protocol[E_co]):
    """A crew, agent or flow whose recorded runs can be explored. A protocol, as History does not import the engine."""

    def explore(self, *place_and_variants: Any, **how: Any) -> E_co:
        """Run the variants, and return the comparison of their results."""


@methods_with_known_keywords("a history")
class History(StoredRuns):
    """The runs that are stored at a location. Use it in a `with` statement, or `close` it. Threads may share it.

    Raises RefError if the location does not exist; with `make`, the first import creates it instead.
    """

    def __init__(
        self,
        location: str | os.PathLike[str] = "./.checkpoints",
        provider: BaseProvider | None = None,
        *,
        make: bool = False,
    ) -> None:
        given = CheckpointConfig(location=location, provider=provider)
        chosen = provider_for(given.location, provider)
        if not make and not exists(given.location, chosen):
            raise RefError(given.location, "does not exist, so it holds no runs: pass the location of the kickoff")
        super().__init__(given.location, chosen)

    def fork(
        self,
        ref: str | UUID | Checkpoint | RunHistory = "latest",
        *,
        branch: str | None = None,
        operation_id: str | UUID | None = None,
        edits: Mapping[str, Any] | None = None,
        rerun: Iterable[str] = (),
        inputs: Mapping[str, Any] | None = None,
        allow_effects: bool = False,
    ) -> RunHistory:
        """Create a branch that starts at the checkpoint that a ref names, or at the head of the run or branch it names.

        Args:
            ref: The checkpoint, run or branch to fork: a ref, or an object of this history.
            branch: The name of the new branch; generated if left out.
            operation_id: A text or UUID that makes a repeated call safe: it returns the same branch again.
            edits: Outcomes that replace recorded ones, by address: `{"task:research": "another text"}`; fields of the
                state, as a finished step left it: `{"method:plan.state.tone": "dry"}`. Steps that are asked something
                else because of them run again; all others answer from the record.
            rerun: Addresses of finished steps to run again, and with them the steps that depend on their outcomes.
            inputs: New values for some of the recorded inputs. A kickoff of the fork uses them.
            allow_effects: Whether calls with effect="once" may be made again: those that were made after the place, and
                those before it that the changes may make again.

        Raises:
            RefError: there is nothing to fork, or no such step. BranchExists: the name is taken. ConfigError: an
            argument has the wrong type, or no task of the run uses an input. AnswerRefused: the edit of a person's
            answer does not fit the question. EffectsRepeat: calls with effect="once" would be made again. StoreError,
            OSError: the branch was not created.
        """
        changed = Changes.of(edits, rerun, inputs)
        found = fork(
            self._find(ref),
            self,
            branch=branch,
            operation_id=operation_id,
            changed=changed,
            allow_effects=allow_effects,
        )
        return RunHistory(self._store, found.run_id, found.branch)

    def explore(
        self,
        definition: Explorable[E],
        ref: str | UUID | Checkpoint | RunHistory,
        variants: Sequence[Mapping[str, Any]],
        judge: Any = None,
        *,
        max_concurrency: int = 4,
        study: str | None = None,
        allow_effects: bool = False,
    ) -> E:
        """Fork the place that a ref names into several variants, run them side by side, and compare their results.

        `definition`: the crew, agent or flow that ran, whose live code runs the variants; `from_checkpoint` rebuilds
        one from the record. The other arguments, the result and the errors are those of its `explore`.
        """
        found = self._find(ref)
        there = CheckpointConfig(location=self._location, provider=self._provider, restore_from=found.ref)
        how: Any = {"max_concurrency": max_concurrency, "study": study, "allow_effects": allow_effects}
        return definition.explore(there, variants, judge, **how)

    def rewind(
        self, ref: str | UUID | Checkpoint | RunHistory, *, reason: str = "", allow_effects: bool = False
    ) -> RunHistory:
        """Go back to an earlier place of a branch, and return the branch: its next kickoff continues from there.

        The steps after that place run again, with new idempotency keys; people are asked again. A run that was finished
        is unfinished again. Nothing is erased: what came after stays readable as one of `RunHistory.abandoned`, can be
        forked, and can be gone back to. `usage` keeps counting it.

        Args:
            ref: A checkpoint of the branch, abandoned ones too; or `run/branch@abandoned:1`, the end of what its first
                rewind has abandoned, which undoes that rewind.
            reason: A text for people, which `RunHistory.rewinds` shows.
            allow_effects: Whether calls with effect="once" that were made after the place may be made again.

        Raises:
            RefError: the ref names no checkpoint, or one that a fork has inherited: fork that place instead.
            BranchConflictError: a process is running the branch. Cancel it first, or fork the place.
            EffectsRepeat: calls with effect="once" would be made again. StoreError: the rewind was not saved.
        """
        found = self._find(ref)
        with saving(self._location, "the rewind was not saved, or not completely"):
            name = ref if isinstance(ref, str) else found.ref
            rewind(self._store, found, self, ref=name, reason=reason, allow_effects=allow_effects)
        return RunHistory(self._store, found.run_id, found.branch)

    def label(self, ref: str | UUID | Checkpoint | RunHistory, name: str) -> Checkpoint:
        """Give a checkpoint a name: `run@label:name` names it from now on, and pruning keeps it.

        A ref to a run or branch means its newest checkpoint. Returns the labelled checkpoint, which is a new one at the
        same place. A label names one place of a run; to give it again to the same place changes nothing.

        Raises:
            RefError: the ref names no checkpoint, or another place of the run has this label.
            BranchConflictError: another process is running the branch. Fork it instead: a branch has a name, too.
            ConfigError: the label is not usable. StoreError: the label was not saved.
        """
        found = self._checkpoint_of(self._find(ref))
        with saving(self._location, "the label was not saved, or not completely"):
            branch, identifier = label(self._store, found, name, self, self._provider.name)
        return self._checkpoint_of(Located(self._provider, self._location, found.run_id, branch, identifier))

    def answer(
        self,
        ref: str | UUID | Checkpoint | RunHistory,
        address: str | Waiting,
        value: Any,
        *,
        ahead: bool = True,
        replace: bool = False,
    ) -> bool:
        """Record a person's answer to a question that a run waits for. The next kickoff continues with it.

        `address` is the address of the question, or the question as `.waiting` of the run lists it. A run that a
        process is running receives the answer there: at once from the same process, within a second from another one.
        Returns True, or False if the question has this very answer already. With `replace`, the answer takes the place
        of another that the run has not used yet; not while a process is running the run, which may be using it.

        A question of an unfinished run (`human:...`) may be answered before it is asked. That answer is checked when
        the question is asked, and replaces an earlier one of this kind; `rewind` to an earlier place takes it back. An
        address that looks like a misspelt one is warned of. With `ahead=False` all this raises RefError.

        Raises:
            RefError: the run does not ask this question. AnswerRefused: the answer does not fit, or the question has
            another one. BranchConflictError: another process is running the run, and has not recorded the answer.
            ConfigError: `address` is of another type. StoreError: the answer was not saved.
        """
        address = address.address if isinstance(address, Waiting) else address
        if not isinstance(address, str):
            raise ConfigError(f"address is {address!r}; wanted the address of a question, such as 'human:approve'")
        found = self._find_live_branch(ref)
        with saving(self._location, "the answer was not saved, or not completely"):
            return answer(self._store, found.run_id, found.branch, address, value, ahead=ahead, replace=replace)

    def cancel(self, ref: str | UUID | Checkpoint | RunHistory) -> None:
        """Stop a run, whichever process is running it: its kickoff raises RunCancelled within about a second.

        Its recorded work is kept, and another kickoff resumes it. A run that no process is running is marked as
        cancelled. Cancelling a cancelled run again does nothing.

        Raises:
            RefError: there is no such run. RunMismatch: it is a state without a run.
            RunEnded: it is finished, or has failed. StoreError: the cancellation was not saved.
            StoreBusy: the run commits so often that the cancellation finds no gap.
        """
        found = self._find_live_branch(ref)
        with saving(self._location, "the cancellation was not saved, or not completely"):
            cancel(self._store, found.run_id, found.branch)

    def prune(
        self, *, keep_last: int | None = None, older_than: timedelta | datetime | None = None, dry_run: bool = False
    ) -> Pruned:
        """Delete what is no longer needed: old finished runs, old checkpoints, and details inside finished steps.

        A branch that a live process runs is left alone, and a turn of a state of `@persist` if an earlier one is. All
        remaining runs can be resumed, and forked, as before. A prune that was interrupted can be repeated.

        Args:
            keep_last: The number of checkpoints to keep of each branch, besides labelled ones and those that forks
                start from.
            older_than: Delete finished runs that have not changed for this long (a timedelta) or since this time (a
                datetime with a zone), and results kept for other runs that are as old.
            dry_run: Only report what would be deleted.

        A run that cannot be read is left as it is, with a warning; the result names it. Raises ConfigError for missing
        or unusable limits; StoreError if storage fails, once all else is pruned.
        """
        with saving(self._location, "not all of it was pruned"):
            return prune(self._store, keep_last=keep_last, older_than=older_than, dry_run=dry_run)

    def delete(self, run_id: str | UUID) -> Pruned:
        """Delete a run with all its branches. Raises RefError, BranchConflictError if a process runs it, StoreError."""
        with saving(self._location, "the run was not deleted, or not completely"):
            return delete(self._store, str(run_id) if isinstance(run_id, UUID) else run_id)

    def export(self, ref: str | UUID | Checkpoint | RunHistory, path: str | os.PathLike[str]) -> str:
        """Write the run that a ref names, with all its branches, to one JSON file. Returns the digest of the run.

        Raises RefError, JournalCorrupt if the run is damaged, StoreError; then the file is not written.
        """
        with saving(self._location, "the run was not exported"):
            return export_run(self._store, self._find(ref).run_id, _file(path))

    def import_run(self, path: str | os.PathLike[str]) -> RunHistory:
        """Store a run that `export` wrote, all or nothing. It can be resumed, forked and listed like the original.

        Importing a run that is stored here already, with the same digest, is no error.

        Raises:
            RunExists: the location has a different run with this run_id. JournalCorrupt: the file is damaged.
            SchemaTooNew: a newer crewlite wrote it. RefError: there is no such file. StoreError: it cannot be saved.
        """
        with saving(self._location, "the run was not imported, or not completely"):
            run_id = import_run(self._store, _file(path))
        if not (branches := [info.branch for info in self._store.branches(run_id)]):
            raise gone(self._store, run_id, "run")
        return RunHistory(self._store, run_id, "main" if "main" in branches else branches[0])

    def doctor(self, *, repair: bool = False) -> list[Finding]:
        """Return the damage at this location, with what to do about each; [] if there is none.

        With `repair`, repair what can be repaired: damaged data is set aside, never deleted, and a branch then ends at
        its newest intact commit. A branch that a live process runs is left alone. Raises StoreError.
        """
        with saving(self._location, "not all of it was repaired" if repair else "not all of it was checked"):
            found = doctor(self._store, repair=repair)
        if any(finding.repaired for finding in found):  # the open store may remember facts that the repair has changed
            self._store.close()
            self._open()
        return found


def _file(path: str | os.PathLike[str]) -> Path:
    if why := why_no_path(path):
        raise RefError(os.fspath(path), f"{why}, so no file can be there")
    return Path(path)
