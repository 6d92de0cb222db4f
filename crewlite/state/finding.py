"""What History is given, a ref or a definition, and the runs that it finds, such as those a kickoff goes on with."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import UUID

from crewlite.errors import RefError
from crewlite.ids import now
from crewlite.state.journal.lineage import each_readable
from crewlite.state.providers import BaseProvider, BranchInfo, Store, declares, ended
from crewlite.state.reading.checkpoint import Checkpoint
from crewlite.state.reading.locate import Located, check_stands, locate
from crewlite.state.run_history import RunHistory
from crewlite.texts.wording import number_of

E_co = TypeVar("E_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Finder:
    """The refs of one location."""

    provider: BaseProvider
    location: str

    def find(self, ref: str | UUID | Checkpoint | RunHistory | BranchInfo, *, anywhere: bool = False) -> Located:
        """Return the place that a ref or object names; with `anywhere`, a path may lead elsewhere. Raises RefError."""
        if isinstance(ref, RunHistory | BranchInfo):
            place = (ref.as_of, ref.abandoned_by) if isinstance(ref, RunHistory) else ()
            return Located(self.provider, self.location, ref.run_id, ref.branch, *place)
        text = ref.ref if isinstance(ref, Checkpoint) else str(ref) if isinstance(ref, UUID) else ref
        if not isinstance(text, str):
            raise RefError(repr(text), "is not a ref; wanted a text, such as 'latest' or 'report-42', or a Checkpoint")
        leads_away = anywhere and os.path.exists(text.rpartition("#")[0] or text)
        provider = None if leads_away and declares(self.provider, "named_by_location") else self.provider
        found = locate(text, self.location, provider, None)
        if not anywhere and not self.is_here(found):
            raise RefError(text, f"is stored at {found.location}, not here: open History({found.location!r})")
        return found

    def standing(self, ref: str | UUID | Checkpoint | RunHistory) -> Located:
        """Find the branch that a ref names. Raises RefError for what a rewind abandoned: nothing can be added there."""
        found = self.find(ref)
        check_stands(found)
        return found

    def is_here(self, found: Located) -> bool:
        """Return whether the place that a ref named is at this location."""
        return os.path.realpath(found.location) == os.path.realpath(self.location)


def no_checkpoint(found: Located, run: RunHistory) -> RefError:
    """Return the error about a ref to a checkpoint that its branch does not have."""
    own = run.checkpoints()
    count = number_of(len(own), "checkpoint") if own else "no checkpoints"
    return RefError(found.ref, f"names no checkpoint: {run.ref} has {count}", [one.id for one in own])


def readable(store: Store, branches: Iterable[BranchInfo]) -> Iterator[RunHistory]:
    """Yield the branches of a listing that can be read, each read already. See `History.readable`."""

    def read(info: BranchInfo) -> RunHistory:
        run = RunHistory(store, info.run_id, info.branch)
        run.read()
        return run

    return each_readable(branches, read)


def unfinished(store: Store, name: str | None) -> list[RunHistory]:
    """Return the runs of a store that `History.unfinished` describes."""

    def look(info: BranchInfo) -> RunHistory | None:
        run = RunHistory(store, info.run_id, info.branch)
        return run if _has_work(run) and not run.at_work else None

    mains = {(one.run_id, one.branch): one for one in store.branches() if one.branch == "main"}
    wanted = {key: one for key, one in mains.items() if name in (None, one.name)}
    over = ended(store, wanted)  # most of them: their journals need not be read
    unknown = (one for key, one in wanted.items() if key not in over)
    return [run for run in each_readable(unknown, look) if run]


def _has_work(run: RunHistory) -> bool:
    """Return whether a kickoff of the run can do any work before the run waits for a person or ends."""
    if run.status != "waiting":
        return run.status == "unfinished"
    killed = run.read()[1].claim is not None  # a run that stops to wait releases its claim
    return killed or any(one.until and one.until <= now() for one in run.waiting)


class Explorable(Protocol[E_co]):
    """A crew, agent or flow whose recorded runs can be explored. A protocol, as History does not import the engine."""

    def explore(self, *place_and_variants: Any, **how: Any) -> E_co:
        """Run the variants, and return the comparison of their results."""
