"""Classes among the arguments of a flow: a resume in another process gives the function what the first one gave it."""

from __future__ import annotations

import os
import sys

import pytest
from pydantic import BaseModel

from crewlite.flow import Flow, flow, listen, start, step
from tests import children

PROGRAM = """
import sys
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Optional, TypedDict

from pydantic import BaseModel

from crewlite import register
from crewlite.flow import flow, step


class Colour(Enum):
    RED = "red"

class Stop(NamedTuple):
    name: str
    colour: Colour

class Note(BaseModel):
    text: str

@dataclass
class Page:
    notes: list[Note] = field(default_factory=list)

@register
@dataclass
class Book:
    pages: dict[str, Page]

class Trip(TypedDict):
    stops: list[Stop]

@step
def walk(trip: Trip) -> Stop:
    return trip["stops"][0]

@flow(checkpoint=True)
def read(book: Book, trip: Trip, notes: list[Note], maybe: Optional[Page] = None, *others: Page, **more: Page):
    found = walk(trip)
    if sys.argv[1:]:
        sys.exit(7)
    return found, book, trip, notes, maybe, others, more

page = Page([Note(text="a")])
given = (Book({"one": page}), {"stops": [Stop("Brest", Colour.RED)]}, [Note(text="b")], page, page)
if sys.argv[1:]:
    read.kickoff(*given, run_id="one", last=page)
expected = (given[1]["stops"][0], *given[:4], (page,), {"last": page})
assert read.kickoff(run_id="one") == expected, read.kickoff(run_id="one")
"""


def test_arguments_come_back_in_a_new_process_as_what_they_were(tmp_path):
    (tmp_path / "read.py").write_text(PROGRAM)

    def run(*arguments):
        command = [sys.executable, "read.py", *arguments]
        return children.run(command, cwd=tmp_path, capture_output=True, text=True)

    first, second = run("cut"), run()
    assert "SystemExit" in first.stderr
    assert (second.returncode, second.stderr) == (0, "")


SCRIPT = """
import os
from pydantic import BaseModel
from crewlite.flow import flow, step

class Report(BaseModel):
    pages: int

@step
def write() -> Report:
    return Report(pages=1)

@step
def count(report: Report) -> int:
    print("counted")
    return report.pages

@step
def send(report: Report) -> int:
    if "KILL" in os.environ:
        os._exit(9)
    return report.pages + 1

@flow(checkpoint=True)
def pipeline():
    report = write()
    return count(report) + send(report)

if __name__ == "__main__":
    print(pipeline.kickoff(run_id="one"))
"""


@pytest.mark.parametrize("first", ["a script", "a module"])
def test_a_run_of_a_script_goes_on_from_where_it_is_a_module_and_the_other_way_round(tmp_path, first):
    (tmp_path / "app.py").write_text(SCRIPT)
    ways = [[sys.executable, "app.py"], [sys.executable, "-c", "import app; print(app.pipeline.kickoff(run_id='one'))"]]
    begins, goes_on = ways if first == "a script" else reversed(ways)

    def run_it(way, **more):
        return children.run(way, cwd=tmp_path, env={**os.environ, **more}, capture_output=True, text=True)

    assert run_it(begins, KILL="1").returncode == 9
    done = run_it(goes_on)
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr


NOTES = """
from dataclasses import dataclass

@dataclass
class Note:
    text: str

def read():
    return [Note("low water at six")]
"""
UNANNOTATED = """
import os
from NOTES import read
from crewlite.flow import Flow, listen, start

class Report(Flow):
    checkpoint = True

    @start()
    def fetch(self):
        return read()

    @listen(fetch)
    def write(self, notes):
        if "KILL" in os.environ:
            os._exit(9)
        return notes[0].text

print(Report().kickoff(run_id="one"))
"""


@pytest.mark.parametrize(
    ("notes", "main", "way"),
    [
        ("notes", "main.py", ["main.py"]),
        ("port.notes", "main.py", ["main.py"]),
        ("port.inner.notes", "port/main.py", ["-m", "port.main"]),
        ("port.notes", "port/flows/report.py", ["-c", "import port.flows.report"]),
    ],
)
def test_a_class_of_the_program_comes_back_as_one_wherever_in_the_program_it_is(tmp_path, notes, main, way):
    for file, text in {f"{notes.replace('.', '/')}.py": NOTES, main: UNANNOTATED.replace("NOTES", notes)}.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)

    def run_it(**more):
        command = [sys.executable, *way]
        return children.run(command, cwd=tmp_path, env={**os.environ, **more}, capture_output=True, text=True)

    assert run_it(KILL="1").returncode == 9
    done = run_it()
    assert (done.stdout, done.stderr, done.returncode) == ("low water at six\n", "", 0)


def _two_of_one_name(number, config):
    """A flow and a flow of methods whose class has the name of another one."""

    class Out(BaseModel):
        n: int

        def made_by(self):
            return number

    @step
    def made():
        return Out(n=number)

    made.func.__annotations__["return"] = Out

    def take(given):
        return [given.made_by(), made().made_by(), Out(n=1)]

    take.__annotations__ |= {"given": Out, "return": list[Out | int]}

    class Work(Flow):
        checkpoint = config

        @start()
        def begin(self):
            return Out(n=number)

        @listen(begin)
        def end(self, out):
            return out.made_by()

    return flow(checkpoint=config, name=f"take-{number}")(take), Work, Out


def test_two_classes_of_one_name_are_told_apart_where_they_are_named(memory):
    config = memory()
    both = [_two_of_one_name(number, config) for number in (1, 2)]
    for again in range(2):
        for number, (take, Work, Out) in enumerate(both, 1):
            *found, last = take.kickoff(Out(n=0), run_id=f"r{number}")
            assert (found, type(last)) == ([number, number], Out)
            *found, last = take.kickoff(run_id=f"r{number}")
            assert (found, type(last)) == ([number, number], Out)
            assert Work().kickoff(run_id=f"w{number}.{again}") == number
