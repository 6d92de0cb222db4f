"""Sources: texts, files of several kinds, and those of one's own, read once, before anything runs."""

from __future__ import annotations

import gc
import os
import time
import weakref
from pathlib import Path

import pytest

from crewlite import Agent, Knowledge
from crewlite.errors import ConfigError, KnowledgeMissing
from crewlite.knowledge import FileKnowledgeSource, KnowledgeSource, StringKnowledgeSource


def pdf_of(text):
    """A page with this text, as the writer of a PDF file would write it."""
    said = f"BT /F 12 Tf 20 90 Td ({text}) Tj ET"
    parts = [
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
        f"<</Length {len(said)}>>stream\n{said}\nendstream",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    data, places = "%PDF-1.4\n", []
    for number, part in enumerate(parts, 1):
        places.append(len(data))
        data += f"{number} 0 obj{part}endobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"trailer<</Root 1 0 R/Size 6>>\nstartxref\n{len(data)}\n%%EOF"
    return f"{data}xref\n0 6\n0000000000 65535 f \n{table}{end}".encode()


def passages(source):
    return [(one.source, one.text) for one in source.index.passages]


def test_files_of_several_kinds_are_read():
    Path("knowledge").mkdir()
    Path("knowledge/a.md").write_text("\ufeff# Tides", encoding="utf-8")
    Path("knowledge/b.csv").write_text("port,depth\nBrest,7\nLorient,5,muddy\n")
    Path("knowledge/c.json").write_text('{"port":{"name":"Brést"}}')
    source = FileKnowledgeSource(file_paths=["a.md", "b.csv", "c.json"])
    assert passages(source) == [
        ("a.md", "# Tides"),
        ("b.csv", "port: Brest, depth: 7\nport: Lorient, depth: 5, muddy"),
        ("c.json", '{\n "port": {\n  "name": "Brést"\n }\n}'),
    ]
    assert list(source.content) == [Path("knowledge/a.md"), Path("knowledge/b.csv"), Path("knowledge/c.json")]
    assert "Brést" not in repr(source)


def test_a_text_is_looked_for_in_the_folder_knowledge_first_and_a_path_where_it_says(tmp_path):
    Path("knowledge").mkdir()
    Path("knowledge/a.md").write_text("inside")
    Path("a.md").write_text("outside")
    Path("b.md").write_text("beside")
    for path, text in [("a.md", "inside"), (Path("a.md"), "outside"), ("b.md", "beside"), ("knowledge/a.md", "inside")]:
        [(_, read)] = passages(FileKnowledgeSource(file_paths=path))
        assert read == text
    [named] = passages(FileKnowledgeSource(file_path=[tmp_path / "a.md"]))
    assert named == ("a.md", "outside"), "an absolute path differs by machine, and would be another question there"
    with pytest.raises(FileNotFoundError, match=r"'c.md': looked for it at 'knowledge/c.md' and at 'c.md'") as missing:
        FileKnowledgeSource(file_paths=["c.md"])
    assert isinstance(missing.value, KnowledgeMissing | ConfigError)
    for make in (
        lambda: Agent(role="R", goal="g", knowledge_sources=["c.md"]),
        lambda: Agent(role="R", goal="g").with_(knowledge_sources=["c.md"]),
    ):
        with pytest.raises(
            FileNotFoundError, match=r"Agent: knowledge_sources: There is no knowledge file 'c.md'"
        ) as missing:
            make()
        assert (type(missing.value), missing.value.path) == (KnowledgeMissing, "c.md")


@pytest.mark.parametrize(
    ("path", "found"), [(".", "knowledge"), ("notes", "knowledge/notes"), (Path("notes"), "notes")]
)
def test_a_directory_in_the_place_of_a_file_is_told_as_one(path, found):
    Path("knowledge/notes").mkdir(parents=True)
    Path("notes").mkdir()
    advice = f"[*Path('{found}').glob('*.md')]"
    told = f"'{found}' is a directory; a source of knowledge wants files. Pass its files, such as {advice}"
    with pytest.raises(KnowledgeMissing) as missing:
        FileKnowledgeSource(file_paths=path)
    assert str(missing.value) == told
    Path(found, "a.md").write_text("High water at noon.")
    assert passages(FileKnowledgeSource(file_paths=eval(advice)))


@pytest.mark.parametrize("text", ["High water at noon. " * 500, "a\0b", "", "\ud800"])
def test_a_text_in_the_place_of_a_path_is_told_as_one(text):
    with pytest.raises(KnowledgeMissing, match=r"Pass a text as StringKnowledgeSource\(content=") as told:
        Agent(role="R", goal="g", knowledge_sources=[text])
    assert len(str(told.value)) < 600


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("a.json", b"{", "cannot be read .*; wanted JSON in UTF-8"),
        ("a.txt", b"\xff\xfe", "cannot be read .*; wanted UTF-8 text, CSV, JSON, PDF, XLSX or DOCX"),
        ("a.pdf", b"%PDF-", "is no PDF that pypdf can read|pypdf is not installed: pip install 'crewlite"),
        ("a.json", b"[" * 100_000, "cannot be read"),
    ],
)
def test_a_file_that_holds_no_text_is_told_when_its_source_is_made(name, data, problem):
    Path(name).write_bytes(data)
    with pytest.raises(ConfigError, match=f"the knowledge file '{name}' {problem}"):
        FileKnowledgeSource(file_paths=[name])


