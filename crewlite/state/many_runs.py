"""The runs of a location: those that can be read, and among them those that a kickoff would go on with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from crewlite.ids import now
from crewlite.state.providers import BranchInfo, Store
from crewlite.state.providers.base import ended
from crewlite.state.reading.over_runs import each
from crewlite.state.run_history import RunHistory


def readable(store: Store, branches: Iterable[BranchInfo]) -> Iterator[RunHistory]:
    """Yield the branches of a listing that can be read, each read already. See `History.readable`."""

    def read(info: BranchInfo) -> RunHistory:
        run = RunHistory(store, info.run_id, info.branch)
        run.read()
        return run

    return each(branches, read)


def unfinished(store: Store, name: str | None) -> list[RunHistory]:
    """Return the runs of a store that `History.unfinished` describes."""

    def look(info: BranchInfo) -> RunHistory | None:
        run = RunHistory(store, info.run_id, info.branch)
        return run if _has_work(run) and not run.at_work else None

    mains = {(one.run_id, one.branch): one for one in store.branches() if one.branch == "main"}
    wanted = {key: one for key, one in mains.items() if name in (None, one.name)}
    over = ended(store, wanted)  # most of them: their journals need not be read
    return [run for run in each((one for key, one in wanted.items() if key not in over), look) if run]


def _has_work(run: RunHistory) -> bool:
    """Return whether a kickoff of the run can do any work before the run waits for a person or ends."""
    if run.status != "waiting":
        return run.status == "unfinished"
    killed = run.read()[1].claim is not None  # a run that stops to wait releases its claim
    return killed or any(one.until and one.until <= now() for one in run.waiting)
