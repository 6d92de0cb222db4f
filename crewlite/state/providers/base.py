"""The port to storage: a provider opens a location as a store, which holds the journals of the runs there.

The entries contain everything that crewlite records. A store keeps them in order and complete, and lists its branches
and checkpoints. `crewlite.testing.check_provider` tests a provider of your own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from crewlite.errors import ConfigError, CrewliteError, StoreUnusable, text_of
from crewlite.refs import check_names
from crewlite.state.format.commit import CheckpointRecord, CommitParts, ForkBase, RunStart
from crewlite.state.format.entry import Entry, Head, next_entry
from crewlite.texts.wording import what_is

_TRIES = 100  # a try fails only if another process has succeeded
BranchKey = tuple[str, str]
"""The id of a run, and the name of one of its branches."""
End = Literal["finished", "failed"]
"""How a run ended: with its result, or with a failure."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Entries to append to one branch, all or none, directly after entry number `after`, whose checksum is `after_sum`.

    If its first entry holds `run`, the commit creates the branch, which must not exist. If that `run` has a `base`, the
    branch is a fork: `after` and `after_sum` are then those of the base, an entry of another branch of the same run.
    A commit without entries is a sign of life: it only updates the time that `Store.touched` returns.
    """

    run_id: str
    branch: str
    after: int
    after_sum: str
    entries: tuple[Entry, ...]
    read: Sequence[Entry] = ()
    """All entries of the branch, if the caller has just read them: a store need not read them again to append."""

    def __post_init__(self) -> None:
        check_names(self.run_id, self.branch)

    @property
    def key(self) -> BranchKey:
        """The key of the branch."""
        return self.run_id, self.branch

    @classmethod
    def of(cls, run_id: str, branch: str, after: Head, parts: CommitParts) -> Commit:
        """Build a commit of one entry with these parts, to be appended after the head `after`."""
        return cls(run_id, branch, *after, (next_entry(parts, after=after),))

    @property
    def run(self) -> RunStart | None:
        """The start of the branch that this commit creates; None if the branch exists already."""
        return self.entries[0].commit.get("run") if self.entries else None

    @property
    def head(self) -> Head:
        """The head that the branch will have once these entries are appended."""
        return self.entries[-1].head if self.entries else (self.after, self.after_sum)

    def beyond(self, head: Head | None) -> tuple[Entry, ...] | None:
        """Return the entries of this commit that a branch lacks, given its head (None if the branch does not exist).

        Returns all entries if the branch is where the commit expects it, and the rest if the branch has the first of
        them already, as after a write that was stored but reported as failed. Returns None for any other head.
        """
        if head == (self.after, self.after_sum) or (head is None and self.run):
            return self.entries
        heads = [entry.head for entry in self.entries]
        return self.entries[heads.index(head) + 1 :] if head in heads else None


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A branch in a listing, which reads no complete journal."""

    run_id: str
    branch: str
    uid: str
    """The id of the run's start. Ids are ordered by time: a run that started later has a greater one."""
    identity: str
    """Digest of the definition's kind, name and task keys."""
    kind: str
    name: str
    started_at: str
    base: ForkBase | None
    """For a fork: `branch`, `seq` and `sum` of the entry it is forked from, and `place`, the checkpoint there."""

    @property
    def ref(self) -> str:
        """The ref that names this branch within its location."""
        return f"{self.run_id}/{self.branch}"


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint in a listing."""

    id: str
    run_id: str
    branch: str
    seq: int
    parent_id: str | None
    """The id of the checkpoint before it, which may have been dropped since.

    `Checkpoint.parent_id` skips dropped checkpoints.
    """
    trigger: str
    address: str
    label: str | None
    created_at: str
    abandoned: bool = False
    """Whether the branch was rewound to before this checkpoint."""

    @property
    def ref(self) -> str:
        """The ref that names this checkpoint within its location."""
        return f"{self.run_id}/{self.branch}@{self.id}"


class Store(Protocol):
    """An opened location, which holds the journals of runs.

    crewlite calls the verbs that write journals (`append`, `rewrite`, `remove`) from one thread at a time. It may call
    the other verbs from any thread, also while one of these works.

    A store may also have these, which are looked up by name. Where it lacks one, crewlite reads or lists more:

    * `mentions(run_id, branch, *parts) -> bool`: whether the stored bytes of the branch itself contain any of `parts`.
    * `ended(branches) -> dict`: how these branches (see `BranchKey`) ended (see `End`): those whose last entry is
      verified, and says so (see `reading.end_of`).
    * `named(beginning) -> list`: the ids of the runs whose id begins so, in any order.
    * `hold()`: keep open what the next read opens, until `close`. A store that stays open for long is not asked to.
    * `results`: a ResultCache.
    """

    location: str

    def append(self, commits: Sequence[Commit]) -> None:
        """Store the commits durably before returning: each entry all or nothing, and none without its predecessors.

        Commits that create the same run become visible together. An entry whose commit holds `place` has a checkpoint
        to list; one whose commit holds `drops` removes checkpoints from the list.

        Entries that are stored already are skipped (see Commit.beyond), so a call that failed can be repeated, also
        with more entries added at the end.

        Raises:
            BranchConflictError: a branch is not where its commit expects it; or the base of a fork is not stored, or
                the commit of the checkpoint at that base.
            OSError: storage fails; some of the entries may be stored then.
        """

    def read(self, run_id: str, branch: str) -> list[Entry]:
        """Return the entries of the branch itself, verified; [] if there is no such branch.

        Leaves out an incomplete last write, and, for a fork, the entries before its base. Raises JournalCorrupt, naming
        the newest intact checkpoint, or SchemaTooNew.
        """

    def sum_at(self, run_id: str, branch: str, seq: int) -> str | None:
        """Return the checksum of one entry of the branch itself, reading no others; None if there is no such entry."""

    def touched(self, run_id: str, branch: str) -> float:
        """Return the time of the last commit or sign of life, in seconds since the epoch; 0 if there is no branch.

        crewlite calls this twice a second for each branch that it runs, to notice soon that the run was cancelled.
        """

    def rewrite(self, run_id: str, branch: str, own: Sequence[Entry], entries: Sequence[Entry]) -> None:
        """Replace the entries of the branch itself, which must be exactly `own`, by `entries`, all or nothing.

        `entries` are `own` with some of them compacted into one. Call `writing.check_rewrite` first, under a lock that
        keeps other writers out.

        Raises:
            BranchConflictError: the store holds other entries than `own`, or a fork has its base among the entries that
                would be removed.
            StoreError: `entries` do not account for all of `own`.
        """

    def remove(self, run_id: str, heads: Mapping[str, Head]) -> None:
        """Delete a run with all its branches and checkpoints. A call that was interrupted can be repeated.

        `heads` are the heads of all branches as the caller read them. Raises BranchConflictError if they differ now.
        """

    def branches(self, run_id: str | None = None) -> list[BranchInfo]:
        """List the branches of one run, or of all: newest run first, those of a run in the order of their creation.

        A branch that cannot be read is left out of the list of all runs, with a warning. The list of one run raises
        JournalCorrupt or SchemaTooNew for it, so that no caller removes entries that it is forked from.
        """

    def places(self, part: str = "", *, limit: int | None = None, before: str | None = None) -> list[CheckpointInfo]:
        """List the checkpoints whose id contains `part`, newest first.

        Returns at most `limit` of them, and only ones that are older than the checkpoint with the id `before`.
        """

    def ref(self, checkpoint: CheckpointRecord) -> str:
        """Return the ref that names this checkpoint from any directory: a file path, or `db#id`."""

    def close(self) -> None:
        """Release files and connections. crewlite calls it once."""


class ResultCache(Protocol):
    """Results of steps that other runs may reuse.

    Runs call `recall` and `remember`, `History.prune` calls `forget`, on the threads on which they use the store.
    Results belong to no run, so deleting runs keeps them.
    """

    def recall(self, key: str) -> bytes | None:
        """Return the bytes last remembered under `key`; None if there are none."""

    def remember(self, key: str, data: bytes) -> None:
        """Store `data` under `key` (32 hexadecimal digits), all or nothing, replacing earlier data of that key.

        Raises OSError if storage fails.
        """

    def forget(self, before: float, *, dry_run: bool = False) -> int:
        """Delete the results that were last remembered before `before`, in seconds since the epoch.

        Returns the number of their keys. With `dry_run`, only counts them.
        """


class Exchange(ResultCache, Protocol):
    """A ResultCache in which several processes can change the same data, one after the other.

    A store may lack it. Then a circuit breaker uses only what its own process knows.
    """

    def exchange(self, key: str, old: bytes | None, new: bytes) -> bool:
        """Store `new` under `key` if `old` is stored there, atomically; with `old=None`, if nothing is stored there.

        Returns whether `new` was stored. `forget` deletes the data, as it deletes a result. Raises OSError if storage
        fails.
        """


@runtime_checkable
class BaseProvider(Protocol):
    """A kind of storage. A provider of your own needs a `name` and the method `open`.

    Its class may also have these attributes, which are looked up by name (see `declares`):

    * `named_by_location = True`: a location identifies this provider. So the command line can open the location, and
      all objects of exactly this class open the same store there.
    * `in_memory = True`: everything stored is lost when the process ends.
    * `exists(location) -> bool`: returns whether there is a store at a location, without creating one.
    """

    name: str

    def open(self, location: str) -> Store:
        """Open a location for reading and writing. Create it if needed, now or at the first write.

        Raises StoreUnusable if that cannot work.
        """


def is_provider(value: object) -> bool:
    """Return whether a value can be used as a provider. A class cannot, only an instance of one."""
    return isinstance(value, BaseProvider) and not isinstance(value, type)


def open_store(provider: BaseProvider, location: str) -> Store:
    """Return the store that a provider opens. Raises StoreUnusable if it fails, ConfigError if it returns no Store."""
    try:
        store = provider.open(location)
    except CrewliteError:
        raise
    except PermissionError as error:
        remedy = "give this user the right to read and write it, or choose another location"
        raise StoreUnusable(location, f"cannot be used ({error}); {remedy}") from error
    except Exception as error:  # the border: a provider may be code of the user
        problem = f"provider {provider.name!r} could not open it: {type(error).__name__}: {text_of(error)}"
        raise StoreUnusable(location, problem) from error
    if missing := [name for name in _OF_STORE if not hasattr(store, name)]:
        raise ConfigError(
            f"provider {provider.name!r} opened {what_is(store)}, which lacks {', '.join(missing)}; wanted a "
            f"store (docs/storage.md): crewlite.testing.check_provider says what else it needs"
        )
    return store


def kept_open(store: Store) -> Store:
    """Have a store keep open what it reads with, as it will be closed soon, if it can; return it."""
    if hasattr(store, "hold"):
        store.hold()
    return store


def opened(provider: BaseProvider, location: str) -> contextlib.closing[Store]:
    """Open a store for the block of a `with`, which closes it. Raises as `open_store` does."""
    return contextlib.closing(kept_open(open_store(provider, location)))


_OF_STORE = [name for name in (*Store.__annotations__, *vars(Store)) if not name.startswith("_")]


def declares(provider: BaseProvider | None, flag: Literal["named_by_location", "in_memory"]) -> bool:
    """Return whether the class of a provider sets this flag; False without a provider."""
    return bool(getattr(provider, flag, False))


def results_of(store: Store) -> ResultCache | None:
    """Return the result cache of a store; None if it has none."""
    return getattr(store, "results", None)


def exchange_of(store: Store) -> Exchange | None:
    """Return the result cache of a store if it has `exchange`; None otherwise."""
    results: Any = results_of(store)
    return results if hasattr(results, "exchange") else None


def change_shared(exchange: Exchange, key: str, change: Callable[[bytes | None], bytes]) -> bytes:
    """Replace the data under a key by what `change(old)` returns, and return that. Raises OSError if it cannot be done.

    If another process has changed the data meanwhile, `change` is called again.
    """
    for _ in range(_TRIES):
        old = exchange.recall(key)
        new = change(old)
        if new == (old or b"") or exchange.exchange(key, old, new):
            return new
    raise OSError(f"{key} was changed by other processes during each of {_TRIES} tries")


def may_mention(store: Store, run_id: str, branch: str, *parts: bytes) -> bool:
    """Return whether the bytes of the branch itself may contain any of these parts, as far as the store tells."""
    return not hasattr(store, "mentions") or store.mentions(run_id, branch, *parts)


def known_ends(store: Store, branches: Iterable[BranchKey]) -> Mapping[BranchKey, End]:
    """Return which of these branches have certainly ended, and how; what it leaves out is to be read."""
    return store.ended(branches) if hasattr(store, "ended") else {}


def run_ids(store: Store, beginning: str) -> Iterable[str]:
    """Return the ids of the runs whose id begins so."""
    if hasattr(store, "named"):
        found: Iterable[str] = store.named(beginning)
        return found
    return {info.run_id for info in store.branches() if info.run_id.startswith(beginning)}


def exists(location: str, provider: BaseProvider) -> bool:
    """Return whether there is a store at a location; True if the provider has no `exists`."""
    look: Callable[[str], bool] | None = getattr(provider, "exists", None)
    return look is None or look(location)
