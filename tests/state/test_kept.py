"""The values after a commit, as a record holds them."""

from __future__ import annotations

import tracemalloc

from crewlite.state.format.kept import Kept


def changed_by(address, value):
    return {"steps": [{"address": address, "state": [["set", ["a"], value]]}]}


def allocated(kept, first):
    """The bytes that a commit of a step takes, the least of some: a table that has just grown takes more."""
    found = []
    for number in range(first, first + 8):
        tracemalloc.start()
        kept = kept.after(changed_by(f"step:{number}", number))
        found.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return min(found), kept


def test_what_a_commit_allocates_does_not_grow_with_the_steps_before_it():
    few, kept = allocated(Kept(), 0)
    for number in range(100, 3000):
        kept = kept.after(changed_by(f"step:{number}", number))
    many, kept = allocated(kept, 5000)
    assert many < 2 * few
    assert kept.values == {"a": 5007}


def test_values_after_different_commits_do_not_know_of_each_others_steps():
    before = Kept().after(changed_by("step:1", 1))
    one, other = before.after(changed_by("step:2", 2)), before.after(changed_by("step:3", 3))
    again = [kept.after(changed_by("step:3", 4)).values for kept in (before, one, other)]
    assert again == [{"a": 4}, {"a": 4}, {"a": 3}]  # a step that runs again changes nothing by itself
    assert before.after(changed_by("step:2", 5)).values == {"a": 5}
    assert before.after(changed_by("step:1", 5)).values == {"a": 1}
