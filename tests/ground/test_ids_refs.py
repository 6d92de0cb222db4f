"""Identifiers that sort, texts that name places."""

from __future__ import annotations

import threading
import uuid
from datetime import UTC, timedelta

import pytest
from hypothesis import given, strategies as st

from crewlite.errors import ConfigError, RefError
from crewlite.ids import new_id, now, short
from crewlite.refs import Ref, check_name, parse

# Ids


def test_ids_of_one_process_sort_by_the_time_they_were_made():
    ids = [new_id() for _ in range(20_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("stamp", ["7fffffffffff7000", "0123456789ab7fff", "ffffffffffff7ffe"])
def test_an_id_that_follows_another_sorts_behind_it_whatever_its_time(stamp):
    after = stamp + "bfffffffffffffff"
    assert new_id(after) > after
    assert new_id("f" * 32)[:16] == "ffffffffffff7fff"
    assert new_id() < new_id()


def test_ids_made_on_many_threads_are_all_different_and_sorted_on_each():
    made: list[list[str]] = [[] for _ in range(8)]
    threads = [threading.Thread(target=lambda mine=mine: mine.extend(new_id() for _ in range(2_000))) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in made)
    assert len({i for mine in made for i in mine}) == 16_000


def test_an_id_is_a_uuid_of_version_7_that_tells_its_time():
    made = uuid.UUID(new_id())
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert abs((made.int >> 80) / 1000 - now().timestamp()) < 60


def test_the_short_form_is_the_last_eight_characters_and_differs():
    ids = [new_id() for _ in range(1_000)]
    assert short("0123456789abcdef") == "89abcdef"
    assert len({short(i) for i in ids}) == len(ids)


def test_times_are_aware_and_in_utc():
    assert now().tzinfo is UTC
    assert now().utcoffset() == timedelta(0)


# Names

GOOD = ["a", "report-42", "a.b_c-D", "x" * 100, "0", "_", ".hidden", "a.", "latest2", "Latest"]
BAD = [
    "",
    ".",
    "..",
    "a..b",
    "a b",
    "a\n",
    "\na",
    "a\0",
    "ü",
    "x" * 101,
    "-rf",
    "latest",
    "a\\b",
    "a:b",
    "a*",
    "a@b",
    "a~1",
    "a#b",
]


@pytest.mark.parametrize("name", GOOD)
def test_a_usable_name_is_given_back(name):
    assert check_name("run_id", name) == name
    assert check_name("branch", f"{name}/{name}", slashes=True) == f"{name}/{name}"


@pytest.mark.parametrize("name", [42, None, b"a"])
def test_a_name_that_is_no_text_is_told_so(name):
    for kind, slashes in (("run_id", False), ("branch", True)):
        with pytest.raises(ConfigError, match=f"{kind} is .* which is {type(name).__name__}; wanted a text"):
            check_name(kind, name, slashes=slashes)


@pytest.mark.parametrize("name", [*BAD, "a/b", "/"])
def test_a_name_beyond_the_rule_is_refused_with_the_rule(name):
    with pytest.raises(ConfigError, match=r"run_id .* Wanted: 1 to 100 of A-Z a-z 0-9"):
        check_name("run_id", name)


@pytest.mark.parametrize("name", [*BAD, "/a", "a/", "a//b", "a/../b", "a/latest", "/"])
def test_a_branch_may_have_parts_but_each_follows_the_rule(name):
    with pytest.raises(ConfigError, match="parts joined by /"):
        check_name("branch", name, slashes=True)


@given(st.text(max_size=8))
def test_no_name_that_passes_can_leave_its_folder(name):
    try:
        check_name("branch", name, slashes=True)
    except ConfigError:
        return
    assert not name.startswith("/")
    assert ".." not in name
    assert name.isascii()
    assert name.isprintable()


# Refs


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("main", Ref("main")),
        ("report-42/main", Ref("report-42/main")),
        ("run/x/y", Ref("run/x/y")),
        ("latest", Ref("latest")),
        ("latest~2", Ref("latest", None, 2)),
        ("c0ffee42", Ref("c0ffee42")),
        ("main@task:write", Ref("main", "task:write")),
        ("run/main@task:write/llm#2~3", Ref("run/main", "task:write/llm#2", 3)),
        ("@label:before the storm", Ref("latest", "label:before the storm")),
        ("@c0ffee42~1", Ref("latest", "c0ffee42", 1)),
        ("  main  ", Ref("main")),
    ],
)
def test_a_ref_is_taken_apart(text, ref):
    assert parse(text) == ref


@pytest.mark.parametrize(
    "text", ["", " ", "~", "~1", "main~", "main~x", "main~-1", "main@", "@", "main~1@task:x", "a~1~2"]
)
def test_what_is_no_ref_is_refused_with_what_one_looks_like(text):
    with pytest.raises(RefError, match=r"wanted \[run/\]branch"):
        parse(text)


@given(st.text(max_size=30))
def test_any_text_is_a_ref_or_a_ref_error(text):
    try:
        ref = parse(text)
    except RefError:
        return
    assert ref.path
    assert ref.back >= 0
