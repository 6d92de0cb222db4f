"""Laws of journals: entries are read exactly as they were appended, complete, in order, with one writer at a time."""

from __future__ import annotations

from typing import Any

from crewlite.errors import BranchConflictError, ConfigError
from crewlite.state.providers import Commit, is_provider
from crewlite.testing.bench import Bench, Branch, conflicts, journal_is, raises, same


def a_provider_has_a_name_and_opens_locations(bench: Bench) -> None:
    """A provider is an object with a `name` and an `open`, and a store knows its location."""
    assert is_provider(bench.provider), f"{bench.provider!r} has no `open` or no `name`"
    assert bench.provider.name, "the name is empty"
    store = bench.open()
    assert isinstance(store.location, str), f"the store's location is {store.location!r}"
    assert store.location, "the store's location is empty"


def what_was_never_written_is_empty(bench: Bench) -> None:
    """A branch that was never written reads as [], and a new location lists nothing."""
    store = bench.open()
    same(store.read("run-1", "main"), [], "a new location reads as")
    same(store.branches(), [], "a new location lists branches")
    same(store.places(), [], "a new location lists checkpoints")
    store.append([Branch().add(2).commit()])
    same(store.read("run-1", "other"), [], "a branch that was never made reads as")
    same(store.read("run-2", "main"), [], "a run that was never made reads as")


def entries_come_back_byte_for_byte(bench: Bench) -> None:
    """What is read is what was appended: every byte, every sum, whatever the values hold."""
    store, branch = bench.open(), Branch().add()
    for value in _VALUES:
        branch.add(value=value)
    store.append([branch.commit()])
    journal_is(store, branch)


def entries_keep_their_order(bench: Bench) -> None:
    """Entries are read in the order they were appended, over any number of commits."""
    store, branch = bench.open(), Branch()
    for count in (1, 1, 3, 2, 11, 1):
        store.append([branch.add(count).commit()])
        journal_is(store, branch)


def a_branch_that_moved_on_is_not_written_over(bench: Bench) -> None:
    """A commit that does not follow the last entry, by number and by sum, is a BranchConflictError without effect."""
    store, branch = bench.open(), Branch().add(3)
    store.append([branch.commit()])
    other = branch.twin().add(2)
    branch.checkpoint()
    store.append([branch.commit()])
    late = other.commit()
    follows = Commit(branch.run_id, branch.branch, 4, branch.entries[-1].sum, late.entries)
    wrong = {
        "after an entry that is not the last": late,
        "beyond the end": Commit(late.run_id, late.branch, 9, branch.entries[-1].sum, late.entries),
        "with another sum": Commit(late.run_id, late.branch, 4, "0" * 32, late.entries),
        "with another number": Commit(late.run_id, late.branch, 3, follows.after_sum, late.entries),
    }
    for how, commit in wrong.items():
        conflicts(store, commit, how)
        journal_is(store, branch)
    same(len(store.places()), 1, "checkpoints are listed:")


def a_branch_is_made_once(bench: Bench) -> None:
    """A commit with after=0 makes a branch that does not exist, no commit goes on with one that does not."""
    store, branch, twin = bench.open(), Branch().add(2), Branch().add(2)
    store.append([branch.commit()])
    conflicts(store, twin.commit(), "to a branch that exists, with after=0")
    journal_is(store, branch)
    stranger = Branch("run-2").add(3)
    conflicts(store, stranger.part(1, 3), "to a branch that does not exist, with after=1")
    same(store.read("run-2", "main"), [], "a refused branch reads as")
    same(len(store.branches()), 1, "branches are listed:")


def trying_again_is_safe(bench: Bench) -> None:
    """Appending the commit that is stored already is no error and stores nothing twice."""
    store, branch = bench.open(), Branch().add(2)
    first = branch.commit()
    for _ in range(3):
        store.append([first])
    branch.checkpoint()
    second = branch.add().commit()
    for writer in (store, store, bench.open()):
        writer.append([second])
    journal_is(store, branch)
    same(len(store.branches()), 1, "branches are listed:")
    same(len(store.places()), 1, "checkpoints are listed:")


def trying_again_may_bring_more(bench: Bench) -> None:
    """A commit that begins with entries stored already and goes on with new ones stores the new ones.

    A write may reach the disk and fail all the same; what is tried again then holds what was committed meanwhile.
    """
    store, branch = bench.open(), Branch().add(1)
    store.append([branch.commit()])
    branch.checkpoint()
    store.append([branch.add().commit()])
    branch.checkpoint()
    store.append([branch.part(1, 4)])
    journal_is(store, branch)
    same(len(store.places()), 2, "checkpoints are listed:")


