"""The port to storage: a provider opens a location, a store keeps the journals of its runs.

Everything crewlite knows is in the entries; a store only has to keep them in order, whole, and answer which branches
and checkpoints it holds. `crewlite.testing.check_provider` tells whether it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from crewlite.refs import check_name
from crewlite.state.format.commit import CheckpointRecord, CommitParts, ForkBase, RunStart
from crewlite.state.format.entry import Entry, next_entry

Head = tuple[int, str]
"""Where a branch is: the seq and the sum of its last entry."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Entries to add to one branch, all or none, right after the entry `after` whose sum is `after_sum`.

    A commit whose first entry holds `run` makes the branch, which must not exist. Where that has a `base`, it makes a
    fork: what it comes after is the base, an entry of another branch of the run. A commit without entries is a sign
    of life.
    """

    run_id: str
    branch: str
    after: int
    after_sum: str
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        check_name("run_id", self.run_id)
        check_name("branch", self.branch, slashes=True)

    @classmethod
    def saying(cls, run_id: str, branch: str, after: Head, parts: CommitParts) -> Commit:
        """One entry that says this, at the head of a branch."""
        return cls(run_id, branch, *after, (next_entry(parts, after=after),))

    @property
    def run(self) -> RunStart | None:
        """The start of the branch that this commit creates; None if the branch exists already."""
        return self.entries[0].commit.get("run") if self.entries else None

    @property
    def head(self) -> Head:
        """Where the branch is once it has the entries."""
        return (self.entries[-1].seq, self.entries[-1].sum) if self.entries else (self.after, self.after_sum)

    def beyond(self, head: Head | None) -> tuple[Entry, ...] | None:
        """The entries that a branch lacks which is at `head`, or is not there (None).

        All of them, or the rest if it has some already (a write may arrive and be reported as failed), or None if the
        branch is where this commit does not expect it.
        """
        if head == (None if self.run else (self.after, self.after_sum)):
            return self.entries
        heads = [(entry.seq, entry.sum) for entry in self.entries]
        return self.entries[heads.index(head) + 1 :] if head in heads else None


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """What a listing tells of a branch without reading its journal."""

    run_id: str
    branch: str
    uid: str
    """Time-ordered id of the run's beginning: newer runs have greater ones."""
    identity: str
    """Digest of the definition's kind, name and task keys."""
    kind: str
    name: str
    started_at: str
    base: ForkBase | None
    """Of a fork: `branch`, `seq` and `sum` of the entry it stands on, and `place`, the checkpoint there."""


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """What a listing tells of a checkpoint."""

    id: str
    run_id: str
    branch: str
    seq: int
    parent_id: str | None
    """The checkpoint before it when it was named: it may be dropped since. A Checkpoint has the nearest one left."""
    trigger: str
    address: str
    label: str | None
    created_at: str


PlaceInfo = CheckpointInfo
"""The old name, deprecated."""


