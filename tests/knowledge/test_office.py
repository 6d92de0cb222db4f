"""Office files are read without a library: the rows of workbooks, the paragraphs of documents and slides."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from crewlite.errors import ConfigError, KnowledgeMissing
from crewlite.knowledge import FileKnowledgeSource

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
TEXT = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
SLIDE = "http://schemas.openxmlformats.org/drawingml/2006/main"


def packed(name, parts):
    """Write a file of these parts."""
    with zipfile.ZipFile(name, "w") as made:
        for part, text in parts.items():
            made.writestr(part, text)


def workbook(name, *sheets, texts=(), styles="", settings="", target="worksheets/sheet{}.xml"):
    """Write a workbook with these rows of cells, as XML, in its sheets."""
    listed = "".join(f'<sheet name="Sheet {n}" r:id="r{n}"/>' for n in range(1, len(sheets) + 1))
    found = "".join(f'<Relationship Id="r{n}" Target="{target.format(n)}"/>' for n in range(1, len(sheets) + 1))
    parts = {
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{RELATIONS}">{settings}<sheets>{listed}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="x">{found}</Relationships>',
    }
    if texts:
        parts["xl/sharedStrings.xml"] = f'<sst xmlns="{MAIN}">{"".join(f"<si>{text}</si>" for text in texts)}</sst>'
    if styles:
        parts["xl/styles.xml"] = f'<styleSheet xmlns="{MAIN}">{styles}</styleSheet>'
    for number, rows in enumerate(sheets, 1):
        parts[f"xl/worksheets/sheet{number}.xml"] = (
            f'<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData></worksheet>'
        )
    packed(name, parts)


def read(name):
    """The passages of the file, without its name."""
    return [one.text for one in FileKnowledgeSource(file_paths=[name]).index.passages]


def test_the_rows_of_a_workbook_name_their_columns_and_show_what_its_cells_show():
    texts = ["<t>port</t>", "<r><t>Bre</t></r><r><t>st</t></r><rPh><t>brest</t></rPh>", "<t>depth</t>", "<t>since</t>"]
    styles = (
        '<numFmts><numFmt numFmtId="164" formatCode="[Red]yyyy\\-mm;@"/><numFmt numFmtId="165" formatCode="0 &quot;days&quot;"/>'
        '</numFmts><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/><xf numFmtId="165"/></cellXfs>'
    )
    head = '<row><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>2</v></c><c r="D1" t="s"><v>3</v></c></row><row/>'
    first = (
        '<row><c r="A2" t="s"><v>1</v></c><c r="B2"><v>7.1000000000000005</v></c><c r="D2" s="1"><v>45322</v></c></row>'
    )
    second = (
        '<row><c t="inlineStr"><is><t>Lorient</t></is></c><c t="b"><v>1</v></c><c t="e"><v>#N/A</v></c>'
        '<c s="2"><v>45322.75</v></c><c s="3"><v>3</v></c><c s="1"><v>0.5</v></c></row>'
    )
    workbook("a.xlsx", head + first + second, "", "<row><c><v>12</v></c></row>", texts=texts, styles=styles)
    assert read("a.xlsx") == [
        "Sheet 1\nport: Brest, depth: 7.1, , since: 2024-01-31\n"
        "port: Lorient, depth: True, #N/A, since: 2024-01-31 18:00:00, 3, 12:00:00\n\nSheet 3\n12"
    ]


def test_a_workbook_may_count_its_days_from_1904_and_name_its_parts_from_the_root():
    row = '<row><c r="A1" s="0"><v>1</v></c></row>'
    styles = '<cellXfs><xf numFmtId="14"/></cellXfs>'
    settings = '<workbookPr date1904="1"/>'
    workbook("a.xlsx", row, styles=styles, settings=settings, target="/xl/worksheets/sheet{}.xml")
    assert read("a.xlsx") == ["Sheet 1\n1904-01-02"]


def test_the_paragraphs_of_documents_and_of_slides_in_order():
    body = "<w:p><w:r><w:t>High</w:t><w:tab/><w:t>water</w:t></w:r></w:p><w:tbl><w:p><w:t>noon</w:t></w:p></w:tbl>"
    packed("a.docx", {"word/document.xml": f'<w:document xmlns:w="{TEXT}">{body}</w:document>'})
    assert read("a.docx") == ["High\twater\nnoon"]
    slides = {f"ppt/slides/slide{n}.xml": f'<s xmlns:a="{SLIDE}"><a:p><a:t>{n}</a:t></a:p></s>' for n in (10, 2)}
    packed("b.PPTX", slides)
    assert read("b.PPTX") == ["2\n10"]


@pytest.mark.parametrize("name", ["a.xlsx", "a.docx", "a.pptx"])
@pytest.mark.parametrize("damage", ["no zip", "no parts", "<", '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'])
def test_a_damaged_file_is_told_when_its_source_is_made(name, damage):
    if damage == "no zip":
        Path(name).write_bytes(b"PK")
    else:
        parts = ("xl/workbook.xml", "word/document.xml", "ppt/slides/slide1.xml")
        packed(name, {} if damage == "no parts" else dict.fromkeys(parts, damage))
    with pytest.raises(ConfigError, match=f"the knowledge file '{name}' is no {name[2:].upper()} that can be read: ."):
        FileKnowledgeSource(file_paths=[name])


def test_a_page_of_the_web_is_no_file():
    with pytest.raises(KnowledgeMissing, match="A page of the web is given as the text that load_content of a Know"):
        FileKnowledgeSource(file_paths=["https://example.com/tides"])


def test_the_sources_of_crewai_for_such_files_are_sources_of_files():
    from crewlite.knowledge.source.crew_docling_source import CrewDoclingSource
    from crewlite.knowledge.source.excel_knowledge_source import ExcelKnowledgeSource

    assert CrewDoclingSource is ExcelKnowledgeSource is FileKnowledgeSource