def test_a_pdf_is_read_by_pypdf():
    pytest.importorskip("pypdf")
    Path("a.pdf").write_bytes(pdf_of("High water at noon"))
    assert passages(FileKnowledgeSource(file_paths=["a.pdf"])) == [("a.pdf", "High water at noon")]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: FileKnowledgeSource(), "FileKnowledgeSource has no files: file_paths="),
        (lambda: StringKnowledgeSource(content="x", chunk_size=10, chunk_overlap=10), "wanted less than chunk_size"),
        (lambda: StringKnowledgeSource(content="x", chunk_sise=10), "did you mean 'chunk_size'"),
        (lambda: StringKnowledgeSource(), "'content' is missing"),
        (lambda: Agent(role="R", goal="g", knowledge_sources="a.md"), r"one source; wanted a list: knowledge_sources="),
        (lambda: Agent(role="R", goal="g", knowledge_sources=[7]), r"knowledge_sources\[0\] is .*; wanted a source"),
        (lambda: Agent(role="R", goal="g", knowledge_config=3), "knowledge_config is 3; wanted KnowledgeConfig"),
        (lambda: Knowledge(sources=[KnowledgeSource()]), "KnowledgeSource loads nothing: give it a method"),
        (lambda: Knowledge(sources="a.md"), r"sources is one source; wanted a list: sources=\[...\]"),
        (lambda: Knowledge(sources=[7]), r"sources\[0\] is an int; wanted a source"),
        (lambda: StringKnowledgeSource("x"), r"takes named fields: StringKnowledgeSource\(content=..., "),
    ],
)
def test_mistakes_are_told(make, problem):
    with pytest.raises(ConfigError, match=problem):
        make()


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        (lambda: 5, "an int"),
        (lambda: None, "None"),
        (lambda: b"Spring tide.", "a bytes"),
        (lambda: ["Spring tide.", 5], "an int"),
        (lambda: {"a": "Spring tide.", "b": 5}, "an int"),
        (lambda: {"a": {"b": "Spring tide."}}, "a dict"),
    ],
)
def test_what_a_source_returns_that_is_no_text_is_told(returned, found):
    class News(KnowledgeSource):
        def load_content(self):
            return returned()

    with pytest.raises(ConfigError, match=f"load_content of News returned {found}; wanted a text, a list of texts, or"):
        Agent(role="R", goal="g", knowledge_sources=[News()])


def test_a_source_of_ones_own_returns_texts_and_is_loaded_once():
    class News(KnowledgeSource):
        topic: str
        loads: int = 0

        def load_content(self):
            self.loads += 1
            return {"https://example.org/1": f"News of {self.topic}", "https://example.org/2": ["More", "Most"]}

    news = News(topic="tides")
    assert news.loads == 0
    agent = Agent(role="R", goal="g", knowledge_sources=[news])
    Agent(role="R2", goal="g", knowledge_sources=[news, *agent.knowledge_sources])
    assert news.loads == 1
    assert passages(news) == [
        ("https://example.org/1", "News of tides"),
        ("https://example.org/2", "More"),
        ("https://example.org/2", "Most"),
    ]


def test_a_source_written_for_crewai_makes_its_own_chunks():
    class Old(KnowledgeSource):
        lines: list[str]

        def validate_content(self):
            return "\n".join(self.lines)

        def add(self):
            self.chunks.extend(self._chunk_text(self.validate_content()))
            self._save_documents()

    old = Old(lines=["one", "two"], chunk_size=4, chunk_overlap=0, collection_name="x", metadata={})
    assert passages(old) == [("Old", "one"), ("Old", "two")]
    text = StringKnowledgeSource(content="one two", chunk_size=4, chunk_overlap=0)
    text.add()
    assert text.chunks == ["one", "two"]


def test_a_file_is_read_once_for_all_who_are_given_its_path_until_it_changes():
    def source():
        return Agent(role="Clerk", goal="g", llm="offline", knowledge_sources=["fees.md"]).knowledge_sources[0]

    def write(text, age):
        Path("fees.md").write_text(text)
        os.utime("fees.md", (time.time() - age,) * 2)

    write("Boats pay 7.", age=60)
    first = source()
    assert source() is first
    write("Boats pay 8.", age=30)
    assert source().index.passages[0].text == "Boats pay 8."
    times = os.stat("fees.md")
    kept_times = source()
    time.sleep(0.05)  # the clock of the disk is coarse
    Path("fees.md").write_text("Boats pay 6.")
    os.utime("fees.md", ns=(times.st_atime_ns, times.st_mtime_ns))  # as a copy may do that keeps the times
    assert source() is not kept_times
    write("Boats pay 9.", age=0)
    latest = source()
    assert source() is not latest, "another change might leave its times as they are"
    kept = weakref.ref(first)
    del first
    gc.collect()
    assert kept() is None
