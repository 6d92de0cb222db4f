"""The runs that are stored at a location, as they are found by refs and read. `History` adds what changes them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, cast
from uuid import UUID

from crewlite.definitions.keywords import methods_with_known_keywords
from crewlite.errors import ConfigError, RefError
from crewlite.ids import now
from crewlite.lazy import lazy
from crewlite.refs import check_name
from crewlite.state.comparing.run_diff import ReadBranch, RunDiff, compare
from crewlite.state.format.entry import Entry, Head
from crewlite.state.journal.lineage import each_readable, readable_branches
from crewlite.state.providers import (
    BaseProvider,
    BranchInfo,
    CheckpointInfo,
    Commit,
    Store,
    declares,
    known_ends,
    open_store,
)
from crewlite.state.providers.locations import real_path
from crewlite.state.reading.checkpoint import Checkpoint
from crewlite.state.reading.locate import check_not_abandoned, locate
from crewlite.state.reading.located import Located
from crewlite.state.run_history import RunHistory
from crewlite.system.forked import lock
from crewlite.texts.wording import number_of

run_page = lazy("crewlite.state.run_page.page")


@methods_with_known_keywords("a history", constructed=False)
class StoredRuns:
    """The runs at a location, which is open until `close`. Threads may share this object."""

    def __init__(self, location: str, provider: BaseProvider) -> None:
        self._location, self._provider = location, provider
        self._open()

    def _open(self) -> None:
        self._store = cast(Store, _InTurns(open_store(self._provider, self._location)))

    def runs(self, run_id: str | None = None) -> list[RunHistory]:
        """Return all branches of all runs, newest run first; with a `run_id`, those of this run alone."""
        return [RunHistory(self._store, info.run_id, info.branch) for info in self.branches(run_id)]

    def readable(self, branches: Iterable[BranchInfo] | None = None) -> Iterator[RunHistory]:
        """Yield the branches of all runs, or of the listing `branches`, newest run first, each read already.

        One that cannot be read is skipped with a warning that says what to do; `runs` returns it all the same.
        """
        listed = self.branches() if branches is None else branches
        return each_readable(listed, self._loaded)

    def unfinished(self, name: str | None = None) -> list[RunHistory]:
        """Return the interrupted runs, newest first, that no live process works on: a kickoff resumes them.

        Forks are left out, and runs that failed, were cancelled, or stopped to wait for people, unless a question was
        answered or has timed out. A run that cannot be read is skipped with a warning. `name`: only runs of the
        definition so named.
        """
        mains = {(one.run_id, one.branch): one for one in self._store.branches() if one.branch == "main"}
        wanted = {key: one for key, one in mains.items() if name in (None, one.name)}
        over = known_ends(self._store, wanted)  # most of them: their journals need not be read
        unknown = each_readable((one for key, one in wanted.items() if key not in over), self._loaded)
        return [run for run in unknown if _has_work(run) and not run.at_work]

    def branches(self, run_id: str | None = None) -> list[BranchInfo]:
        """Return the branches of all runs, or of one, as a listing, newest run first, without reading journals."""
        return self._store.branches() if run_id is None else readable_branches(self._store, run_id)

    def run(self, ref: str | UUID | Checkpoint | BranchInfo = "latest", *, as_of: bool = False) -> RunHistory:
        """Return the run that a ref names: a run_id, `run/branch`, a checkpoint id, or `latest`. Raises RefError.

        For a checkpoint it is the run as it is now or, with `as_of`, as it was at that checkpoint.

        A branch of the listing `branches` is returned without a search. `run/branch@abandoned:1` is the branch right
        before its first rewind. A text from a client may be a ref to any run: pass it to `run_by_id` instead.
        """
        return self._run(self._find(ref), as_of=as_of)

    def run_by_id(self, run_id: str | UUID) -> RunHistory:
        """Return the run with exactly this id, its branch `main`. Raises RefError if there is none."""
        name = str(run_id)
        with contextlib.suppress(ConfigError):
            if any(info.branch == "main" for info in self.branches(check_name("run_id", name))):
                return RunHistory(self._store, name, "main")
        raise RefError(name, f"names no run in {self._location}")

    def checkpoint(self, ref: str | UUID | Checkpoint = "latest") -> Checkpoint:
        """Return the checkpoint that a ref names; for a ref to a run or branch, its newest one. Raises RefError."""
        return self._checkpoint_of(self._find(ref))

    def locate(self, ref: str | UUID | Checkpoint = "latest") -> tuple[RunHistory, str]:
        """Return the branch that a ref names and the id of the checkpoint that `checkpoint` would return.

        The journal is read only for a ref that leads through it. Raises RefError.
        """
        found = self._find(ref)
        run = self._run(found)
        if found.checkpoint:
            return run, found.checkpoint
        if newest := run.checkpoint():
            return run, newest.id
        raise _no_checkpoint(found, run)

    def checkpoints(self, *, limit: int | None = None, before: str | None = None) -> list[CheckpointInfo]:
        """Return the checkpoints of all runs, newest first, without reading journals.

        Returns at most `limit` of them, all older than the checkpoint with the id `before`: for the next page, pass the
        id of the last one.
        """
        return self._store.places(limit=limit, before=before)

    def diff(self, a: str | UUID | Checkpoint | RunHistory, b: str | UUID | Checkpoint | RunHistory) -> RunDiff:
        """Compare two runs, branches or checkpoints: inputs, settings, steps, state, usage and time of `b` beside `a`.

        A checkpoint stands for its run as it was then. A ref with a path may lead to another location. Reads both
        journals, and writes nothing. Raises RefError, JournalCorrupt.
        """
        return compare(self._read(a), self._read(b))

    def as_html(self, ref: str | UUID | Checkpoint | RunHistory = "latest") -> str:
        """Return the run that a ref names as a page of HTML: timelines of its branches, prompts, costs, differences.

        It is one file without scripts that loads nothing. For a damaged branch, it says what the damage is.

        Raises RefError, JournalCorrupt or StoreError if no branch can be read.
        """
        found = self._find(ref)
        return str(run_page.page_of(self._store, found.run_id, found.branch))

    def close(self) -> None:
        """Release the files and connections of the location."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _find(self, ref: str | UUID | Checkpoint | RunHistory | BranchInfo, *, anywhere: bool = False) -> Located:
        """Return the place that a ref or object names; with `anywhere`, a path may lead elsewhere. Raises RefError."""
        if isinstance(ref, RunHistory | BranchInfo):
            place = (ref.as_of, ref.abandoned_by) if isinstance(ref, RunHistory) else ()
            return Located(self._provider, self._location, ref.run_id, ref.branch, *place)
        text = ref.ref if isinstance(ref, Checkpoint) else str(ref) if isinstance(ref, UUID) else ref
        if not isinstance(text, str):
            raise RefError(repr(text), "is not a ref; wanted a text, such as 'latest' or 'report-42', or a Checkpoint")
        leads_away = anywhere and os.path.exists(text.rpartition("#")[0] or text)
        provider = None if leads_away and declares(self._provider, "named_by_location") else self._provider
        found = locate(text, self._location, provider, None)
        if not anywhere and not self._is_here(found):
            raise RefError(text, f"is stored at {found.location}, not here: open History({found.location!r})")
        return found

    def _find_live_branch(self, ref: str | UUID | Checkpoint | RunHistory) -> Located:
        """Find the branch that a ref names. Raises RefError for what a rewind abandoned: nothing can be added there."""
        found = self._find(ref)
        check_not_abandoned(found)
        return found

    def _is_here(self, found: Located) -> bool:
        return real_path(found.location) == real_path(self._location)

    def _run(self, found: Located, *, as_of: bool = False) -> RunHistory:
        place = found.checkpoint if as_of else None
        return RunHistory(self._store, found.run_id, found.branch, found.abandoned, place)

    def _loaded(self, info: BranchInfo) -> RunHistory:
        """Return a branch of a listing, read already."""
        run = RunHistory(self._store, info.run_id, info.branch)
        run.read()
        return run

    def _checkpoint_of(self, found: Located) -> Checkpoint:
        run = self._run(found)
        if checkpoint := run.checkpoint(found.checkpoint):
            return checkpoint
        raise _no_checkpoint(found, run)

    def _read(self, ref: str | UUID | Checkpoint | RunHistory) -> ReadBranch:
        """Read the run that a ref names, as it was at the place that the ref names."""
        if isinstance(ref, RunHistory):
            return *ref.read(), ref.place
        found = self._find(ref, anywhere=True)
        if self._is_here(found):
            return self._read(self._run(found, as_of=True))
        with found.opened() as store:
            return self._read(RunHistory(store, found.run_id, found.branch, found.abandoned, found.checkpoint))


