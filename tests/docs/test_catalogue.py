"""The tables of the pages say what the classes say, and docs/cli-reference.md what `--help` says."""

from __future__ import annotations

import re

import click
import pytest
from catalogue import BEGIN, DOCS, END, TABLES, refreshed
from pages import ROOT

from crewlite.cli.main import main
from crewlite.events.registry import load


@pytest.mark.parametrize("page", TABLES)
def test_what_is_made_from_the_code_is_what_the_code_says(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    assert text == refreshed(page, text), "refresh it: python -m tests.docs.catalogue"


def test_no_event_is_missing():
    text = (DOCS / "event-types.md").read_text(encoding="utf-8")
    assert [name for name in load() if name not in text and name != "BaseEvent"] == []


def test_no_logger_is_missing():
    text = (DOCS / "logging.md").read_text(encoding="utf-8")
    code = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "crewlite").rglob("*.py"))
    loggers = set(re.findall(r"log = logging.getLogger\((.*?)\)", code))
    assert [name for name in sorted(loggers) if name.replace('"', "`") not in text] == []


def test_no_command_is_missing_and_each_says_what_it_does():
    text = (DOCS / "cli-reference.md").read_text(encoding="utf-8")
    waiting = [(main, click.Context(main, info_name="crewlite"))]
    for command, ctx in waiting:
        assert f"## {ctx.command_path}\n" in text
        assert command.help, ctx.command_path
        assert [
            p.name for p in command.params if isinstance(p, click.Option) and not p.help and p.name != "model"
        ] == []
        if isinstance(command, click.Group):
            below = [(command.get_command(ctx, name), name) for name in command.list_commands(ctx)]
            waiting += [(sub, click.Context(sub, info_name=name, parent=ctx)) for sub, name in below]


def _links(text: str) -> list[str]:
    return re.findall(r"\]\(\.\./(tests/[^)]+)\)", text)


def test_each_row_about_crewai_links_a_test_that_is_there():
    table = (
        (DOCS / "crewai-names.md").read_text(encoding="utf-8").partition("## What the tests show")[2].partition("##")[0]
    )
    rows = table.strip().splitlines()[2:]
    assert len(rows) > 60
    assert [row for row in rows if not _links(row)] == []
    assert [name for name in _links(table) if not (ROOT / name).is_file()] == []


def test_each_promise_names_a_test_that_is_there():
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (DOCS / "promises.md").read_text(encoding="utf-8"))
    assert len(named) > 12
    for file, test in named:
        assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{test}"
