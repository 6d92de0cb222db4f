"""Questions at a terminal: put until an answer fits, one by one, and harmless whatever their text."""

from __future__ import annotations

import os
import pty
import sys
import time

import pytest

from crewlite import History
from tests import children

pytestmark = pytest.mark.usefixtures("no_terminal")


PROGRAM = """
from crewlite.flow import ask, flow

@flow(checkpoint=True)
def greet():
    return ask("Your name?"), ask("Your age?", int, name="age")

print(greet.kickoff(run_id="greet"))
"""


def test_on_a_terminal_the_question_is_put_until_an_answer_fits(tmp_path):
    child, main = begun_at_a_terminal(tmp_path, PROGRAM)
    os.write(main, b"Ada\nmany\n36\n")
    out, _ = child.communicate()
    shown = children.rest_of(main).decode()
    assert out == "('Ada', 36)\n"
    assert shown.count("Your age?") == 2
    assert "'many' is not of type 'integer'; wanted a whole number: answer again" in shown


CHOICES = """
from crewlite.flow import ask, flow

@flow
def game():
    return ask("Your choice?", ["rock", "paper"], name="choice"), ask("Again?", bool, name="again"), ask("Name?")

print(game.kickoff())
"""


def begun_at_a_terminal(directory, program):
    """Begin a program at a terminal. Returns (its process, the other end of the terminal)."""
    (directory / "program.py").write_text(program)
    main, side = pty.openpty()
    child = children.Child(
        [sys.executable, "program.py"], cwd=directory, stdin=side, stderr=side, stdout=children.PIPE, text=True
    )
    os.close(side)
    return child, main


def at_a_terminal(directory, program, typed):
    """Run a program at a terminal at which this is typed. Returns (its output, what the terminal shows)."""
    child, main = begun_at_a_terminal(directory, program)
    os.write(main, typed)
    out, _ = child.communicate()
    shown = children.rest_of(main).decode()
    return out, shown


PATIENT = """
from crewlite.errors import AnswerTimeout
from crewlite.flow import ask, flow

@flow
def patient():
    try:
        return ask("Anybody?", timeout=2)
    except AnswerTimeout:
        return ask("And you?")

print(patient.kickoff())
"""


def test_a_question_at_a_terminal_that_nobody_answers_in_time_leaves_the_line_to_what_comes_next(tmp_path):
    child, main = begun_at_a_terminal(tmp_path, PATIENT)
    shown = ""
    while not shown.endswith("And you? "):
        shown += os.read(main, 10_000).decode()
    os.write(main, b"me\n")
    out, _ = child.communicate()
    os.close(main)
    assert (out, shown) == ("me\n", "Anybody? (nobody answered in time)\r\nAnd you? ")


def test_a_question_at_a_terminal_shows_what_may_be_answered(tmp_path):
    out, shown = at_a_terminal(tmp_path, CHOICES, b"rock\nn\nAda\n")
    assert out == "('rock', False, 'Ada')\n"
    assert "Your choice? [rock/paper] " in shown
    assert "Again? [y/n] " in shown
    assert "Name? [" not in shown


SPOOFED = """
from crewlite.flow import ask, flow

@flow
def send():
    return ask("Send\\x1b[2J this?\\n\\tall\\rof it", ["yes\\x1b[8m", "no"])

print(send.kickoff())
"""


def test_no_text_of_a_question_moves_the_cursor_or_hides_what_stands_on_the_terminal(tmp_path):
    out, shown = at_a_terminal(tmp_path, SPOOFED, b"perhaps\nno\n")
    assert out == "no\n"
    assert "\x1b" not in shown
    assert shown.count("Send\\x1b[2J this?\r\n    all\r\nof it [yes\\x1b[8m/no] ") == 2
    assert "wanted one of yes\\x1b[8m, no: answer again" in shown


