"""Classes among the arguments of a flow: a resume in another process gives the function what the first one gave it."""

from __future__ import annotations

import subprocess
import sys

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
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    first, second = run("cut"), run()
    assert "SystemExit" in first.stderr
    assert (second.returncode, second.stderr) == (0, "")
