"""The texts of files: plain text, CSV, JSON, Office, PDF. What a file is follows from its name, or its first bytes."""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crewlite.errors import ConfigError, KnowledgeMissing
from crewlite.lazy import lazy

FOLDER = Path("knowledge")
"""The folder of a project in which texts look for their files first."""
_WORKBOOKS, _WRITTEN = (".xlsx", ".xlsm"), (".docx", ".pptx")

office = lazy("crewlite.knowledge.office")  # XML, which only these files need


def located(path: str | Path) -> Path:
    """Return where a file is: for a text in the folder `knowledge`, else as the path says. Raises KnowledgeMissing."""
    ways = [FOLDER / path, Path(path)] if isinstance(path, str) else [path]
    for way in ways:
        if os.path.isfile(way):  # False for what no path can be, such as a long text
            return way
    raise KnowledgeMissing(str(path), [str(way) for way in dict.fromkeys(ways)])


def text_of(path: Path) -> str:
    """Read a file. Raises ConfigError if it holds no text."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the knowledge file {str(path)!r} cannot be read: {error}") from None
    if data.startswith(b"%PDF-"):
        return _pdf(path, data)
    if path.suffix.lower() in (*_WORKBOOKS, *_WRITTEN):
        return _office(path, data)
    try:
        text = data.decode("utf-8-sig")
        if path.suffix.lower() == ".json":
            return json.dumps(json.loads(text), indent=1, ensure_ascii=False)
        return _table(csv.reader(io.StringIO(text, newline=""))) if path.suffix.lower() == ".csv" else text
    except (ValueError, RecursionError, csv.Error) as error:
        kind = {".json": "JSON", ".csv": "CSV"}.get(path.suffix.lower(), "")
        wanted = f"{kind} in UTF-8" if kind else "UTF-8 text, CSV, JSON, PDF, XLSX, DOCX or PPTX"
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


def _office(path: Path, data: bytes) -> str:
    suffix = path.suffix.lower()
    try:
        if suffix in _WRITTEN:
            text: str = office.paragraphs(data, suffix)
            return text
        return "\n\n".join(f"{name}\n{_table(rows)}" for name, rows in office.sheets(data) if rows)
    except office.DAMAGED as error:
        kind = suffix[1:].upper()
        raise ConfigError(f"the knowledge file {str(path)!r} is no {kind} that can be read: {error}") from None


def _pdf(path: Path, data: bytes) -> str:
    try:
        pypdf: Any = importlib.import_module("pypdf")  # no dependency of crewlite
    except ImportError:
        raise ConfigError(
            f"the knowledge file {str(path)!r} is a PDF, and pypdf is not installed: pip install 'crewlite[pdf]'"
        ) from None
    try:
        return "\n\n".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(data)).pages)
    except Exception as error:  # what pypdf raises for a damaged file is of many types
        raise ConfigError(f"the knowledge file {str(path)!r} is no PDF that pypdf can read: {error}") from None
