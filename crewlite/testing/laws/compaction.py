"""Laws of the methods that pruning needs: find an entry, know which run is active, rewrite a journal, remove a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from crewlite.errors import BranchConflictError, StoreError
from crewlite.ids import new_id
from crewlite.state.format.entry import Entry, seal
from crewlite.state.format.record import Record
from crewlite.state.journal.claim import claim
from crewlite.state.journal.compaction import compact_entries
from crewlite.state.providers import Commit
from crewlite.testing.bench import (
    Bench,
    Branch,
    branch_line,
    checkpoint_line,
    conflicts,
    journal_is,
    raises,
    reads_as,
    same,
)


def sums_are_found_by_number(bench: Bench) -> None:
    """`sum_at` gives what the next entry is chained to, of the branch's own entries only, compacted ones included."""
    store, main = bench.open(), Branch().add(6)
    store.append([main.commit()])
    fork = main.forked("experiment", 3).add(3)
    store.append([fork.commit()])
    for branch, numbers in ((main, range(1, 7)), (fork, range(4, 7))):
        for entry, seq in zip(branch.entries, numbers, strict=True):
            same(store.sum_at("run-1", branch.branch, seq), entry.sum, f"sum_at entry {seq} of {branch.branch} gives")
    for name, seq in (("main", 7), ("main", 0), ("experiment", 3), ("experiment", 1), ("gone", 1)):
        same(store.sum_at("run-1", name, seq), None, f"sum_at entry {seq} of {name} gives")
    same(store.sum_at("run-2", "main", 1), None, "sum_at of a run that is not there gives")
    store.rewrite("run-1", "main", main.entries, _folded(main, 3))
    for seq, total in ((3, main.entries[2].sum), (6, main.entries[5].sum), (5, None)):
        same(store.sum_at("run-1", "main", seq), total, f"once it was compacted, sum_at entry {seq} gives")


def signs_of_life_are_kept(bench: Bench) -> None:
    """`touched` is the time of the last commit; one without entries moves it, unless it comes too late."""
    store, main = bench.open(), Branch().add()
    same(store.touched("run-1", "main"), 0, "a branch that was never made was touched at")
    before = time.time()
    store.append([main.add().commit()])
    made = store.touched("run-1", "main")
    assert before - 2 <= made <= time.time() + 2, f"a branch made at {before} was touched at {made}"
    time.sleep(0.03)
    bench.open().append([main.commit()])
    moved = store.touched("run-1", "main")
    assert moved > made + 0.01, f"after a sign of life 30 ms later, {made} became {moved}"
    time.sleep(0.03)
    late = main.twin().commit()
    store.append([main.add().commit()])
    seen = bench.open().touched("run-1", "main")
    assert seen > moved, f"after a commit 30 ms later, {moved} became {seen}"
    time.sleep(0.03)
    conflicts(store, late, "without entries, after an entry that is not the last")
    conflicts(store, Commit("run-1", "gone", 1, "0" * 32, ()), "without entries, to a branch that is not there")
    same(store.touched("run-1", "main"), seen, "after a sign of life that came too late, touched is")
    same(store.touched("run-1", "gone"), 0, "a branch that was never made was touched at")
    journal_is(store, main)
    same(len(store.branches()), 1, "branches are listed:")


