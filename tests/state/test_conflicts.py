"""A store that refuses a write says truly what it found in the branch's place, and what to do next."""

from __future__ import annotations

import re

import pytest

from crewlite.errors import BranchConflictError
from crewlite.testing.bench import Branch
from tests.parts import PROVIDERS


@pytest.fixture(params=PROVIDERS.values(), ids=PROVIDERS)
def store(request, tmp_path):
    opened = request.param().open(str(tmp_path / "kept"))
    yield opened
    opened.close()


def heads(branch):
    return {branch.branch: (branch.entries[-1].seq, branch.entries[-1].sum)}


def refused(act, *args):
    with pytest.raises(BranchConflictError) as found:
        act(*args)
    return str(found.value)


GONE = r"Branch 'main' of run 'run-1' does not exist.*Nothing was written to it.*run_id='run-1'"


def test_a_commit_to_a_run_that_was_deleted_says_so(store):
    branch = Branch().add(2)
    store.append([branch.commit()])
    store.remove("run-1", heads(branch))
    assert re.match(GONE, refused(store.append, [branch.add().commit()]))


def test_a_commit_to_a_run_that_was_deleted_says_so_beside_other_runs(store):
    branch = Branch().add(2)
    store.append([branch.commit(), Branch("run-2").add().commit()])
    store.remove("run-1", heads(branch))
    assert re.match(GONE, refused(store.append, [branch.add().commit()]))


def test_a_commit_to_a_fork_that_does_not_exist_says_to_fork_again(store):
    branch = Branch().add(2)
    store.append([branch.commit()])
    fork = branch.forked("side", 2).add()
    fork.commit()
    said = refused(store.append, [fork.add().commit()])
    assert re.match(r"Branch 'side' of run 'run-1' does not exist.*[Ff]ork the run again", said)


def test_rewriting_and_deleting_a_run_that_was_deleted_say_so(store):
    branch = Branch().add(2)
    store.append([branch.commit()])
    store.remove("run-1", heads(branch))
    assert re.match(GONE, refused(store.rewrite, "run-1", "main", branch.entries, branch.entries))
    assert re.match(GONE, refused(store.remove, "run-1", heads(branch)))


def test_a_fork_whose_base_is_gone_says_so(store):
    branch = Branch().add(3)
    fork = branch.forked("side", 3).add().commit()
    store.append([branch.part(0, 2)])
    said = refused(store.append, [fork])
    assert re.match(r"Branch 'side' of run 'run-1' was not created.*commit 3 of 'main'.*[Ff]ork again", said)


def test_a_rewrite_that_takes_the_base_of_a_fork_names_the_fork(store):
    branch = Branch().add(4)
    store.append([branch.commit(), branch.forked("side", 3).add().commit()])
    said = refused(store.rewrite, "run-1", "main", branch.entries, branch.entries[:1])
    assert re.match(r"Branch 'main' of run 'run-1' was not rewritten.*'side' is forked from.*again", said)


def test_a_branch_that_moved_is_told_by_its_numbers(store):
    branch = Branch().add(2)
    store.append([branch.commit()])
    mine = branch.twin().add()
    store.append([branch.add(2).commit()])
    said = refused(store.append, [mine.commit()])
    assert said.startswith("Branch 'main' of run 'run-1' is at commit 4, and commit 2 was expected:")


def test_a_rewrite_of_other_entries_says_that_they_are_others(store):
    branch, other = Branch().add(2), Branch().add(2)
    store.append([branch.commit()])
    said = refused(store.rewrite, "run-1", "main", other.entries, other.entries)
    assert said.startswith("Branch 'main' of run 'run-1' holds another commit 2 than was expected:")


def test_a_run_that_exists_is_not_created_again(store):
    store.append([Branch().add(2).commit()])
    said = refused(store.append, [Branch().add().commit()])
    assert said.startswith("Branch 'main' of run 'run-1' is at commit 2, and was expected not to exist yet:")


def test_a_run_that_gained_a_branch_is_not_deleted(store):
    branch = Branch().add(2)
    store.append([branch.commit(), branch.forked("side", 2).add().commit()])
    said = refused(store.remove, "run-1", heads(branch))
    assert said.startswith("Branch 'side' of run 'run-1' is at commit 3, and was expected not to exist yet:")
    assert store.read("run-1", "main") == branch.entries
