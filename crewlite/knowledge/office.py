"""The texts of Office files, which are zipped XML: the rows of a workbook, the paragraphs of a document or slides."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from xml.etree.ElementTree import Element, ParseError, fromstring
from zipfile import BadZipFile, ZipFile

DAMAGED = (BadZipFile, ParseError, KeyError, IndexError, ValueError, OverflowError, NotImplementedError, RuntimeError)
"""What is raised for a file that is no such file, or that has a password."""
_WRITTEN = {".docx": re.compile(r"word/document\.xml"), ".pptx": re.compile(r"ppt/slides/slide(\d+)\.xml")}
"""The parts of a file that hold its paragraphs, by how the name of the file ends."""
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_USUAL_DATES = frozenset((*range(14, 23), 45, 46, 47))
"""The numbers of the formats of dates and times that no workbook declares itself."""
_NO_LETTERS_OF_DATES = re.compile(r'"[^"]*"|\\.|\[[^]]*]|general', re.IGNORECASE)


def paragraphs(data: bytes, suffix: str) -> str:
    """Return the text of a document, or of slides in order, a line for each paragraph. Raises DAMAGED."""
    with ZipFile(io.BytesIO(data)) as parts:
        found = {name: match for name in parts.namelist() if (match := _WRITTEN[suffix].fullmatch(name))}
        names = sorted(found, key=lambda name: [int(number) for number in found[name].groups()])
        if not names:
            raise KeyError(f"it has no part {_WRITTEN[suffix].pattern}")
        return "\n".join(_text(one) for name in names for one in _root(parts, name).iterfind(".//{*}p"))


def sheets(data: bytes) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the name and the rows of each sheet of a workbook, without empty rows. Raises DAMAGED."""
    with ZipFile(io.BytesIO(data)) as parts:
        book = _root(parts, "xl/workbook.xml")
        cells = _Cells(parts, book)
        targets = {one.get("Id"): one.get("Target", "") for one in _root(parts, "xl/_rels/workbook.xml.rels")}
        for sheet in book.iterfind(".//{*}sheet"):
            target = targets[sheet.get(_RELATION)]
            part = target[1:] if target.startswith("/") else f"xl/{target}"
            rows = (cells.of_row(row) for row in _root(parts, part).iterfind(".//{*}row"))
            yield sheet.get("name", ""), [row for row in rows if any(row)]


class _Cells:
    """What the cells of a workbook show: texts and formats stand in parts of their own."""

    def __init__(self, parts: ZipFile, book: Element) -> None:
        named = set(parts.namelist())
        texts = _root(parts, "xl/sharedStrings.xml") if "xl/sharedStrings.xml" in named else ()
        self._texts = [_text(one) for one in texts]
        styles = _root(parts, "xl/styles.xml") if "xl/styles.xml" in named else Element("styleSheet")
        own = {one.get("numFmtId"): one.get("formatCode", "") for one in styles.iterfind("{*}numFmts/{*}numFmt")}
        formats = [one.get("numFmtId", "0") for one in styles.iterfind("{*}cellXfs/{*}xf")]
        self._are_dates = [_is_of_dates(own[one]) if one in own else int(one) in _USUAL_DATES for one in formats]
        since_1904 = any(one.get("date1904") in ("1", "true") for one in book.iterfind("{*}workbookPr"))
        self._first_day = datetime(1904, 1, 1) if since_1904 else datetime(1899, 12, 30)  # as if 1900 had a 29 February

    def of_row(self, row: Element) -> list[str]:
        """Return the texts of a row, "" for a cell that it leaves out."""
        texts = list[str]()
        for cell in row.iterfind("{*}c"):
            column = _number(cell.get("r", "")) or len(texts) + 1
            texts += [""] * (column - len(texts) - 1)
            texts.append(self._shown(cell))
        return texts

    def _shown(self, cell: Element) -> str:
        kind, value = cell.get("t", "n"), cell.findtext("{*}v", "")
        if kind == "inlineStr":
            return _text(cell)
        if kind == "s":
            return self._texts[int(value)]
        if kind == "b":
            return str(value == "1")
        if kind != "n" or not value:
            return value
        style = int(cell.get("s", "0"))
        if style < len(self._are_dates) and self._are_dates[style]:
            return self._date(float(value))
        return f"{float(value):.15g}"  # what was typed: 0.1 is kept as 0.10000000000000001

    def _date(self, days: float) -> str:
        moment = self._first_day + timedelta(seconds=round(days * 86400))
        if days < 1:
            return f"{moment:%H:%M:%S}"
        return f"{moment:%Y-%m-%d}" if days == int(days) else f"{moment:%Y-%m-%d %H:%M:%S}"


def _root(parts: ZipFile, name: str) -> Element:
    data = parts.read(name)
    if b"<!DOCTYPE" in data:  # Office writes none, and the entities that it can declare may fill the memory
        raise ValueError(f"{name} declares a document type")
    return fromstring(data)  # noqa: S314 - there are no entities in it


def _text(element: Element) -> str:
    """Return the text in an element, without how it is pronounced."""
    if element.tag.endswith("}rPh"):
        return ""
    own = (element.text or "") if element.tag.endswith("}t") else "\t" if element.tag.endswith("}tab") else ""
    return own + "".join(map(_text, element))


def _number(cell: str) -> int:
    """Return the number of the column of a cell: 28 for `AB7`."""
    number = 0
    for letter in cell.rstrip("0123456789"):
        number = number * 26 + ord(letter.upper()) - 64
    return number


def _is_of_dates(code: str) -> bool:
    return bool(re.search("[dmyhs]", _NO_LETTERS_OF_DATES.sub("", code), re.IGNORECASE))
