"""Laws of forks: branches whose first entry is chained to an entry of another branch."""

from __future__ import annotations

from crewlite.errors import BranchConflictError
from crewlite.state.journal.lineage import find_lineage
from crewlite.testing.bench import Bench, Branch, branch_line, checkpoint_line, conflicts, journal_is, raises, same


def a_fork_holds_its_own_entries_alone(bench: Bench) -> None:
    """A fork reads as its own entries, its base stays as it was, and what it stands on is listed with it."""
    store, main = bench.open(), Branch().add()
    checkpoint = main.checkpoint()
    store.append([main.add(3).commit()])
    fork = main.forked("experiment", 2, checkpoint).add()
    later = fork.checkpoint()
    store.append([fork.commit()])
    second = fork.forked("experiment/deeper", fork.entries[0].seq).add(2)
    store.append([second.commit()])
    store.append([fork.add(2).commit(), main.add().commit()])
    journal_is(store, main, fork, second)
    same(store.branches(), [branch_line(branch) for branch in (main, fork, second)], "the listing is")
    same(store.places(), [checkpoint_line(fork, later), checkpoint_line(main, checkpoint)], "the checkpoints are")
    standing = [*main.entries[:2], fork.entries[0], *second.entries]
    found = find_lineage(bench.open(), second.run_id, second.branch)
    same(found.entries, standing, "with its bases, a fork of a fork reads as")


def a_fork_needs_its_base(bench: Bench) -> None:
    """A fork of a run, branch, entry or checkpoint that is not there, or has another sum, is a BranchConflictError."""
    store, main = bench.open(), Branch().add(3)
    lost = Branch("run-0").add(3).forked("experiment", 2).add()
    conflicts(store, lost.commit(), "that forks a run which is not there")
    same(store.branches(), [], "branches are listed:")
    store.append([main.commit()])
    ahead = main.twin().add(2)
    other = Branch(main.run_id, uid=main.uid).add(3)
    wrong = {
        "a branch which is not there": Branch("run-1", "gone").add(3).forked("experiment", 2),
        "an entry which is not there": ahead.forked("experiment", 5),
        "an entry which has another sum": other.forked("experiment", 2),
        "an entry whose checkpoint is not there": main.forked("experiment", 2, ahead.checkpoint()),
    }
    for how, fork in wrong.items():
        conflicts(store, fork.add().commit(), f"that forks {how}")
        same(store.read("run-1", "experiment"), [], "a refused fork reads as")
    same(store.branches(), [branch_line(main)], "the listing is")
    fork = main.forked("experiment", 2).add()
    store.append([fork.commit()])
    journal_is(store, fork)


def a_fork_is_made_once(bench: Bench) -> None:
    """A fork does not take the place of a branch that is there; to make the very same one again is no error."""
    store, main = bench.open(), Branch().add(3)
    store.append([main.commit()])
    fork = main.forked("experiment", 2).add()
    first = fork.commit()
    for writer in (store, store, bench.open()):
        writer.append([first])
    for at in (2, 3):
        conflicts(store, main.forked("experiment", at).add(value="other").commit(), "that makes a fork which is there")
    conflicts(store, main.forked("main", 2).add().commit(), "that forks a branch into itself")
    store.append([fork.add(2).commit()])
    journal_is(store, main, fork)


def a_new_run_appears_with_all_its_branches(bench: Bench) -> None:
    """One append may make a run with many branches, bases before forks: all of them are there then, or none."""
    store, main = bench.open(), Branch().add(4)
    checkpoint = main.checkpoint()
    fork = main.forked("a/b", 5, checkpoint).add(2)
    second = fork.forked("a", 7).add(3)
    later = second.checkpoint()
    with raises(BranchConflictError, "an append that makes a run with a fork whose base is not in it"):
        store.append([main.part(0, 4), fork.part(0, 2)])
    same(store.branches(), [], "after a refused append, branches are listed:")
    same(store.places(), [], "after a refused append, checkpoints are listed:")
    same(store.read("run-1", "main"), [], "after a refused append, a branch reads as")
    store.append([branch.commit() for branch in (main, fork, second)])
    journal_is(store, main, fork, second)
    same(sorted(info.branch for info in store.branches()), ["a", "a/b", "main"], "the listing is")
    same(store.places(), [checkpoint_line(second, later), checkpoint_line(main, checkpoint)], "the checkpoints are")
    store.append([branch.add().commit() for branch in (second, main)])
    journal_is(bench.open(), main, fork, second)


def a_branch_begins_at_its_beginning(bench: Bench) -> None:
    """What goes on in the middle of a branch that is not there is refused, also beside others that begin a run."""
    store, main = bench.open(), Branch().add(3)
    fork = main.forked("experiment", 2).add(3)
    checkpoint = fork.checkpoint()
    for commits in ([main.part(0, 3), fork.part(1, 4)], [main.part(1, 3)], [main.part(2, 3), fork.part(3, 4)]):
        with raises(BranchConflictError, "an append that leaves out how a branch begins"):
            store.append(commits)
        same(store.branches(), [], "branches are listed:")
        same(store.places(checkpoint["id"]), [], "checkpoints are listed:")
    store.append([main.part(0, 3), fork.part(0, 4)])
    journal_is(bench.open(), main, fork)