class Store(Protocol):
    """An opened location. The verbs that write are called from one thread at a time, the others from any."""

    location: str

    def append(self, commits: Sequence[Commit]) -> None:
        """Add the commits durably before returning: each entry whole or not at all, none without those before it.

        The commits that make a run appear all at once. Raises BranchConflictError if a branch is not where its commit
        expects it or a fork has no base, OSError if storage fails; then any of the entries may be stored already.
        Appending what is stored already is no error, so trying again is safe, also with a commit that begins with
        what is stored and goes on (see Commit.beyond). An entry whose commit holds a `place` names a checkpoint; one
        whose commit holds `drops` takes checkpoints away.
        """

    def read(self, run_id: str, branch: str) -> list[Entry]:
        """The branch's own journal, verified; [] if there is none. A torn tail is left out, what a fork stands on too.

        Raises JournalCorrupt naming the newest sound checkpoint, or SchemaTooNew.
        """

    def sum_at(self, run_id: str, branch: str, seq: int) -> str | None:
        """The sum of one entry of the branch's own journal, looking no further; None if there is no such entry."""

    def touched(self, run_id: str, branch: str) -> float:
        """Seconds since the epoch of the last commit or sign of life; 0 if there is no such branch.

        Asked for twice a second of each branch at work, so that a run hears soon that it was cancelled.
        """

    def rewrite(self, run_id: str, branch: str, own: Sequence[Entry], entries: Sequence[Entry]) -> None:
        """Replace the branch's own journal, which must hold exactly `own`, by `entries`, all or nothing.

        `entries` are `own` with some of them compacted into one. `reading.check_rewrite` is what to check before, while
        nobody else can write. Raises BranchConflictError if the store holds anything else than `own`, or a fork stands
        on an entry that would be gone; StoreError if `entries` do not account for every one of `own`.
        """

    def remove(self, run_id: str, heads: Mapping[str, Head]) -> None:
        """Take a whole run away, with its checkpoints. What was cut in the middle can be done again.

        Raises BranchConflictError if its branches are not exactly these.
        """

    def branches(self, run_id: str | None = None) -> list[BranchInfo]:
        """All branches, newest run first, those of a run in the order they were made; or only one run's.

        The list of all leaves out what cannot be read, with a warning. Of one run that is JournalCorrupt or
        SchemaTooNew: nothing may be taken away that a branch stands on which nobody can read now.
        """

    def places(self, part: str = "", *, limit: int | None = None, before: str | None = None) -> list[CheckpointInfo]:
        """Checkpoints whose id contains `part`, newest first; at most `limit`, all older than the one `before`."""

    def ref(self, checkpoint: CheckpointRecord) -> str:
        """The text that names this checkpoint from anywhere: a file path, or `db#id`."""

    def close(self) -> None:
        """Release files and connections. Called once."""


class ResultCache(Protocol):
    """Results that steps leave to other runs: a store that can keep them has this as its attribute `results`.

    Runs call `recall` and `remember`, `History.prune` calls `forget`; on the threads that the verbs of the store are
    called from. Results belong to no run: removing runs leaves them.
    """

    def recall(self, key: str) -> bytes | None:
        """What was last remembered under `key`, byte for byte; None if nothing is."""

    def remember(self, key: str, data: bytes) -> None:
        """Keep `data` under `key` (32 hexadecimal digits), whole or not at all, in the place of what was there.

        Raises OSError if storage fails.
        """

    def forget(self, before: float, *, dry_run: bool = False) -> int:
        """Take away what was last remembered before `before`, seconds since the epoch. Returns how many keys that is.

        With `dry_run` they are only counted.
        """


@runtime_checkable
class BaseProvider(Protocol):
    """A kind of storage. Write one of your own by giving it a name and an `open`.

    A provider may declare more as attributes of its class, which are looked up by name (see `declares`):

    * `named_by_location = True`: the location alone tells which provider it is, so the command line can open it, and
      all objects of exactly this class open the same store there.
    * `in_memory = True`: what it keeps ends with the process.
    * `exists(location) -> bool`: whether there is anything at a location, found out without making it.
    """

    name: str

    def open(self, location: str) -> Store:
        """Open a location for reading and writing, making it if need be. Raises StoreUnusable."""


def is_provider(value: object) -> bool:
    """Whether a value can be used as a provider; a class of providers cannot."""
    return isinstance(value, BaseProvider) and not isinstance(value, type)


def declares(provider: BaseProvider | None, flag: Literal["named_by_location", "in_memory"]) -> bool:
    """Whether a provider, if there is one, declares something of itself."""
    return bool(getattr(provider, flag, False))


def results_of(store: Store) -> ResultCache | None:
    """Where a store keeps results for other runs; None if it keeps none."""
    return getattr(store, "results", None)


def exists(location: str, provider: BaseProvider) -> bool:
    """Whether there is anything at a location. Of a provider that cannot tell without opening it: yes."""
    look: Callable[[str], bool] | None = getattr(provider, "exists", None)
    return look is None or look(location)
