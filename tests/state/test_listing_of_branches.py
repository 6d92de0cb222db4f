"""A line of a listing is built from the beginning of a journal's first entry, without parsing all of it."""

from __future__ import annotations

import pytest

from crewlite.encoding.codec import dumps
from crewlite.errors import SchemaTooNew
from crewlite.state.format.entry import InvalidEntry, seal, start_of
from crewlite.state.providers.reading import branch_info, verified_branch_info
from crewlite.testing.bench import Branch


def first_of(**names):
    return Branch("run-1", **names).add().entries[0]


def resealed(first, **changes):
    return seal({**first.commit, **changes}, after="")


def line(entry, run_id="run-1", branch="main"):
    return verified_branch_info(entry.body, entry.seal, run_id, branch, "here")


PLAIN = first_of(name="Ünïcode report")
BACKWARDS = seal(dict(reversed(PLAIN.commit.items())), after="")
FORK = Branch("run-1").add(2).forked("try", 2).add().entries[0]


@pytest.mark.parametrize(
    ("entry", "short"),
    [
        (PLAIN, True),
        (first_of(name=""), True),
        (first_of(name='a "quoted" name'), False),
        (resealed(PLAIN, run={**PLAIN.commit["run"], "inputs": {"base": 1}}), False),
        (resealed(PLAIN, run={**PLAIN.commit["run"], "inputs": {"topic": '"base":"folded":'}}), True),
        (BACKWARDS, False),
    ],
)
def test_the_line_is_that_of_the_parsed_entry(entry, short):
    assert line(entry) == branch_info(entry)
    assert (start_of(entry.body, entry.seal) is not None) is short


def test_a_fork_is_listed_with_its_base():
    assert line(FORK, branch="try") == branch_info(FORK)
    assert line(FORK, branch="try").base["branch"] == "main"


@pytest.mark.parametrize("part", [b"tides", b"check", b"run-1"])
def test_a_changed_byte_anywhere_in_the_entry_is_noticed(part):
    first = first_of()
    assert part in first.body
    with pytest.raises(InvalidEntry):
        verified_branch_info(first.body.replace(part, part[::-1]), first.seal, "run-1", "main", "here")


@pytest.mark.parametrize(("run_id", "branch"), [("run-2", "main"), ("run-1", "other")])
def test_the_journal_of_another_branch_is_refused(run_id, branch):
    with pytest.raises(InvalidEntry, match="belongs to branch 'main' of run 'run-1'"):
        line(PLAIN, run_id, branch)


def test_what_a_later_crewlite_wrote_is_named_as_such():
    newer = resealed(PLAIN, schema=2)
    assert newer.body == dumps(newer.commit)
    with pytest.raises(SchemaTooNew):
        line(newer)


@pytest.mark.parametrize("body", [None, "text", b"", b"{}"])
def test_a_value_of_another_type_is_refused(body):
    with pytest.raises(InvalidEntry):
        verified_branch_info(body, "0" * 32, "run-1", "main", "here")