NAMED = """
from crewlite.flow import ask, flow

@flow
def name():
    return ask("Your name?")

print(name.kickoff())
"""


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
@pytest.mark.parametrize("at_terminal", [True, False])
def test_a_line_that_is_no_text_is_refused_and_the_question_put_again(tmp_path, errors, at_terminal):
    (tmp_path / "named.py").write_text(NAMED)
    environment = {**os.environ, "PYTHONIOENCODING": f"utf-8:{errors}"}
    main, side = pty.openpty() if at_terminal else os.pipe()[::-1]
    shown_by = {"stderr": side if at_terminal else children.PIPE, "stdout": children.PIPE}
    child = children.Child([sys.executable, "named.py"], cwd=tmp_path, stdin=side, env=environment, **shown_by)
    os.close(side)
    os.write(main, b"Zo\xeb\nZo\xc3\xab\n")
    out, shown = child.communicate()
    if at_terminal:
        shown = children.rest_of(main)
    else:
        os.close(main)
    assert out.decode() == "Zoë\n"
    assert "'Zo\\udceb' is not text in the encoding utf-8: answer again" in shown.decode(errors="replace")


LEFT = """
from crewlite.flow import ask, flow

def greet():
    return ask("Your name?", name="name")

for begin in (lambda: flow(checkpoint=True)(greet).kickoff(run_id="one"), flow(greet).kickoff, greet):
    try:
        begin()
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
"""


def test_whoever_ends_the_input_of_a_terminal_has_left_it(tmp_path):
    child, main = begun_at_a_terminal(tmp_path, LEFT)
    os.write(main, b"\x04" * 3)
    out, _ = child.communicate()
    os.close(main)
    stored, unstored, outside = out.splitlines()
    assert stored.startswith("Suspended Run 'one' waits for an answer: human:name")
    assert " or crewlite checkpoint answer one human:name VALUE --location " in stored
    assert unstored.startswith("ConfigError ask('Your name?'): nobody could ever answer, as the input has ended, and")
    assert outside.startswith("ConfigError ask('Your name?'): nobody answered at the terminal")


TOGETHER = """
from crewlite.flow import ask, flow, step

@step
async def asks(name):
    return await ask(f"{name}?", name=name)

@flow
async def three():
    return await asks.map(["a", "b", "c"])

print(three.kickoff())
"""


def test_at_a_terminal_questions_that_are_asked_together_are_put_one_by_one(tmp_path):
    child, main = begun_at_a_terminal(tmp_path, TOGETHER)
    for _ in range(3):
        shown = ""
        while not shown.endswith("? "):
            shown += os.read(main, 10_000).decode()
        time.sleep(0.2)
        os.write(main, f"answer {shown[-3]}\n".encode())
    out, _ = child.communicate()
    os.close(main)
    assert out == "['answer a', 'answer b', 'answer c']\n"


@pytest.mark.parametrize("shown_one", [True, False])
def test_only_the_question_on_the_screen_is_said_to_be_answered_elsewhere(tmp_path, shown_one):
    program = TOGETHER.replace("@flow\n", "@flow(checkpoint=True)\n").replace("kickoff()", "kickoff(run_id='three')")
    child, main = begun_at_a_terminal(tmp_path, program)
    shown = os.read(main, 10_000).decode()
    while not shown.endswith("? "):
        shown += os.read(main, 10_000).decode()
    with History(tmp_path / ".checkpoints") as history:
        children.until(lambda: len(history.run("three").waiting) == 3)
        waiting = {one.question[0]: one.address for one in history.run("three").waiting}
        answered = shown[-3] if shown_one else min({*waiting} - {shown[-3]})
        history.answer("three", waiting[answered], "from afar")
    if shown_one:
        while "(answered elsewhere)" not in shown:
            shown += os.read(main, 10_000).decode()
    os.write(main, b"here\nhere\n")
    out, _ = child.communicate()
    shown += children.rest_of(main).decode()
    assert out == str(["from afar" if name == answered else "here" for name in "abc"]) + "\n"
    assert shown.count("(answered elsewhere)") == shown_one
