"""The texts of files: plain text, CSV, JSON, Office, PDF. What a file is follows from its name, or its first bytes."""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
from collections.abc import Callable, Iterable
from datetime import datetime, time
from pathlib import Path
from typing import Any, NamedTuple

from crewlite.errors import ConfigError, KnowledgeMissing, text_of as words_of
from crewlite.texts.wording import an

FOLDER = Path("knowledge")
"""The folder of a project in which texts look for their files first."""


def located(path: str | Path) -> Path:
    """Return where a file is: for a text in the folder `knowledge`, else as the path says. Raises KnowledgeMissing."""
    ways = [FOLDER / path, Path(path)] if isinstance(path, str) else [path]
    for way in ways:
        if os.path.isfile(way):  # False for what no path can be, such as a long text
            return way
    directory = next((str(way) for way in ways if path and os.path.isdir(way)), None)
    raise KnowledgeMissing(str(path), [str(way) for way in dict.fromkeys(ways)], directory)


def text_of(path: Path) -> str:
    """Read a file. Raises ConfigError if it holds no text."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the knowledge file {str(path)!r} cannot be read: {error}") from None
    if library := _PDF if data.startswith(b"%PDF-") else _OFFICE.get(path.suffix.lower()):
        return library.text_of(path, data)
    try:
        text = data.decode("utf-8-sig")
        if path.suffix.lower() == ".json":
            return json.dumps(json.loads(text), indent=1, ensure_ascii=False)
        return _table(csv.reader(io.StringIO(text, newline=""))) if path.suffix.lower() == ".csv" else text
    except (ValueError, RecursionError, csv.Error) as error:
        kind = {".json": "JSON", ".csv": "CSV"}.get(path.suffix.lower(), "")
        wanted = f"{kind} in UTF-8" if kind else "UTF-8 text, CSV, JSON, PDF, XLSX or DOCX"
        raise ConfigError(f"the knowledge file {str(path)!r} cannot be read ({error}); wanted {wanted}") from None


def _table(rows: Iterable[list[str]]) -> str:
    """Return a line for each row, with the name of the column before each value, as a passage may begin anywhere."""
    head, *others = list(rows) or [[]]
    lines = (
        ", ".join(f"{name}: {value}" if name else value for name, value in zip(_long(head, row), row, strict=False))
        for row in others
    )
    return "\n".join(lines) if others else ", ".join(head)


def _long(head: list[str], row: list[str]) -> list[str]:
    return [*head, *[""] * (len(row) - len(head))]


class _Library(NamedTuple):
    """A library that reads files of one kind. It is no dependency of crewlite."""

    module: str
    kind: str
    extra: str
    """What `pip install 'crewlite[...]'` installs it with."""
    read: Callable[[Any, io.BytesIO], str]
    """Returns the text of a file, given the module."""

    def text_of(self, path: Path, data: bytes) -> str:
        """Return the text of a file. Raises ConfigError if the library is missing, or cannot read the file."""
        try:
            module: Any = importlib.import_module(self.module)
        except ImportError:
            found, how = f"{self.module} is not installed", f"pip install 'crewlite[{self.extra}]'"
            raise ConfigError(f"the knowledge file {str(path)!r} is {an(self.kind)}, and {found}: {how}") from None
        try:
            return self.read(module, io.BytesIO(data))
        except Exception as error:  # what a library raises for a damaged file is of many types
            problem = f"is no {self.kind} that {self.module} can read: {words_of(error)}"
            raise ConfigError(f"the knowledge file {str(path)!r} {problem}") from None


def _pages(pypdf: Any, file: io.BytesIO) -> str:
    return "\n\n".join(page.extract_text() for page in pypdf.PdfReader(file).pages)


def _sheets(openpyxl: Any, file: io.BytesIO) -> str:
    """Return the values of the cells, not their formulas, as tables below the names of the sheets."""
    found = []
    for sheet in openpyxl.load_workbook(file, read_only=True, data_only=True).worksheets:
        sheet.reset_dimensions()  # else each row is filled up to the last column of the sheet
        rows = [[*map(_shown, row)] for row in sheet.iter_rows(values_only=True) if any(one is not None for one in row)]
        if rows:
            found.append(f"{sheet.title}\n{_table(rows)}")
    return "\n\n".join(found)


def _shown(cell: object) -> str:
    if isinstance(cell, datetime) and cell.time() == time():  # a cell with a date alone
        return cell.date().isoformat()
    return "" if cell is None else str(cell)


def _paragraphs(docx: Any, file: io.BytesIO) -> str:
    """Return the paragraphs of a document, and its tables where they stand."""
    found = []
    for part in docx.Document(file).iter_inner_content():
        rows = [[cell.text for cell in row.cells] for row in part.rows] if hasattr(part, "rows") else None
        found.append(_table(rows) if rows else part.text)
    return "\n".join(found)


_PDF = _Library("pypdf", "PDF", "pdf", _pages)
_OFFICE = dict.fromkeys((".xlsx", ".xlsm"), _Library("openpyxl", "workbook", "office", _sheets)) | {
    ".docx": _Library("docx", "document", "office", _paragraphs)
}
"""By how the name of a file ends."""
