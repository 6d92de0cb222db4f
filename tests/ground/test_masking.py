"""Known secrets are masked in texts, however they are written, and in data, which keep their shape."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from crewlite.encoding.codec import decode, encode
from crewlite.texts.masking import MASK
from crewlite.texts.secrets import Secrets

KEY = "sk-0123456789"


@pytest.mark.parametrize("value", ['a"b\\c#9', "it's\\9", "schlüssel/9?", "'\"9\\9'"])
def test_a_secret_is_masked_as_json_and_python_and_an_address_write_it(value):
    secrets = Secrets([value])
    for text in (json.dumps([value]), json.dumps([value], ensure_ascii=False), repr(value), repr(f"'\"{value}")):
        assert secrets.mask(text).count(MASK) == 1
        assert "9" not in secrets.mask(text)
    assert secrets.mask(f"https://host/?q={quote(value, safe='')}&r") == f"https://host/?q={MASK}&r"


def test_the_longest_secret_is_masked_first():
    assert Secrets(["abcdef", "abcdefghi"]).mask("abcdefghi abcdef") == f"{MASK} {MASK}"


def test_masking_twice_changes_nothing_more():
    secrets = Secrets([KEY, "secret", "[secret"])
    once = f"the secret is {MASK}"
    assert secrets.mask(f"the secret is {KEY}") == secrets.mask(once) == once


@pytest.mark.parametrize("value", [UUID(int=7), Decimal("123456.789"), datetime(2026, 11, 21, tzinfo=UTC)])
def test_what_is_no_text_is_masked_as_a_whole_so_that_it_can_be_read(value):
    coded = encode({"held": value})
    masked = Secrets([coded["held"]["v"]]).mask_data(coded)
    assert decode(masked)["held"] == MASK


def test_a_path_with_a_secret_in_it_stays_a_path():
    assert decode(Secrets([KEY]).mask_data(encode(Path("run") / KEY))) == Path("run") / MASK


def test_data_keeps_its_shape():
    data = {"a": [1, 2.5, True, None, {"b": KEY}], "c": f"-{KEY}-"}
    assert Secrets([KEY]).mask_data(data) == {"a": [1, 2.5, True, None, {"b": MASK}], "c": f"-{MASK}-"}
    assert Secrets().mask_data(data) is data


@given(st.lists(st.text(min_size=6), min_size=1), st.text(), st.text())
def test_no_known_value_survives(values, before, after):
    secrets = Secrets(values)
    for value in values:
        if value not in MASK:
            shown = secrets.mask(before + value + after).split(MASK)
            assert len(shown) > 1
            assert not any(value in part for part in shown)


@given(
    st.lists(st.text("ab1", min_size=6, max_size=12), min_size=1, max_size=4),
    st.lists(st.text("ab1 ", max_size=9), max_size=12),
    st.randoms(use_true_random=False),
)
def test_a_text_that_comes_in_pieces_is_masked_as_the_whole_is(values, parts, chance):
    secrets, text = Secrets(values), "".join([*parts, chance.choice(values), *parts])
    cuts = sorted(chance.randrange(len(text)) for _ in range(chance.randrange(8)))
    held, shown = "", []
    for begin, end in pairwise([0, *cuts, len(text)]):
        held += text[begin:end]
        at = secrets.shown_of_beginning(held)
        shown.append(secrets.mask(held[:at]))
        held = held[at:]
    assert "".join(shown) + secrets.mask(held) == secrets.mask(text)


def test_a_counter_and_a_group_of_errors_are_masked_as_what_they_are():
    secrets = Secrets([KEY])
    assert secrets.mask_data(Counter({KEY: 2, "a": 1})) == Counter({MASK: 2, "a": 1})
    group = ExceptionGroup("two", [ValueError(f"no {KEY}"), OSError("disk")])
    assert secrets.mask_data(group) == f"ExceptionGroup('two', [ValueError('no {MASK}'), OSError('disk')])"
    harmless = ExceptionGroup("two", [ValueError("no")])
    assert secrets.mask_data(harmless) is harmless
    unshowable = ExceptionGroup("one", [Unshowable()])
    assert secrets.mask_data(unshowable) is unshowable


class Unshowable(Exception):
    def __repr__(self):
        raise AttributeError("no name yet")