def a_journal_is_rewritten_as_a_whole(bench: Bench) -> None:
    """`rewrite` puts other entries with the same head in a journal's place, from which all who write it go on."""
    store, other, main = bench.open(), bench.open(), Branch().add(4)
    checkpoint = main.checkpoint()
    store.append([main.add(3).commit()])
    fork = main.forked("experiment", 5, checkpoint).add(2)
    store.append([fork.commit()])
    touched, less = store.touched("run-1", "main"), _folded(main, 5)
    assert len(less) < len(main.entries)
    time.sleep(0.03)
    other.rewrite("run-1", "main", main.entries, less)
    for reader in (store, other, bench.open()):
        reads_as(reader, main, less)
    assert abs(store.touched("run-1", "main") - touched) < 0.01, (
        "to rewrite a journal is no sign of life, yet it was one"
    )
    same(store.places(), [checkpoint_line(main, checkpoint)], "the checkpoints are")
    same(bench.find(store.ref(checkpoint)).checkpoint, checkpoint["id"], "the ref names")
    same([info.branch for info in store.branches("run-1")], ["main", "experiment"], "branches are listed:")
    journal_is(store, fork)
    store.append([main.commit()])  # a sign of life
    store.append([main.add(2).commit()])
    reads_as(other, main, [*less, *main.entries[-2:]])
    then = [*less, *main.entries[-2:]]
    again = compact_entries([], then, [5])
    store.rewrite("run-1", "main", then, again)
    store.append([main.add().commit()])
    reads_as(bench.open(), main, [*again, main.entries[-1]])


def who_looks_is_not_in_the_way_of_who_writes(bench: Bench) -> None:
    """To look at a journal, before or after it is compacted elsewhere, leaves it to those who write to go on."""
    store, other, main = bench.open(), bench.open(), Branch().add(2)
    main.add(claim=claim())  # somebody is at work
    store.append([main.commit()])
    looks: list[Callable[[], object]] = [
        lambda: store.read("run-1", "main"),
        lambda: store.sum_at("run-1", "main", 3),
        lambda: (store.touched("run-1", "main"), store.branches(), store.branches("run-1"), store.places()),
    ]
    written = list(main.entries)
    for look in looks:
        for before, after in ((look, None), (None, look), (look, look)):
            main.add(4)
            store.append([main.commit()])
            written += main.entries[-4:]
            _elsewhere(before)
            less = compact_entries([], written, ())
            assert len(less) < len(written)
            other.rewrite("run-1", "main", written, less)
            _elsewhere(after)
            main.add()
            checkpoint = main.checkpoint()
            store.append([main.commit()])
            written = [*less, *main.entries[-2:]]
            reads_as(other, main, written)
            same([found.id for found in store.places(checkpoint["id"])], [checkpoint["id"]], "it is listed as")
            store.append([main.commit()])  # a sign of life


def _elsewhere(act: Callable[[], object] | None) -> None:
    """Call something on another thread, and wait for it."""
    if act:
        thread = threading.Thread(target=act)
        thread.start()
        thread.join()


def what_moved_or_bears_a_fork_is_not_rewritten(bench: Bench) -> None:
    """`rewrite` is a BranchConflictError where a journal is not as it was read, or a fork would lose its base."""
    store, main = bench.open(), Branch().add(8)
    store.append([main.commit()])
    early, less = list(main.entries), _folded(main)
    store.append([main.add().commit()])
    fork = main.forked("experiment", 5).add()
    other = Branch(uid=main.uid).add(9).entries
    for why, own in (
        ("that has moved since", early),
        ("that holds other entries", other),
        ("whose last entry is another", [*main.entries[:-1], other[-1]]),
        ("that holds an entry more", [*main.entries[:3], *main.entries[4:]]),
        ("of which nothing was read", []),
    ):
        for entries in (less, _folded(main), own):
            with raises(BranchConflictError, f"rewriting a branch {why}"):
                store.rewrite("run-1", "main", own, entries)
            journal_is(store, main)
    store.append([fork.commit()])
    with raises(BranchConflictError, "rewriting a branch without the entry that a fork stands on"):
        store.rewrite("run-1", "main", main.entries, _folded(main))
    with raises(BranchConflictError, "rewriting a branch that is not there"):
        store.rewrite("run-1", "gone", main.entries, _folded(main))
    journal_is(store, main, fork)
    main.checkpoint()
    store.append([main.add().commit()])
    stands = main.forked("later", 11, main.entries[9].commit["place"]).add()
    store.append([stands.commit()])
    last = main.entries[-1]
    joined = seal({**last.commit, "folded": {"first": 9, "sum": last.sum}}, after=main.entries[7].sum)
    with raises(BranchConflictError, "rewriting a branch without the entry of the checkpoint that a fork stands on"):
        store.rewrite("run-1", "main", main.entries, [*main.entries[:8], joined])
    journal_is(store, main)
    compacted = compact_entries([], main.entries, [5, 10])
    store.rewrite("run-1", "main", main.entries, compacted)
    reads_as(store, main, compacted)
    with raises(BranchConflictError, "rewriting a branch that was compacted since"):
        store.rewrite("run-1", "main", main.entries, compacted)
    reads_as(store, main, compacted)


