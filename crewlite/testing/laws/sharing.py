"""Laws of stores that share a location: each sees what the others wrote, and readers see only complete writes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from crewlite.state.journal.compaction import compact_entries
from crewlite.state.providers import Store, kept_open
from crewlite.testing.bench import Bench, Branch, conflicts, journal_is, reads_as, same, watched


def stores_of_one_location_see_each_other(bench: Bench) -> None:
    """What one store appended, another of the same location reads at once, goes on from, and does not write over."""
    one, two, branch = bench.open(), kept_open(bench.open()), Branch().add(2)
    one.append([branch.commit()])
    journal_is(two, branch)
    branch.checkpoint()
    late = branch.twin()
    two.append([branch.commit()])
    journal_is(one, branch)
    same(one.places(), two.places(), "the other one lists checkpoints as")
    same(one.branches(), two.branches(), "the other one lists branches as")
    conflicts(one, late.add(2).commit(), "from a store that did not hear of the last one")
    one.append([branch.add().commit()])
    two.append([branch.add(2).commit()])
    for store in (one, two, bench.open()):
        journal_is(store, branch)


def what_is_stored_survives_closing(bench: Bench) -> None:
    """Closing a store and opening its location again keeps everything."""
    store, branch = bench.open(), Branch().add(2)
    checkpoint = branch.checkpoint()
    store.append([branch.commit(), (other := Branch("run-2", "x/y")).add(3).commit()])
    before = store.branches(), store.places()
    bench.close(store)
    again = bench.open()
    journal_is(again, branch)
    journal_is(again, other)
    same((again.branches(), again.places()), before, "the listings are")
    same(bench.find(again.ref(checkpoint)).checkpoint, checkpoint["id"], "the ref names")
    again.append([branch.add().commit()])
    journal_is(again, branch)


def readers_see_only_whole_commits(bench: Bench) -> None:
    """Readers on any thread, at any moment of a write, see whole commits in order, and listings that do not fail."""
    writer, branch = bench.open(), Branch()
    with watched([writer, bench.open(), kept_open(bench.open())], lambda store: _oddities(store, branch)):
        drops: list[str] = []
        for _ in range(25):
            branch.add(2)
            drops = [branch.checkpoint(drops=drops)["id"]]
            writer.append([branch.commit()])
    journal_is(writer, branch)


def readers_see_a_journal_before_or_after_it_is_rewritten(bench: Bench) -> None:
    """Readers on any thread, at any moment of a rewrite, see the journal as it was or as it is then, and no other."""
    store, main = bench.open(), Branch().add(30)
    store.append([main.commit()])
    steps = [main.entries]
    for seq in range(3, 31, 2):
        steps.append(compact_entries([], steps[-1], range(seq, 31)))
    sizes = {len(entries) for entries in steps}
    assert len(sizes) > 5, "compaction makes it shorter, again and again"

    def look(reader: Store) -> Iterator[str]:
        found = reader.read("run-1", "main")
        if not found or found[-1].sum != main.entries[-1].sum or len(found) not in sizes:
            yield f"a reader met {len(found)} entries, and there are one of {sorted(sizes)}"

    with watched([store, bench.open()], look):
        for before, after in itertools.pairwise(steps):
            store.rewrite("run-1", "main", before, after)
    reads_as(store, main, steps[-1])


def _oddities(store: Store, branch: Branch) -> Iterator[str]:
    """Yield what a reader sees and never should, while commits of three entries arrive."""
    numbers = [entry.seq for entry in store.read(branch.run_id, branch.branch)]
    if numbers != list(range(1, len(numbers) + 1)) or len(numbers) % 3:
        yield f"a reader met entries {numbers[-3:]} at the end, and commits are of 3"
    later = [entry.seq for entry in store.read(branch.run_id, branch.branch)]
    if len(later) < len(numbers):
        yield f"a reader met {len(later)} entries after it had met {len(numbers)}"
    found = {info.run_id for info in store.branches()} | {one.run_id for one in store.places()}
    if found > {branch.run_id}:
        yield f"a listing names {sorted(found)}"
