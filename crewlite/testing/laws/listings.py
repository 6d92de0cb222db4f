"""Laws of listings: the runs, branches and checkpoints of a store, listed without reading journals."""

from __future__ import annotations

from typing import Any

from crewlite.errors import RefError
from crewlite.state.format.commit import CheckpointRecord, Claim, CommitParts, StepRecord
from crewlite.state.format.entry import next_entry
from crewlite.state.format.failed import ErrorRecord
from crewlite.state.providers import CheckpointInfo, Commit
from crewlite.state.reading.locate import locate
from crewlite.testing.bench import Bench, Branch, NotOffered, branch_line, checkpoint_line, journal_is, raises, same


def checkpoints_are_listed_newest_first(bench: Bench) -> None:
    """Checkpoints are listed newest first, over all runs, each with its run, branch, number, trigger and time."""
    store = bench.open()
    branches = [Branch("run-2"), Branch("run-1"), Branch("run-1", "x/y")]
    expected = []
    for _ in range(3):
        for branch in branches:
            branch.add()
            checkpoint = branch.checkpoint()
            store.append([branch.commit()])
            expected.append(checkpoint_line(branch, checkpoint))
    same(store.places(), expected[::-1], "the listing is")


def checkpoints_are_found_by_a_part_of_their_id(bench: Bench) -> None:
    """`places(part)` lists the checkpoints whose id contains that text, and takes no character for a wildcard."""
    store, branch = bench.open(), Branch().add()
    checkpoints = [branch.checkpoint() for _ in range(3)]
    store.append([branch.commit()])
    for checkpoint in checkpoints:
        for part in (checkpoint["id"], checkpoint["id"][-8:]):
            same([found.id for found in store.places(part)], [checkpoint["id"]], f"places({part!r}) gives")
    for part in ("", checkpoints[0]["id"][:4]):
        same(len(store.places(part)), 3, f"places({part!r}) gives this many:")
    for part in ("*", "**", "?", "%", "_", "[0-9]", "[", "/", "..", "'", "no such id"):
        same(store.places(part), [], f"places({part!r}) gives")


def checkpoints_come_in_pages(bench: Bench) -> None:
    """`places(limit=n, before=id)` is the next page: the n newest of those that are older than that id."""
    store, branches = bench.open(), [Branch("run-1").add(), Branch("run-2").add()]
    for number in range(7):
        branches[number % 2].checkpoint()
    store.append([branch.commit() for branch in branches])
    every = store.places()
    same(len(every), 7, "checkpoints are listed:")
    for size in (1, 2, 3, 7, 9):
        pages, before = list[CheckpointInfo](), None
        while page := store.places(limit=size, before=before):
            same(len(page) <= size, True, f"a page of at most {size} has {len(page)}; that it fits is")
            pages += page
            before = page[-1].id
        same(pages, every, f"in pages of {size}, the listing is")
    third = every[2].id
    same(store.places(third, limit=5), [every[2]], "one checkpoint, with a limit, is")
    same(store.places(third, before=third), [], "checkpoints before itself that have its id are")
    same(store.places(third[:4], limit=2, before=third), every[3:5], "two with a part of an id, after it, are")
    branches[0].add(drops=[[third, None]])
    store.append([branches[0].commit()])
    same(store.places(before=third, limit=1), every[3:4], "the page after a checkpoint that is gone since is")


def dropped_checkpoints_are_gone(bench: Bench) -> None:
    """A checkpoint that an entry drops is listed no more and its ref names nothing; its journal stays."""
    store, branch = bench.open(), Branch().add()
    first, second = branch.checkpoint(), branch.checkpoint()
    store.append([branch.commit()])
    third = branch.checkpoint(drops=[first["id"]])
    store.append([branch.commit()])
    same(store.places(), [checkpoint_line(branch, third), checkpoint_line(branch, second)], "the listing is")
    branch.add(drops=[[gone, None] for gone in (second["id"], third["id"], "never was")])
    store.append([branch.commit()])
    same(store.places(), [], "the listing is")
    journal_is(store, branch)
    for checkpoint in (first, second, third):
        with raises(RefError, "the ref of a dropped checkpoint"):
            bench.find(store.ref(checkpoint))
    together, last = list[Commit](), list[str]()
    for _ in range(3):  # each drops the one before, which is written at the same time
        last = [branch.checkpoint(drops=last)["id"]]
        together.append(branch.commit())
    store.append(together)
    same([found.id for found in store.places()], last, "the listing is")


def abandoned_checkpoints_are_told_apart(bench: Bench) -> None:
    """A checkpoint is `abandoned` in the listing as long as its branch has gone back to before it, with a `rewind`."""
    store, branch, other = bench.open(), Branch("run-1").add(), Branch("run-2").add()
    checkpoints = [branch.checkpoint() for _ in range(3)]
    other.checkpoint()
    store.append([branch.commit(), other.commit()])

    def back_to(checkpoint: CheckpointRecord) -> None:
        found = branch.entries[checkpoint["seq"] - 1]
        branch.add(rewind={"seq": found.seq, "sum": found.sum})
        store.append([branch.commit()])

    def told_apart(*abandoned: CheckpointRecord) -> None:
        for opened in (store, bench.open()):
            found = {one.id for one in opened.places() if one.abandoned}
            same(found, {one["id"] for one in abandoned}, "the abandoned checkpoints in the listing are")

    told_apart()
    back_to(checkpoints[0])
    told_apart(*checkpoints[1:])
    again = branch.checkpoint()
    store.append([branch.commit()])
    told_apart(*checkpoints[1:])
    back_to(checkpoints[1])
    told_apart(again, checkpoints[2])
    same([one.abandoned for one in store.places(checkpoints[2]["id"], limit=1)], [True], "in a page, it is abandoned:")
    branch.add(drops=[[checkpoints[2]["id"], None]])
    store.append([branch.commit()])
    told_apart(again)


