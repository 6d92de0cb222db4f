"""The page of a flow: its graph, and what happened in a run; nothing in it is loaded, run or believed."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.errors import ConfigError, RefError, RunMismatch, Suspended
from crewlite.flow import Flow, and_, listen, or_, router, start
from crewlite.flow.classes.plot.layout import BOX, laid_out
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests.browser import Parsed, check_is_harmless
from tests.children import run
from tests.cuts import cut, entries_of

HOSTILE = """</pre></title><script>document.title="hacked"</script><img src=x onerror='document.title="hacked"'>"""


class Book(Flow):
    """Two starts, a join, a crew, a cycle with hostile labels, and methods that wait, fail and never start."""

    @start()
    def outline(self):
        return HOSTILE

    @start()
    def research(self):
        return Crew(tasks=[Task(description="Read", expected_output="text", agent=READER)]).kickoff().raw

    @listen(or_(and_(outline, research), "<b>again</b>"))
    def write(self):
        self.state["drafts"] = self.state.get("drafts", 0) + 1
        return "word " * 100

    @router(write, emit=["<b>again</b>", 'fine" onload="x', "rejected"])
    def judge(self):
        return "<b>again</b>" if self.state["drafts"] < 2 else 'fine" onload="x'

    @listen("rejected")
    def archive(self): ...

    @listen('fine" onload="x')
    def price(self):
        return self.ask(f"Is 12.50 right? {HOSTILE}")

    @listen('fine" onload="x', retries=1)
    def translate(self):
        raise ValueError(HOSTILE)


READER = Agent(role="Reader", goal="read", llm=ScriptedLLM(["read"] * 9))


class Page(Parsed):
    """The boxes of the graph with their states, the rows of starts, and the lines that were taken."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.boxes = {about["data-method"]: about["data-state"] for _, about in self.elements if "data-method" in about}
        self.rows = [(about["data-address"], about["class"]) for _, about in self.elements if "data-address" in about]
        lines = [about for _, about in self.elements if "data-from" in about]
        self.lines = {(about["data-from"], about["data-to"]): "taken" in about["class"] for about in lines}


@pytest.fixture(scope="module")
def waiting(tmp_path_factory):
    """A run of the book that waits and has failed, where it is kept, and its page."""
    setting = CheckpointConfig(location="book", provider=InMemoryProvider())
    flow = Book(checkpoint=setting)
    with pytest.raises(Suspended):
        flow.kickoff(run_id="run")
    return setting, Path(flow.plot(tmp_path_factory.mktemp("plot") / "book", run_id="run"))


def test_a_page_shows_what_each_method_has_come_to(waiting):
    _, path = waiting
    page = Page(path.read_text())
    assert path.name == "book.html"
    finished = dict.fromkeys(("outline", "research", "write", "judge"), "finished")
    assert page.boxes == {**finished, "price": "waiting", "translate": "failed", "archive": "not reached"}
    assert sorted(page.rows) == [
        ("method:judge@write", "finished"),
        ("method:judge@write#2", "finished"),
        ("method:outline", "finished"),
        ('method:price@fine" onload="x', "waiting"),
        ("method:research", "finished"),
        ('method:translate@fine" onload="x', "failed"),
        *[row for row in page.rows if row[0].startswith("method:write@")],
    ]
    assert [state for address, state in page.rows if address.startswith("method:write@")] == ["finished"] * 2
    assert page.lines == {
        ("outline", "write"): True,
        ("research", "write"): True,
        ("judge", "write"): True,
        ("write", "judge"): True,
        ("judge", "archive"): False,
        ("judge", "price"): True,
        ("judge", "translate"): True,
    }
    assert f"Is 12.50 right? {HOSTILE}" in page.text
    assert f"ValueError: {HOSTILE}" in page.text
    assert "2 failed attempts" in page.text


def test_a_page_shows_the_way_of_a_run_along_lines_whose_labels_have_commas_or_that_have_none_too(tmp_path):
    class Letter(Flow):
        @start("short, again")
        @router(emit=["short, again", "good"])
        def read(self):
            self.state["times"] = self.state.get("times", 0) + 1
            return "short, again" if self.state["times"] < 2 else None

        @listen("short, again")
        def mend(self): ...

        @listen("good")
        def send(self): ...

        @listen(or_(read, "good"))
        def note(self): ...

    flow = Letter(checkpoint=CheckpointConfig(location="letter", provider=InMemoryProvider()))
    flow.kickoff(run_id="run")
    page = Page(Path(flow.plot(tmp_path / "letter", run_id="run")).read_text())
    assert page.lines == {
        ("read", "read"): True,
        ("read", "mend"): True,
        ("read", "send"): False,
        ("read", "note"): True,
    }


