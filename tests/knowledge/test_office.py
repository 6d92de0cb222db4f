"""Workbooks and documents are read by libraries, which are no dependency of crewlite."""

from __future__ import annotations

import sys
from datetime import date, datetime
from pathlib import Path

import pytest

from crewlite.errors import ConfigError, KnowledgeMissing
from crewlite.knowledge import FileKnowledgeSource


def read(name):
    """The passages of the file, without its name."""
    return [one.text for one in FileKnowledgeSource(file_paths=[name]).index.passages]


@pytest.mark.parametrize("name", ["a.xlsx", "a.XLSX"])
def test_the_rows_of_a_workbook_name_their_columns(name):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    ports = book.active
    ports.title = "Ports"
    ports.append(["port", "depth", None, "since"])
    ports.append([None])
    ports.append(["Brest", 7.1, None, date(2024, 1, 31)])
    ports.append(["Lorient", True, "=1/0", datetime(2024, 1, 31, 18)])
    book.create_sheet("Empty")
    book.create_sheet("One")["C2"] = 12
    book.save(name)
    assert read(name) == [
        "Ports\nport: Brest, depth: 7.1, , since: 2024-01-31\n"
        "port: Lorient, depth: True, , since: 2024-01-31 18:00:00\n\nOne\n, , 12"
    ]


def test_a_stray_cell_far_away_costs_nothing():
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active["A1"], book.active["C3"], book.active["B1048576"] = "port", 0, "far"
    book.save("a.xlsx")
    assert read("a.xlsx") == ["Sheet\nport: , , 0\nport: , far"]


def test_the_paragraphs_and_tables_of_a_document_in_order():
    docx = pytest.importorskip("docx")
    document = docx.Document()
    document.add_heading("Tides")
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip(
        (cell for row in table.rows for cell in row.cells), ["port", "high", "Brest", "noon"], strict=True
    ):
        cell.text = text
    document.add_paragraph("They turn.")
    document.save("a.docx")
    assert read("a.docx") == ["Tides\nport: Brest, high: noon\nThey turn."]


@pytest.mark.parametrize(("name", "module"), [("a.xlsx", "openpyxl"), ("a.docx", "docx")])
def test_a_damaged_file_is_told_when_its_source_is_made(name, module):
    pytest.importorskip(module)
    Path(name).write_bytes(b"PK")
    kind = {"a.xlsx": "workbook", "a.docx": "document"}[name]
    with pytest.raises(ConfigError, match=f"the knowledge file '{name}' is no {kind} that {module} can read: ."):
        FileKnowledgeSource(file_paths=[name])


def test_a_library_that_is_missing_is_told_with_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    Path("a.xlsx").write_bytes(b"PK")
    told = r"'a.xlsx' is a workbook, and openpyxl is not installed: pip install 'crewlite\[office\]'"
    with pytest.raises(ConfigError, match=told):
        FileKnowledgeSource(file_paths=["a.xlsx"])


def test_a_page_of_the_web_is_no_file():
    with pytest.raises(KnowledgeMissing, match="For a web page, write a KnowledgeSource whose load_content"):
        FileKnowledgeSource(file_paths=["https://example.com/tides"])


def test_the_sources_of_crewai_for_such_files_are_sources_of_files():
    from crewlite.knowledge.source.crew_docling_source import CrewDoclingSource
    from crewlite.knowledge.source.excel_knowledge_source import ExcelKnowledgeSource

    assert CrewDoclingSource is ExcelKnowledgeSource is FileKnowledgeSource