def a_rewrite_accounts_for_every_entry(bench: Bench) -> None:
    """`rewrite` is a StoreError where the new entries do not account for all the old ones; nothing changes."""
    store, main = bench.open(), Branch().add(8)
    store.append([main.commit()])
    fork = main.forked("experiment", 3).add(5)
    store.append([fork.commit()])
    for branch, before in ((main, []), (fork, main.entries[:3])):
        for why, entries in _unaccounted(before, branch.entries).items():
            with raises(StoreError, f"rewriting a branch as {why}"):
                store.rewrite("run-1", branch.branch, branch.entries, entries)
            journal_is(store, branch)
    with raises(StoreError, "rewriting a branch as nothing"):
        store.rewrite("run-1", "experiment", fork.entries, [])
    journal_is(store, fork)


def what_a_branch_goes_back_to_stays(bench: Bench) -> None:
    """An entry that goes back to an earlier one of its branch reads as it is; no rewrite may lose either."""
    store, main = bench.open(), Branch().add(4)
    main.add(rewind={"seq": 2, "sum": main.entries[1].sum}).add(2)
    store.append([main.commit()])
    own = main.entries

    def joined(first: int, last: int, *left_out: str) -> list[Entry]:
        commit: Any = {name: part for name, part in own[last - 1].commit.items() if name not in left_out}
        commit["folded"] = {"first": first, "sum": own[last - 1].sum}
        compacted = seal(commit, after=own[first - 2].sum)
        return [*own[: first - 1], compacted, *own[last:]]

    wrong = {
        "without what it goes back to": joined(2, 3),
        "as if it never went back": joined(5, 5, "rewind"),
        "as if it went back earlier": joined(4, 5),
    }
    for how, entries in wrong.items():
        with raises(StoreError, f"rewriting a branch {how}"):
            store.rewrite("run-1", "main", own, entries)
        journal_is(bench.open(), main)
    kept = compact_entries([], own, [])
    store.rewrite("run-1", "main", own, kept)
    for read in (store.read("run-1", "main"), bench.open().read("run-1", "main")):
        same(
            [entry.seal for entry in read], [entry.seal for entry in kept], "a compacted branch that went back reads as"
        )
        same(Record.of(read).outcomes.keys(), Record.of(own).outcomes.keys(), "its outcomes are")


def _unaccounted(before: list[Entry], own: list[Entry]) -> dict[str, list[Entry]]:
    """Return journals that are no compaction of `own`, by what is wrong. The third entry is the base of a fork."""
    first, last, compacted = own[0], own[-1], compact_entries(before, own, [own[2].seq])
    other = seal({**own[3].commit, "steps": []}, after=own[2].sum)

    def joined(start: int, total: str, after: int) -> Entry:
        return seal({**last.commit, "folded": {"first": own[start].seq, "sum": total}}, after=own[after].sum)

    return {
        "a journal with a hole": [*own[:3], *own[4:]],
        "a journal with a hole before its end": [*own[:3], last],
        "a compaction with a hole": [*compacted[:-1], joined(4, last.sum, after=2)],
        "a journal that ends too early": own[:-1],
        "a journal that lacks its beginning": own[1:],
        "a journal with an entry twice": [*own[:3], own[2], *own[3:]],
        "a journal in another order": [*own[:3], *own[3:][::-1]],
        "a journal with another entry in the middle": [*own[:3], other, *own[4:]],
        "a journal with another end": [*own[:-1], seal({**last.commit, "steps": []}, after=own[-2].sum)],
        "a journal whose end is chained to nothing": [*own[:-1], seal(last.commit, after="")],
        "a compaction that says another sum": [*own[:3], joined(3, "0" * 32, after=2)],
        "a compaction that is chained to another entry": [*own[:3], joined(3, last.sum, after=1)],
        "the beginning of another run": [
            seal({**first.commit, "run": {**first.commit["run"], "uid": new_id()}}, after=_before(first)),
            *own[1:],
        ],
        "an entry whose bytes were changed": [*own[:-1], last._replace(body=last.body.replace(b"1.5", b"2.5"))],
    }