def refs_name_checkpoints_from_anywhere(bench: Bench) -> None:
    """The ref of a checkpoint leads back to its run, its branch and itself, without a word about where it is kept."""
    store = bench.open()
    for branch in (Branch("run-1"), Branch("run-1", "x/y"), Branch("a.b_c-D")):
        branch.add()
        checkpoints = [branch.checkpoint(), branch.checkpoint()]
        store.append([branch.commit()])
        for checkpoint in checkpoints:
            ref = store.ref(checkpoint)
            found = locate(ref, "somewhere else", bench.provider, None)
            named = (found.run_id, found.branch, found.checkpoint)
            same(named, (branch.run_id, branch.branch, checkpoint["id"]), f"{ref} names")
            same(found.provider.name, bench.provider.name, f"{ref} is in the provider")
            same(bench.find(checkpoint["id"][-8:]).checkpoint, checkpoint["id"], "the short form of an id names")


def branches_are_listed_newest_run_first(bench: Bench) -> None:
    """Branches are listed newest run first, each with its definition, whatever order they were written in."""
    store = bench.open()
    branches = [
        Branch("run-1", name="writers"),
        Branch("run-2", name="editors"),
        Branch("run-1", "x/y", name="writers ✒"),
        Branch("run-0", name="readers"),
    ]
    for branch in (branches[1], branches[3], branches[0], branches[2]):
        branch.add(2)
        store.append([branch.commit()])
    branches[0].checkpoint()
    store.append([branches[0].commit()])
    expected = [branch_line(branch) for branch in reversed(branches)]
    same(store.branches(), expected, "the listing is")
    same(bench.find("latest").run_id, "run-0", "`latest` names")


def branches_are_listed_by_run(bench: Bench) -> None:
    """`branches(run_id)` lists the branches of that run alone, in the order they were made; [] if there is none."""
    store, main, other = bench.open(), Branch("run-1").add(3), Branch("run-10").add()
    store.append([main.commit(), other.commit()])
    forks = [main.forked(name, at).add() for name, at in (("z", 2), ("a/b", 3), ("a", 1))]
    for fork in forks:
        store.append([fork.commit()])
    same(store.branches("run-1"), [branch_line(branch) for branch in (main, *forks)], "the branches of one run are")
    same(store.branches("run-10"), [branch_line(other)], "the branches of the other are")
    same(store.branches("run-2"), [], "the branches of a run that is not there are")


def runs_are_named_by_the_beginning_of_their_ids(bench: Bench) -> None:
    """`named(beginning)`, if a store has it, returns the ids of the runs that begin so, each once."""
    store, main = bench.open(), Branch("Chat-1").add(2)
    if not hasattr(store, "named"):
        raise NotOffered
    others = [Branch(name).add() for name in ("Chat-1.2", "Chat-10", "chat-1", "Chat")]
    store.append([branch.commit() for branch in (main, *others)])
    store.append([main.forked("side", 1).add().commit()])
    for opened in (store, bench.open()):
        told: Any = opened
        same(sorted(told.named("Chat-1")), ["Chat-1", "Chat-1.2", "Chat-10"], "the runs named so are")
        same(told.named("Chat-1.2"), ["Chat-1.2"], "the one run named so is")
        same(told.named("Chat-2"), [], "the runs of a name that is not there are")


def ends_are_told_by_the_last_entries(bench: Bench) -> None:
    """`ended(branches)`, if a store has it, says how those ended that certainly have, by their last entries."""
    store, names = bench.open(), list[tuple[str, str]]()
    if not hasattr(store, "ended"):
        raise NotOffered

    def run(*last: CommitParts) -> str:
        branch = Branch(f"run-{len(names)}").add(3)
        for parts in last:
            branch.entries.append(next_entry(parts, after=branch.entries[-1].head))
        names.append((branch.run_id, branch.branch))
        store.append([branch.commit()])
        return branch.run_id

    result: StepRecord = {**Branch().add(2).entries[1].commit["steps"][0], "address": ""}
    error: ErrorRecord = {"type": "E", "message": "", "traceback": "", "failure": "Unknown", "final": True}
    claim: Claim = {"id": "c", "host": "h", "boot": "b", "pid": 1, "started": None}
    end: CommitParts = {"steps": [result]}
    drop: CommitParts = {"drops": [("never was", None)]}
    finished = [run(end), run(end, drop), run(end, drop, drop)]
    failed = [run({"steps": [{**result, "error": error}]})]
    run()
    run({**end, "claim": claim})
    run(end, {"released": True})
    run({"steps": [{**result, "error": {**error, "final": False}}]})
    run({"steps": [{**result, "again": True}]})
    run({**end, "intents": [("task:write", "once")]})
    expected = {(one, "main"): how for how, ids in (("finished", finished), ("failed", failed)) for one in ids}
    for opened in (store, bench.open()):
        told: Any = opened
        same(told.ended(names), expected, "the ends are")
        same(told.ended(names[1:2]), {names[1]: "finished"}, "the end of one run is")
        same(told.ended([("no-such-run", "main")]), {}, "the end of a run that is not there is")