def test_a_page_tells_tokens_of_all_that_a_method_has_led_to(waiting):
    setting, path = waiting
    with History(setting.location, setting.provider) as history:
        used = history.run("run").usage.total_tokens
    assert used > 0
    row = path.read_text().partition('data-address="method:research"')[2].partition("</tr>")[0]
    assert f'data-is="tokens">{used}<' in row


def test_a_page_believes_nothing_and_loads_nothing(waiting):
    _, path = waiting
    page = Page(path.read_text())
    check_is_harmless(page)
    assert page.text.count(HOSTILE) >= 3


def test_a_page_of_the_class_shows_its_graph_alone(tmp_path):
    page = Page(Path(Book.plot(tmp_path / "graph.html")).read_text())
    assert set(page.boxes.values()) == {""}
    assert list(page.boxes) == list(Book.graph.methods)
    assert not page.rows
    assert not any(page.lines.values())


def test_a_page_of_a_run_that_was_cut_shows_what_was_interrupted(tmp_path, waiting):
    states = set()
    entries = entries_of(waiting[0])
    for at in range(1, len(entries)):
        page = Page(Path(Book(checkpoint=cut(entries, at)).plot(tmp_path / "cut", run_id="run")).read_text())
        states.add(page.boxes["research"])
        assert page.boxes["archive"] == "not reached"
    assert states == {"not reached", "interrupted", "finished"}


def test_a_page_of_a_fork_tells_what_was_done_before_it(tmp_path):
    class Plan(Flow):
        checkpoint = True

        @start()
        def begin(self): ...

        @listen(begin)
        def end(self): ...

    Plan().kickoff(run_id="run")
    fork = Plan().fork("run", branch="b", rerun=["method:end@begin"])
    fork.kickoff()
    text = Path(fork.plot(tmp_path / "fork", False, run_id="run/b")).read_text()
    rows = {row.partition('"')[0]: row for row in text.split('data-address="')[1:]}
    assert "before the fork" in rows["method:begin"]
    assert "before the fork" not in rows["method:end@begin"]


def test_mermaid_text_has_the_same_graph():
    class Small(Flow):
        @start()
        def plan(self): ...

        @start()
        def load(self): ...

        @listen(or_(plan, 'too "short"'))
        def write(self): ...

        @router(and_(write, load))
        def judge(self):
            return 'too "short"' if self.state else "fine"

        @listen(and_(load, or_("fine", write)))
        def send(self): ...

    assert (
        Small.mermaid()
        == Small().mermaid()
        == """\
flowchart TD
    m0(["plan"])
    m1(["load"])
    m2["write"]
    m3{{"judge"}}
    m3j(("and")) --> m3
    m4["send"]
    m4j[/"load#38;(fine#124;write)"/] --> m4
    m0 --> m2
    m3 -->|"too #34;short#34;"| m2
    m2 --> m3j
    m1 --> m3j
    m1 --> m4j
    m3 -->|"fine"| m4j
    m2 --> m4j
"""
    )


def test_a_label_that_a_router_may_return_for_all_that_is_known_is_drawn_apart(tmp_path):
    class Talk(Flow):
        checkpoint = True

        @start()
        def hear(self):
            return "bill"

        @router(or_(hear, "again"))
        def sort(self, given):
            return f"{given}"

        @router("bill")
        def pay(self):
            return "paid"

        @listen("complaint")
        def complain(self): ...

        @listen("paid")
        def end(self): ...

    certain = {("hear", "sort"), ("pay", "end")}
    for run_id in (None, "run"):
        text = Path(Talk.plot(tmp_path / "talk", run_id=run_id)).read_text()
        lines = dict.fromkeys(re.findall(r'class="line([^"]*)" data-from="(\w+)" data-to="(\w+)"', text))
        assert {(source, target) for kind, source, target in lines if "possible" not in kind} == certain
        assert {(source, target) for kind, source, target in lines if "taken" in kind} == (
            {("hear", "sort"), ("sort", "pay"), ("pay", "end")} if run_id else set()
        )
        assert ("are not known" in Page(text).text) is True
        Talk().kickoff(run_id="run")
    assert 'm1 -. "complaint" .-> m3' in Talk.mermaid()
    assert 'm2 -->|"paid"| m4' in Talk.mermaid()
    assert "are not known" not in Path(Book.plot(tmp_path / "book")).read_text()


def test_a_run_that_is_not_of_this_flow_is_no_picture_of_it(tmp_path, waiting):
    class Other(Flow):
        checkpoint = waiting[0]

        @start()
        def begin(self): ...

    with pytest.raises(RunMismatch, match="run 'run' is of flow 'Book', not of flow 'Other'"):
        Other.plot(tmp_path / "no", run_id="run")
    with pytest.raises(RefError, match="nothing"):
        Other.plot(tmp_path / "no", run_id="nothing")
    with pytest.raises(ConfigError, match="flow 'Flow' has no methods to plot"):
        Flow.plot(tmp_path / "no")
    assert not list(tmp_path.iterdir())


