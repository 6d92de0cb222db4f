"""The tables in docs/events.md and docs/errors.md say what the classes say."""

from __future__ import annotations

import pytest
from catalogue import BEGIN, DOCS, END, TABLES, refreshed

from crewlite.events.registry import load


@pytest.mark.parametrize("page", TABLES)
def test_a_table_is_what_the_classes_say(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    assert text == refreshed(page, text), "refresh it: python -m tests.docs.catalogue"


def test_no_event_is_missing():
    text = (DOCS / "events.md").read_text(encoding="utf-8")
    assert [name for name in load() if name not in text] == []