class _InTurns:
    """A store with verbs that several threads may call: those that write journals take turns."""

    def __init__(self, store: Store) -> None:
        self._store, self._turn = store, lock()  # reentrant: a signal handler may write too, amid a verb
        self.location = store.location

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, commits: Sequence[Commit]) -> None:
        with self._turn:
            self._store.append(commits)

    def rewrite(self, run_id: str, branch: str, own: Sequence[Entry], entries: Sequence[Entry]) -> None:
        with self._turn:
            self._store.rewrite(run_id, branch, own, entries)

    def remove(self, run_id: str, heads: Mapping[str, Head]) -> None:
        with self._turn:
            self._store.remove(run_id, heads)


def _has_work(run: RunHistory) -> bool:
    """Return whether a kickoff of the run can do any work before the run waits for a person or ends."""
    if run.status != "waiting":
        return run.status == "unfinished"
    record = run.read()[1]
    if record.claim or record.died:  # a run that stops to wait releases its claim
        return True
    return len(record.current) > len(record.waiting) or any(one.until and one.until <= now() for one in run.waiting)


def _no_checkpoint(found: Located, run: RunHistory) -> RefError:
    """Return the error about a ref to a checkpoint that its branch does not have."""
    own = run.checkpoints()
    count = number_of(len(own), "checkpoint") if own else "no checkpoints"
    return RefError(found.ref, f"names no checkpoint: {run.ref} has {count}", [one.id for one in own])