def test_a_browser_opens_only_when_asked(tmp_path):
    note = tmp_path / "note"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {note}\n')
    browser.chmod(0o700)
    code = (
        "from tests.class_flows.test_plot import Book\n"
        "Book.plot('one')\nBook.plot('two.html', show=True)\nBook().plot()"
    )
    env = {**os.environ, "BROWSER": f"{browser} %s", "PYTHONPATH": str(Path(__file__).parents[2])}
    run([sys.executable, "-c", code], cwd=tmp_path, env=env, check=True)
    assert note.read_text().splitlines() == [(tmp_path / "two.html").as_uri()]
    assert sorted(path.name for path in tmp_path.glob("*.html")) == ["crewlite_flow.html", "one.html", "two.html"]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 6), st.floats(100, 300)), min_size=1, max_size=14),
    lines=st.lists(st.tuples(st.integers(0, 13), st.integers(0, 13)), max_size=20, unique=True),
)
def test_no_two_boxes_meet_no_line_crosses_one_and_all_is_inside_the_picture(rows, lines):
    at = {f"m{number}": row for number, (row, _) in enumerate(rows)}
    widths = {f"m{number}": width for number, (_, width) in enumerate(rows)}
    known = [(f"m{one}", f"m{other}", "label") for one, other in lines if max(one, other) < len(rows)]
    layout = laid_out(at, widths, known)
    for one, other in combinations(at, 2):
        (x, y), (next_x, next_y) = layout.boxes[one], layout.boxes[other]
        assert abs(y - next_y) >= BOX or abs(x - next_x) >= (widths[one] + widths[other]) / 2
    for name, (x, y) in layout.boxes.items():
        assert widths[name] / 2 <= x <= layout.width - widths[name] / 2
        assert BOX / 2 <= y <= layout.height - BOX / 2
    assert [(line.source, line.target) for line in layout.lines] == [(one, other) for one, other, _ in known]
    for line in layout.lines:
        for x, y in points_of(line.path):
            assert 0 <= x <= layout.width and 0 <= y <= layout.height
            for name, (middle, row) in layout.boxes.items():
                inside = abs(x - middle) < widths[name] / 2 - 1 and abs(y - row) < BOX / 2 - 1
                assert not inside, f"{line.source} -> {line.target} crosses {name}"


def points_of(path):
    """Points along the path of a line."""
    x = y = 0.0
    for command, written in re.findall("([MLC])([^MLC]*)", path):
        *handles, (end_x, end_y) = pairs(written)
        (a, b), (c, d) = handles or [(x, y), (end_x, end_y)]
        for t in (0.1, 0.3, 0.5, 0.7, 0.9, 1.0) if command != "M" else (1.0,):
            u = 1 - t
            yield (
                u**3 * x + 3 * u * u * t * a + 3 * u * t * t * c + t**3 * end_x,
                u**3 * y + 3 * u * u * t * b + 3 * u * t * t * d + t**3 * end_y,
            )
        x, y = end_x, end_y


def pairs(text):
    numbers = [float(word) for word in text.split()]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def test_a_page_of_a_run_at_work_shows_what_has_begun(tmp_path):
    begun, over = threading.Event(), threading.Event()

    class Plan(Flow):
        checkpoint = True

        @start()
        def first(self): ...

        @start(retries=1)
        def second(self):
            begun.set()
            over.wait(30)

        @listen(first)
        def third(self):
            over.wait(30)

        @listen(and_(second, third))
        def end(self): ...

    run = Plan().submit(run_id="run")
    begun.wait(30)
    with History("./.checkpoints") as history:
        while len(history.run("run").steps) < 2:  # the state, and the first method
            time.sleep(0.01)
    text = Path(Plan.plot(tmp_path / "page", run_id="run")).read_text()
    over.set()
    run.result()
    page = Page(text)
    assert page.boxes == {"first": "finished", "second": "at work", "third": "at work", "end": "not reached"}
    assert '<dd class="tone">at work</dd>' in text
    assert set(Page(Path(Plan.plot(tmp_path / "page", run_id="run")).read_text()).boxes.values()) == {"finished"}


@pytest.mark.parametrize("filename", [".", "", "..", "here/", "nowhere/page.html", "~", "taken"])
def test_a_filename_at_which_no_page_can_be_is_refused(filename):
    Path("here").mkdir()
    Path("taken.html").mkdir()
    with pytest.raises(ConfigError, match="plot: "):
        Book.plot(filename)
    assert {path.name for path in Path.cwd().iterdir()} >= {"here", "taken.html"}
    assert not [*Path.cwd().parent.glob("*.html")]
