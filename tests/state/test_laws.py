"""The built-in providers keep the law that everybody's do, and the law catches those that do not."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter

import pytest

from crewlite.errors import BranchConflictError, StoreError
from crewlite.state import InMemoryProvider
from crewlite.state.format.entry import seal
from crewlite.state.journal.lineage import find_lineage
from crewlite.testing import check_provider
from crewlite.testing.laws import LAWS, check_law
from tests.parts import PROVIDERS

from .wrapped import Unchanging


@pytest.fixture(params=PROVIDERS.values(), ids=PROVIDERS)
def make(request, tmp_path):
    fresh = itertools.count()
    return lambda: (request.param(), str(tmp_path / f"store-{next(fresh)}"))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_built_in_providers_keep_the_law(law, make):
    check_law(law, make)


def test_whoever_only_looks_leaves_a_store_as_it_was(make):
    looked = Counter()
    for law in LAWS:
        provider, location = make()
        unchanging = Unchanging(provider)
        check_law(law, lambda unchanging=unchanging, location=location: (unchanging, location))
        looked += unchanging.looked
    assert all(looked[verb] > 10 for verb in ("read", "sum_at", "touched", "branches", "places")), looked


# A kit that passes everything proves nothing: providers broken on purpose are caught.


class Broken:
    """Wraps the reference provider; subclasses break one thing."""

    name = "broken"

    def __init__(self):
        self._inner = InMemoryProvider()

    def open(self, location):
        self._store = self._inner.open(location)
        return self

    def __getattr__(self, name):
        return getattr(self._store, name)


class Forgetful(Broken):
    def open(self, location):
        self._inner = InMemoryProvider()
        return self._inner.open(location)


class Shuffled(Broken):
    def read(self, run_id, branch):
        return self._store.read(run_id, branch)[::-1]


class Reserialised(Broken):
    def read(self, run_id, branch):
        return [seal({**e.commit, "steps": None}, after="") for e in self._store.read(run_id, branch)]


class Overwriting(Broken):
    def append(self, commits):
        for commit in commits:
            try:
                self._store.append([commit])
            except BranchConflictError:
                self._store._journals.setdefault((commit.run_id, commit.branch), []).extend(commit.entries)


class Silent(Broken):
    def append(self, commits):
        for commit in commits:
            try:
                self._store.append([commit])
            except BranchConflictError:
                pass


class Impatient(Broken):
    def append(self, commits):
        for commit in commits:
            if self._store.read(commit.run_id, commit.branch)[-1:] == [commit.entries[-1]]:
                raise BranchConflictError(commit.run_id, commit.branch, expected=0, found=1)
        self._store.append(commits)


class OldestFirst(Broken):
    def places(self, part="", **page):
        return self._store.places(part, **page)[::-1]


class WildCards(Broken):
    def places(self, part="", **page):
        return self._store.places(part.replace("*", "").replace("%", ""), **page)


class OnePage(Broken):
    def places(self, part="", *, limit=None, before=None):
        return self._store.places(part) if before is None else []


class Undead(Broken):
    def places(self, part="", **page):
        found = [e.commit["place"] for j in self._store._journals.values() for e in j if "place" in e.commit]
        there = self._store.places(part, **page)
        return [*there, *(p for p in found if not page and p["id"] not in {x.id for x in self._store.places()})]


class ByName(Broken):
    def branches(self, run_id=None):
        return sorted(self._store.branches(run_id), key=lambda info: info.run_id)


class AllRuns(Broken):
    def branches(self, run_id=None):
        return [info for info in self._store.branches() if run_id is None or info.run_id.startswith(run_id)]


class Private(Broken):
    def ref(self, checkpoint):
        return f"{self._store.location}#{checkpoint['id'][:2]}"


class Copying(Broken):
    def read(self, run_id, branch):
        return find_lineage(self._store, run_id, branch).entries


class Baseless(Broken):
    def append(self, commits):
        for commit in commits:
            try:
                self._store.append([commit])
            except BranchConflictError:
                key = commit.run_id, commit.branch
                if not commit.run or not commit.run.get("base") or key in self._store._journals:
                    raise
                self._store._journals[key] = list(commit.entries)


class Piecemeal(Broken):
    def append(self, commits):
        for commit in commits:
            self._store.append([commit])


class Deep(Broken):
    def sum_at(self, run_id, branch, seq):
        found = {e.seq: e.sum for name in ("main", branch) for e in self._store.read(run_id, name)}
        return found.get(seq)


class Sealed(Broken):
    def sum_at(self, run_id, branch, seq):
        return next((e.seal for e in self._store.read(run_id, branch) if e.seq == seq), None)


class Lifeless(Broken):
    def append(self, commits):
        self._store.append([commit for commit in commits if commit.entries])


class Haunted(Broken):
    def append(self, commits):
        for commit in commits:
            if not commit.entries:
                self._store._touched[commit.run_id, commit.branch] = time.time()
        self._store.append([commit for commit in commits if commit.entries])


class Mindful(Broken):
    """What is read is where it goes on, as another thread may do at any moment."""

    def read(self, run_id, branch):
        found = self._store.read(run_id, branch)
        self._seen = {**getattr(self, "_seen", {}), (run_id, branch): [entry.seal for entry in found]}
        return found

    def append(self, commits):
        for commit in commits:
            seen = getattr(self, "_seen", {}).pop((commit.run_id, commit.branch), None)
            there = self._store.read(commit.run_id, commit.branch)
            if seen and seen != [entry.seal for entry in there][: len(seen)]:
                raise BranchConflictError(commit.run_id, commit.branch, expected=0, found=0)
        self._store.append(commits)


class Fidgety(Broken):
    def rewrite(self, run_id, branch, own, entries):
        self._store.rewrite(run_id, branch, own, entries)
        self._store._touched[run_id, branch] = time.time()


class Unread(Broken):
    def rewrite(self, run_id, branch, own, entries):
        pass


class Headless(Broken):
    def rewrite(self, run_id, branch, own, entries):
        self._store.rewrite(run_id, branch, self._store.read(run_id, branch), entries)


class HeadAlone(Broken):
    def rewrite(self, run_id, branch, own, entries):
        found = self._store.read(run_id, branch)
        same = found and own and found[-1].sum == own[-1].sum
        self._store.rewrite(run_id, branch, found if same else own, entries)


class Uprooting(Broken):
    def rewrite(self, run_id, branch, own, entries):
        if not own or self._store.read(run_id, branch) != list(own):
            raise BranchConflictError(run_id, branch, expected=0, found=0)
        self._store._journals[run_id, branch] = list(entries)


class Trusting(Broken):
    def rewrite(self, run_id, branch, own, entries):
        try:
            self._store.rewrite(run_id, branch, own, entries)
        except StoreError:
            self._store._journals[run_id, branch] = list(entries)


class Halfway(Broken):
    def rewrite(self, run_id, branch, own, entries):
        self._store.rewrite(run_id, branch, own, entries)
        journal = self._store._journals[run_id, branch]
        self._store._journals[run_id, branch] = journal[:1]
        time.sleep(0.005)
        self._store._journals[run_id, branch] = journal


class Lingering(Broken):
    def remove(self, run_id, heads):
        forks = {key: journal for key, journal in self._store._journals.items() if key[1] != "main"}
        self._store.remove(run_id, heads)
        self._store._journals.update(forks)


class Rash(Broken):
    def remove(self, run_id, heads):
        for key in [key for key in self._store._journals if key[0] == run_id]:
            del self._store._journals[key], self._store._touched[key]


class BrokenResults(Broken):
    """The same around what it keeps for other runs."""

    @property
    def results(self):
        self._results = self._store.results
        return self

    def recall(self, key):
        return self._results.recall(key)

    def remember(self, key, data):
        self._results.remember(key, data)

    def forget(self, before, *, dry_run=False):
        return self._results.forget(before, dry_run=dry_run)


class FirstWins(BrokenResults):
    def remember(self, key, data):
        if self._results.recall(key) is None:
            self._results.remember(key, data)


class Ephemeral(Broken):
    def open(self, location):
        super().open(location)
        self._store.results.forget(time.time() + 60)
        return self


class OfARun(Broken):
    def remove(self, run_id, heads):
        self._store.remove(run_id, heads)
        self._store.results.forget(time.time() + 60)


class Eager(BrokenResults):
    def forget(self, before, *, dry_run=False):
        return self._results.forget(before)


class Hoarding(BrokenResults):
    def forget(self, before, *, dry_run=False):
        return self._results.forget(before, dry_run=True)


class Torn(BrokenResults):
    looked = threading.Event()

    def recall(self, key):
        found = super().recall(key)
        self.looked.set()
        return found

    def remember(self, key, data):
        self._results.remember(key, data[: len(data) // 2])
        self.looked.clear()
        self.looked.wait(0.2)  # until a reader has met it; none does before the others have begun
        self._results.remember(key, data)


class OneEntryAtATime(Broken):
    def append(self, commits):
        for commit in commits:
            after, total = commit.after, commit.after_sum
            for entry in commit.entries:
                step = type(commit)(commit.run_id, commit.branch, after, total, (entry,))
                self._store.append([step])
                self.read("somebody", "reads")
                after, total = entry.seq, entry.sum
                for _ in range(200):
                    os.sched_yield() if hasattr(os, "sched_yield") else None


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (Forgetful, "stored already is no error"),
        (Shuffled, "read is what was appended|every byte"),
        (Reserialised, "every byte"),
        (Overwriting, "without effect"),
        (Silent, "BranchConflictError"),
        (Impatient, "stored already is no error"),
        (OldestFirst, "newest first"),
        (WildCards, "wildcard"),
        (OnePage, "next page"),
        (Undead, "drops"),
        (ByName, "newest run first"),
        (AllRuns, "of that run alone"),
        (Private, "leads back"),
        (Copying, "its own entries"),
        (Baseless, "another sum, is a BranchConflictError"),
        (Piecemeal, "all of them are there then, or none"),
        (Deep, "its own entries|own entries only"),
        (Sealed, "what the next entry is chained to"),
        (Lifeless, "`touched` is the time"),
        (Haunted, "`touched` is the time"),
        (Mindful, "from which all who write it go on|leaves it to those who write"),
        (Fidgety, "same head in a journal's place.*sign of life"),
        (Unread, "compacted|same head in a journal's place"),
        (Headless, "not as it was read"),
        (HeadAlone, "not as it was read"),
        (Trusting, "account for all the old ones"),
        (Uprooting, "a fork would lose its base"),
        (Halfway, "as it was or as it is then"),
        (Lingering, "takes a run away"),
        (Rash, "not exactly at these heads"),
        (FirstWins, "last remembered under it"),
        (Ephemeral, "last remembered under it|opened after"),
        (OfARun, "stays when runs are removed"),
        (Eager, "a rehearsal only counts it"),
        (Hoarding, "takes away what was last remembered"),
        (Torn, "one of them has it, whole"),
        (OneEntryAtATime, "whole commits|without effect|law"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_broken_provider_is_caught_by_a_sentence_that_names_the_law(broken, law):
    with pytest.raises(AssertionError, match=law):
        check_provider(lambda: (broken(), "store"))


class Resultless(Broken):
    """One that keeps nothing for other runs, and need not."""

    results = None


def test_a_provider_that_keeps_no_results_for_other_runs_keeps_the_other_laws():
    fresh = itertools.count()
    check_provider(lambda: (Resultless(), f"store-{next(fresh)}"))


def test_an_object_that_is_no_provider_is_caught():
    with pytest.raises(AssertionError, match="breaks a law"):
        check_provider(lambda: (object(), "store"))
