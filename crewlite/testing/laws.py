"""What a store promises, law by law: each a function whose docstring is the law."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from crewlite.errors import BranchConflictError, ConfigError, RefError
from crewlite.state.entry import Facts
from crewlite.state.locate import locate
from crewlite.state.providers import BaseProvider, BranchInfo, Commit, PlaceInfo, Store
from crewlite.state.providers.reading import branch_info, place_info
from crewlite.testing.bench import Bench, Branch

Law = Callable[[Bench], None]


def a_provider_has_a_name_and_opens_locations(bench: Bench) -> None:
    """A provider is an object with a `name` and an `open`, and a store knows its location."""
    assert isinstance(bench.provider, BaseProvider), f"{bench.provider!r} has no `open` or no `name`"
    assert bench.provider.name, "the name is empty"
    store = bench.open()
    assert isinstance(store.location, str), f"the store's location is {store.location!r}"
    assert store.location, "the store's location is empty"


def what_was_never_written_is_empty(bench: Bench) -> None:
    """A branch that was never written reads as [], and a new location lists nothing."""
    store = bench.open()
    _same(store.read("run-1", "main"), [], "a new location reads as")
    _same(store.branches(), [], "a new location lists branches")
    _same(store.places(), [], "a new location lists places")
    store.append([Branch().add(2).commit()])
    _same(store.read("run-1", "other"), [], "a branch that was never made reads as")
    _same(store.read("run-2", "main"), [], "a run that was never made reads as")


def entries_come_back_byte_for_byte(bench: Bench) -> None:
    """What is read is what was appended: every byte, every sum, whatever the values hold."""
    store, branch = bench.open(), Branch().add()
    for value in _VALUES:
        branch.add(value=value)
    store.append([branch.commit()])
    _journal_is(store, branch)


def entries_keep_their_order(bench: Bench) -> None:
    """Entries are read in the order they were appended, over any number of commits."""
    store, branch = bench.open(), Branch()
    for count in (1, 1, 3, 2, 11, 1):
        store.append([branch.add(count).commit()])
        _journal_is(store, branch)


def a_branch_that_moved_on_is_not_written_over(bench: Bench) -> None:
    """A commit that does not follow the last entry, by number and by sum, is a BranchConflictError without effect."""
    store, branch = bench.open(), Branch().add(3)
    store.append([branch.commit()])
    other = branch.fork().add(2)
    branch.place()
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
        _conflicts(store, commit, how)
        _journal_is(store, branch)
    _same(len(store.places()), 1, "places are listed:")


def a_branch_is_made_once(bench: Bench) -> None:
    """A commit with after=0 makes a branch that does not exist, no commit goes on with one that does not."""
    store, branch, twin = bench.open(), Branch().add(2), Branch().add(2)
    store.append([branch.commit()])
    _conflicts(store, twin.commit(), "to a branch that exists, with after=0")
    _journal_is(store, branch)
    stranger = Branch("run-2").add(3)
    _conflicts(store, stranger.part(1, 3), "to a branch that does not exist, with after=1")
    _same(store.read("run-2", "main"), [], "a refused branch reads as")
    _same(len(store.branches()), 1, "branches are listed:")


def trying_again_is_safe(bench: Bench) -> None:
    """Appending the commit that is stored already is no error and stores nothing twice."""
    store, branch = bench.open(), Branch().add(2)
    first = branch.commit()
    for _ in range(3):
        store.append([first])
    branch.place()
    second = branch.add().commit()
    for writer in (store, store, bench.open()):
        writer.append([second])
    _journal_is(store, branch)
    _same(len(store.branches()), 1, "branches are listed:")
    _same(len(store.places()), 1, "places are listed:")


def trying_again_may_bring_more(bench: Bench) -> None:
    """A commit that begins with entries stored already and goes on with new ones stores the new ones.

    A write may reach the disk and fail all the same; what is tried again then holds what was committed meanwhile.
    """
    store, branch = bench.open(), Branch().add(1)
    store.append([branch.commit()])
    branch.place()
    store.append([branch.add().commit()])
    branch.place()
    store.append([branch.part(1, 4)])
    _journal_is(store, branch)
    _same(len(store.places()), 2, "places are listed:")


def several_branches_fit_in_one_append(bench: Bench) -> None:
    """One append takes commits to many branches; each arrives whole, in its own branch."""
    store = bench.open()
    branches = [Branch("run-1"), Branch("run-1", "other"), Branch("run-2")]
    for count in (1, 4, 2):
        store.append([branch.add(count).commit() for branch in branches])
    store.append([])
    for branch in branches:
        _journal_is(store, branch)
    _same(len(store.branches()), 3, "branches are listed:")


def a_refused_commit_leaves_the_others_whole(bench: Bench) -> None:
    """When one commit of an append is refused, nothing of it is stored, and each of the others whole or not at all."""
    store, good, bad = bench.open(), Branch("run-1").add(), Branch("run-2").add()
    store.append([good.commit(), bad.commit()])
    late = bad.fork()
    store.append([bad.add().commit()])
    good.add()
    good.place()
    late.add()
    late.place()
    with _raises(BranchConflictError, "an append with a commit that comes too late"):
        store.append([good.commit(), late.add().commit()])
    _journal_is(store, bad)
    seen = len(store.read("run-1", "main"))
    assert seen in (1, 3), f"{seen} of 3 entries are read"
    _same(len(store.places()), seen // 3, "places are listed:")


def places_are_listed_newest_first(bench: Bench) -> None:
    """Places are listed newest first, over all runs, each with its run, branch, number, trigger and time."""
    store = bench.open()
    branches = [Branch("run-2"), Branch("run-1"), Branch("run-1", "x/y")]
    expected = []
    for _ in range(3):
        for branch in branches:
            branch.add()
            place = branch.place()
            store.append([branch.commit()])
            expected.append(_info(branch, place))
    _same(store.places(), expected[::-1], "the listing is")


def places_are_found_by_a_part_of_their_id(bench: Bench) -> None:
    """`places(part)` lists the places whose id contains that text, and takes no character for a wildcard."""
    store, branch = bench.open(), Branch().add()
    places = [branch.place() for _ in range(3)]
    store.append([branch.commit()])
    for place in places:
        for part in (place["id"], place["id"][-8:]):
            _same([found.id for found in store.places(part)], [place["id"]], f"places({part!r}) gives")
    for part in ("", places[0]["id"][:4]):
        _same(len(store.places(part)), 3, f"places({part!r}) gives this many:")
    for part in ("*", "**", "?", "%", "_", "[0-9]", "[", "/", "..", "'", "no such id"):
        _same(store.places(part), [], f"places({part!r}) gives")


def dropped_places_are_gone(bench: Bench) -> None:
    """A place that an entry drops is listed no more and its ref names nothing; its journal stays."""
    store, branch = bench.open(), Branch().add()
    first, second = branch.place(), branch.place()
    store.append([branch.commit()])
    third = branch.place(drops=[first["id"]])
    store.append([branch.commit()])
    _same(store.places(), [_info(branch, third), _info(branch, second)], "the listing is")
    branch.add(drops=[[gone, None] for gone in (second["id"], third["id"], "never was")])
    store.append([branch.commit()])
    _same(store.places(), [], "the listing is")
    _journal_is(store, branch)
    for place in (first, second, third):
        with _raises(RefError, "the ref of a dropped place"):
            bench.find(store.ref(place))


def refs_name_places_from_anywhere(bench: Bench) -> None:
    """The ref of a place leads back to its run, its branch and itself, without a word about where it is kept."""
    store = bench.open()
    for branch in (Branch("run-1"), Branch("run-1", "x/y"), Branch("a.b_c-D")):
        branch.add()
        places = [branch.place(), branch.place()]
        store.append([branch.commit()])
        for place in places:
            ref = store.ref(place)
            found = locate(ref, "somewhere else", bench.provider, None)
            named = (found.run_id, found.branch, found.place)
            _same(named, (branch.run_id, branch.branch, place["id"]), f"{ref} names")
            _same(found.provider.name, bench.provider.name, f"{ref} is in the provider")
            _same(bench.find(place["id"][-8:]).place, place["id"], "the short form of an id names")


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
    branches[0].place()
    store.append([branches[0].commit()])
    expected = [_line(branch) for branch in reversed(branches)]
    _same(store.branches(), expected, "the listing is")
    _same(bench.find("latest").run_id, "run-0", "`latest` names")


def stores_of_one_location_see_each_other(bench: Bench) -> None:
    """What one store appended, another of the same location reads at once, goes on from, and does not write over."""
    one, two, branch = bench.open(), bench.open(), Branch().add(2)
    one.append([branch.commit()])
    _journal_is(two, branch)
    branch.place()
    late = branch.fork()
    two.append([branch.commit()])
    _journal_is(one, branch)
    _same(one.places(), two.places(), "the other one lists places as")
    _same(one.branches(), two.branches(), "the other one lists branches as")
    _conflicts(one, late.add(2).commit(), "from a store that did not hear of the last one")
    one.append([branch.add().commit()])
    two.append([branch.add(2).commit()])
    for store in (one, two, bench.open()):
        _journal_is(store, branch)


def what_is_stored_survives_closing(bench: Bench) -> None:
    """Closing a store and opening its location again keeps everything."""
    store, branch = bench.open(), Branch().add(2)
    place = branch.place()
    store.append([branch.commit(), (other := Branch("run-2", "x/y")).add(3).commit()])
    before = store.branches(), store.places()
    bench.close(store)
    again = bench.open()
    _journal_is(again, branch)
    _journal_is(again, other)
    _same((again.branches(), again.places()), before, "the listings are")
    _same(bench.find(again.ref(place)).place, place["id"], "the ref names")
    again.append([branch.add().commit()])
    _journal_is(again, branch)


def readers_see_only_whole_commits(bench: Bench) -> None:
    """Readers on any thread, at any moment of a write, see whole commits in order, and listings that do not fail."""
    writer, branch, ended = bench.open(), Branch(), threading.Event()
    problems: list[str] = []

    def read(store: Store) -> None:
        try:
            while not ended.is_set():
                problems.extend(_oddities(store, branch))
        except Exception as error:  # noqa: BLE001 - told by the law, not by a dying thread
            problems.append(f"a reader met {type(error).__name__}: {error}")

    readers = [threading.Thread(target=read, args=(store,)) for store in (writer, bench.open(), bench.open())]
    for reader in readers:
        reader.start()
    try:
        drops: list[str] = []
        for _ in range(25):
            branch.add(2)
            drops = [branch.place(drops=drops)["id"]]
            writer.append([branch.commit()])
    finally:
        ended.set()
        for reader in readers:
            reader.join()
    assert not problems, problems[0]
    _journal_is(writer, branch)


def any_usable_name_is_kept_apart(bench: Bench) -> None:
    """Every name that the rule for names allows can be stored and is kept apart from its likes."""
    store = bench.open()
    runs = [Branch(name).add() for name in ("a.b_c-D", "x" * 100, "0", "_", ".hidden", "x.json", "x.db", "main", "a_b")]
    names = ("main", "x", "x/y", "x/y/z", "xy", "x-y", "x.y", "a.b_c-D", "y" * 100, f"{'z' * 100}/{'z' * 100}")
    branches = [*runs, *(Branch("run-1", name).add() for name in names)]
    for branch in branches:
        branch.place()
        store.append([branch.commit()])
    for branch in branches:
        _journal_is(store, branch)
    _same(sorted((b.run_id, b.branch) for b in store.branches()), sorted((b.run_id, b.branch) for b in branches), "are")
    _same(len(store.places()), len(branches), "places are listed:")


def names_beyond_the_rule_are_refused(bench: Bench) -> None:
    """A name that the rule for names forbids is a ConfigError and leaves no trace."""
    store = bench.open()
    bad = ("", ".", "..", "../up", "a b", "a\n", "a\0b", "ü", "x" * 101, "-rf", "latest", "a\\b", "a:b", "a*")
    for run_id, branch in [
        *((name, "main") for name in (*bad, "a/b")),
        *(("run-1", name) for name in (*bad, "/x", "x/", "x//y", "x/../y", "x/latest")),
    ]:
        with _raises(ConfigError, f"an append to run {run_id!r}, branch {branch!r}"):
            store.append([Branch(run_id, branch).add().commit()])
    _same(store.branches(), [], "branches are listed:")


LAWS: tuple[Law, ...] = (
    a_provider_has_a_name_and_opens_locations,
    what_was_never_written_is_empty,
    entries_come_back_byte_for_byte,
    entries_keep_their_order,
    a_branch_that_moved_on_is_not_written_over,
    a_branch_is_made_once,
    trying_again_is_safe,
    trying_again_may_bring_more,
    several_branches_fit_in_one_append,
    a_refused_commit_leaves_the_others_whole,
    places_are_listed_newest_first,
    places_are_found_by_a_part_of_their_id,
    dropped_places_are_gone,
    refs_name_places_from_anywhere,
    branches_are_listed_newest_run_first,
    stores_of_one_location_see_each_other,
    what_is_stored_survives_closing,
    readers_see_only_whole_commits,
    any_usable_name_is_kept_apart,
    names_beyond_the_rule_are_refused,
)
"""What a store promises, in the order it is checked."""

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


def _info(branch: Branch, place: Facts) -> PlaceInfo:
    return place_info(branch.entries[0].facts["run"], place)


def _line(branch: Branch) -> BranchInfo:
    return branch_info(branch.entries[0])


def _journal_is(store: Store, branch: Branch) -> None:
    """Whether a store holds what was committed of a branch, and nothing else."""
    read, written = store.read(branch.run_id, branch.branch), branch.entries
    for number, (found, wanted) in enumerate(zip(read, written, strict=False), 1):
        same = (found.seq, found.sum, found.body, found.line) == (wanted.seq, wanted.sum, wanted.body, wanted.line)
        assert same, f"entry {number} was stored as {_short(wanted.line)} and is read as {_short(found.line)}"
        assert found.facts == wanted.facts, f"entry {number} says {_short(found.facts)}, not {_short(wanted.facts)}"
    assert len(read) == len(written), f"{len(written)} entries were stored and {len(read)} are read"


def _oddities(store: Store, branch: Branch) -> Iterator[str]:
    """What a reader meets that it never should, while commits of three entries arrive."""
    numbers = [entry.seq for entry in store.read(branch.run_id, branch.branch)]
    if numbers != list(range(1, len(numbers) + 1)) or len(numbers) % 3:
        yield f"a reader met entries {numbers[-3:]} at the end, and commits are of 3"
    later = [entry.seq for entry in store.read(branch.run_id, branch.branch)]
    if len(later) < len(numbers):
        yield f"a reader met {len(later)} entries after it had met {len(numbers)}"
    found = {info.run_id for info in store.branches()} | {place.run_id for place in store.places()}
    if found > {branch.run_id}:
        yield f"a listing names {sorted(found)}"


def _conflicts(store: Store, commit: Commit, how: str) -> None:
    with _raises(BranchConflictError, f"a commit {how}") as raised:
        store.append([commit])
    error = raised[0]
    assert isinstance(error, BranchConflictError)
    _same((error.run_id, error.branch), (commit.run_id, commit.branch), "the BranchConflictError names")


@contextlib.contextmanager
def _raises(wanted: type[Exception], what: str) -> Iterator[list[Exception]]:
    raised: list[Exception] = []
    try:
        yield raised
    except wanted as error:
        raised.append(error)
    except Exception as error:
        raise AssertionError(f"{what} raised {type(error).__name__}: {error}; wanted {wanted.__name__}") from error
    if not raised:
        raise AssertionError(f"{what} was accepted; wanted {wanted.__name__}")


def _same(found: object, wanted: object, what: str) -> None:
    assert found == wanted, f"{what} {_short(found)}, not {_short(wanted)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}…"