def _before(first: Entry) -> str:
    """Return the sum that the first entry of a branch is chained to."""
    base = first.commit["run"].get("base")
    return base["sum"] if base else ""


def a_run_is_removed_as_a_whole(bench: Bench) -> None:
    """`remove` takes a run away with all its branches and checkpoints; other runs stay, and it may be made anew."""
    store, main, other = bench.open(), Branch().add(2), Branch("run-2").add()
    kept = other.checkpoint()
    checkpoints = [main.checkpoint()]
    store.append([main.commit(), other.commit()])
    fork = main.forked("experiment", 3, checkpoints[0]).add()
    checkpoints.append(fork.checkpoint())
    store.append([fork.commit()])
    store.remove("run-1", {"main": _head(main), "experiment": _head(fork)})
    for looking in (store, bench.open()):
        same(looking.branches(), [branch_line(other)], "the listing is")
        same(looking.places(), [checkpoint_line(other, kept)], "the checkpoints are")
        same(looking.read("run-1", "main"), [], "what was removed reads as")
        same(looking.touched("run-1", "experiment"), 0, "what was removed was touched at")
    for checkpoint in checkpoints:
        same(store.places(checkpoint["id"]), [], "checkpoints of what was removed are")
    store.append([other.add().commit()])
    journal_is(store, other)
    conflicts(store, main.add().commit(), "to a run that was removed")
    anew = Branch().add(2)
    store.append([anew.commit()])
    journal_is(bench.open(), anew)
    bench.open().remove("run-1", {"main": _head(anew)})
    again = Branch().add(2)
    for _ in range(2):
        store.append([again.add().commit()])
    journal_is(bench.open(), again)


def a_run_that_moved_is_not_removed(bench: Bench) -> None:
    """`remove` is a BranchConflictError where the run's branches are not exactly at these heads; nothing changes."""
    store, main = bench.open(), Branch().add(2)
    checkpoint = main.checkpoint()
    store.append([main.commit()])
    early = _head(main)
    fork = main.forked("experiment", 2).add()
    store.append([fork.commit(), main.add().commit()])
    now = {"main": _head(main), "experiment": _head(fork)}
    wrong = {
        "has moved": now | {"main": early},
        "has a branch that was not named": {"main": _head(main)},
        "has no such branch": now | {"gone": early},
        "has another sum at its head": now | {"main": (early[0], "0" * 32)},
    }
    for why, heads in wrong.items():
        with raises(BranchConflictError, f"removing a run that {why}"):
            store.remove("run-1", heads)
        journal_is(store, main, fork)
        same(store.places(), [checkpoint_line(main, checkpoint)], "the checkpoints are")
    with raises(BranchConflictError, "removing a run that is not there"):
        store.remove("run-2", {"main": early})
    store.remove("run-1", now)


def _head(branch: Branch) -> tuple[int, str]:
    return branch.entries[-1].head


def _folded(branch: Branch, *stands: int) -> list[Entry]:
    """Return the compacted entries of a branch. Entries in `stands`, its checkpoints and its head stay readable."""
    return compact_entries([], branch.entries, stands)