def several_branches_fit_in_one_append(bench: Bench) -> None:
    """One append takes commits to many branches; each arrives whole, in its own branch."""
    store = bench.open()
    branches = [Branch("run-1"), Branch("run-1", "other"), Branch("run-2")]
    for count in (1, 4, 2):
        store.append([branch.add(count).commit() for branch in branches])
    store.append([])
    journal_is(store, *branches)
    same(len(store.branches()), 3, "branches are listed:")


def several_commits_to_a_branch_fit_in_one_append(bench: Bench) -> None:
    """One append takes commits to a branch that follow each other, and writes them in their order."""
    store, branch = bench.open(), Branch().add(2)
    store.append([branch.commit()])
    parts = [branch.add(2).commit()]
    parts += [branch.add().commit()]
    store.append(parts)
    journal_is(store, branch)
    store.append([branch.add().commit()])
    journal_is(bench.open(), branch)


def a_refused_commit_leaves_the_others_whole(bench: Bench) -> None:
    """When one commit of an append is refused, nothing of it is stored, and each of the others whole or not at all."""
    store, good, bad = bench.open(), Branch("run-1").add(), Branch("run-2").add()
    store.append([good.commit(), bad.commit()])
    late = bad.twin()
    store.append([bad.add().commit()])
    good.add()
    good.checkpoint()
    late.add()
    late.checkpoint()
    with raises(BranchConflictError, "an append with a commit that comes too late"):
        store.append([good.commit(), late.add().commit()])
    journal_is(store, bad)
    seen = len(store.read("run-1", "main"))
    assert seen in (1, 3), f"{seen} of 3 entries are read"
    same(len(store.places()), seen // 3, "checkpoints are listed:")


def any_usable_name_is_kept_apart(bench: Bench) -> None:
    """Every name that the rule for names allows can be stored and is kept apart from its likes, on every disk."""
    store = bench.open()
    likes = ("a.b_c-D", "x" * 100, "X" * 100, "0", "_", ".hidden", "x.json", "x.db", "main", "a_b", "MAIN", "Main")
    devices = ("nul", "NUL", "nul.txt", "con", "com1", "aux.jsonl", "a.", "a", "A", ".gitignore")
    runs = [Branch(name).add() for name in (*likes, *devices)]
    names = (
        *("main", "x", "X", "x/y", "X/y", "x/Y", "x/y/z", "xy", "x-y", "x.y", "a.b_c-D", "y" * 100, "Y" * 100),
        *(
            f"{'z' * 100}/{'z' * 100}",
            "x.jsonl",
            "x.jsonl/y",
            "x.jsonl/y.jsonl/z",
            "x.json/y",
            "nul",
            "con/aux",
            "x./y",
        ),
    )
    branches = [*runs, *(Branch("run-1", name).add() for name in names)]
    for branch in branches:
        branch.checkpoint()
        store.append([branch.commit()])
    journal_is(store, *branches)
    same(sorted((b.run_id, b.branch) for b in store.branches()), sorted((b.run_id, b.branch) for b in branches), "are")
    same(len(store.places()), len(branches), "checkpoints are listed:")


def names_beyond_the_rule_are_refused(bench: Bench) -> None:
    """A name that the rule for names forbids is a ConfigError and leaves no trace."""
    store = bench.open()
    bad = ("", ".", "..", "../up", "a b", "a\n", "a\0b", "ü", "x" * 101, "-rf", "latest", "a\\b", "a:b", "a*")
    for run_id, branch in [
        *((name, "main") for name in (*bad, "a/b")),
        *(("run-1", name) for name in (*bad, "/x", "x/", "x//y", "x/../y", "x/latest")),
    ]:
        with raises(ConfigError, f"an append to run {run_id!r}, branch {branch!r}"):
            store.append([Branch(run_id, branch).add().commit()])
    same(store.branches(), [], "branches are listed:")


_VALUES: tuple[Any, ...] = (
    None,
    "",
    "naïve ✒ 漢字 \U0001f58b",
    "line\nline\r\n\ttab \u2028 \u0085 \x00 \x1b[31m \x7f",
    "a lone surrogate \ud800 and another \udfff",
    '{"sum":"0123"}\n{"sum":"4567"}',
    {"$": "dict", "": {"": []}},
    [2**64, -(2**63), 0.1, -0.0, 1e308, True, False],
    "x" * 1_000_000,
)
