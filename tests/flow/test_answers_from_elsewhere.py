"""Answers given while another process is at work on the run: it takes them as letters, and nobody else does."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random
from types import SimpleNamespace

import pytest

from crewlite import History, event_bus
from crewlite.errors import AnswerRefused, BranchConflictError, RefError, Suspended
from crewlite.events import HumanFeedbackRequestedEvent
from crewlite.flow import ask, flow
from crewlite.state.journal import letters
from crewlite.state.journal.journal import journal_of
from crewlite.state.providers import JsonProvider, SqliteProvider
from crewlite.state.verbs.answer import receive
from tests import children
from tests.children import posix
from tests.soak import in_time

WORK = """
import os, signal, sys
from crewlite.flow import ask, flow, step
from crewlite import CheckpointConfig
from crewlite.state.verbs import answer

if "DIES" in os.environ:  # where it checks a letter that it has taken
    answer._check_is_for = lambda *_: os.kill(os.getpid(), signal.SIGKILL)

@step
def slow() -> int:
    print("began", flush=True)
    return int(sys.stdin.readline())

@step
def asks(name: str) -> int:
    got = ask(f"How much is {name}?", int, name=name)
    print("heard", got, flush=True)
    return got

@flow(checkpoint=CheckpointConfig(location=sys.argv[1]))
def work() -> int:
    parts = [asks.submit(name) for name in sys.argv[2:]]
    return slow() + sum(part.result() for part in parts) + ask("And later?", int, name="later")

print("result", work.kickoff(run_id="r"), flush=True)
"""


BLOCKED = """
import sys
from crewlite.flow import ask, flow, step
from crewlite import CheckpointConfig

@step
async def blocks() -> int:
    print("began", flush=True)
    return int(sys.stdin.readline())

@flow(checkpoint=CheckpointConfig(location=sys.argv[1]))
async def work() -> int:
    return await blocks() + await ask("How much?", int, name="much")

print("result", work.kickoff(run_id="r"), flush=True)
"""


SENDER = """
import sys
from crewlite import History
from crewlite.state.journal import letters

letters._PATIENCE = 60.0
with History(sys.argv[1]) as history:
    history.answer("r", sys.argv[2], 41)
"""


@pytest.fixture
def at_work(where, tmp_path):
    """Begin a process at work on a run that asks for these numbers meanwhile; return it once its step has begun."""

    def begin(*names, program=WORK):
        (tmp_path / "work.py").write_text(program)
        command = [sys.executable, str(tmp_path / "work.py"), where, *names]
        child = children.Child(command, stdin=children.PIPE, stdout=children.PIPE, stderr=children.PIPE, text=True)
        assert child.stdout.readline() == "began\n"
        return child

    return begin


@pytest.fixture
def where(on_disk):
    return on_disk().location


@pytest.fixture
def history(where, monkeypatch):
    monkeypatch.setattr(letters, "_PATIENCE", 60.0)
    with History(where, make=True) as history:
        yield history


def waiting(history, count=1):
    children.until(lambda: len(history.run("r").waiting) >= count)
    return [one.address for one in history.run("r").waiting]


def ends(child, history, result):
    """Answer the last question, let the run go on, and hold what it returned."""
    history.answer("r", "human:later", 0)
    out, told = child.communicate("1\n")
    assert f"result {result}\n" in out, told
    assert left(history) == {}


def left(history):
    """The letters that lie in the store."""
    return letters._read(history._store.results.recall(letters._KEY))


def test_a_question_that_waits_while_its_siblings_work_gets_its_answer(at_work, history):
    child = at_work("one")
    [address] = waiting(history)
    with pytest.raises(AnswerRefused, match="whole number"):
        history.answer("r", address, "no number")
    assert history.answer("r", address, 41)
    assert history.answer("r", address, 41) is False
    with pytest.raises(AnswerRefused, match="an answer already"):
        history.answer("r", address, 40)
    assert not history.run("r").waiting
    assert history.answer("r", "human:later", 100), "before it is asked"
    assert history.answer("r", "human:later", 200), "and another one, as long as it is not asked"
    with pytest.raises(RefError):
        history.answer("r", "human:never", 1, ahead=False)
    out, told = child.communicate("1\n")
    assert out == "heard 41\nresult 242\n", told
    assert left(history) == {}
    assert history.doctor() == []


def test_the_command_line_answers_a_run_at_work(at_work, where, history):
    child = at_work("one")
    [address] = waiting(history)

    def do(*words):
        command = [sys.executable, "-m", "crewlite", "checkpoint", *words, "--location", where]
        told = children.run(command, capture_output=True, text=True)
        assert told.returncode == 0, told.stderr
        return told.stdout

    assert f"crewlite checkpoint answer r {address} VALUE" in (shown := do("show", "r"))
    assert f"it is at work (process {child.pid} on" in shown
    assert f"it is at work (process {child.pid} on" in do("answer", "r", address, "41")
    ends(child, history, 42)


def test_answers_of_many_at_once_all_arrive(at_work, where, history):
    names = [f"n{number}" for number in range(12)]
    child = at_work(*names)
    addresses = waiting(history, len(names))

    def give(address):
        with History(where) as own:
            return own.answer("r", address, 1)

    with ThreadPoolExecutor(12) as threads:
        assert list(threads.map(give, [*addresses, addresses[0]])).count(True) >= len(names)
    ends(child, history, 13)


@posix
def test_an_answer_that_the_process_does_not_take_is_not_recorded(at_work, history, monkeypatch):
    child = at_work("one")
    [address] = waiting(history)
    os.kill(child.pid, signal.SIGSTOP)
    with monkeypatch.context() as soon:
        soon.setattr(letters, "_PATIENCE", 0.5)
        with pytest.raises(BranchConflictError, match=f"process {child.pid}.*did not record the answer: give it again"):
            history.answer("r", address, 41)
    assert left(history) == {}
    os.kill(child.pid, signal.SIGCONT)
    time.sleep(0.6)  # it looks for letters meanwhile
    assert waiting(history) == [address]
    assert history.answer("r", address, 40)
    ends(child, history, 41)


def test_of_an_answer_that_a_blocked_process_has_taken_the_sender_hears_that_it_may_count(
    at_work, history, monkeypatch
):
    child = at_work(program=BLOCKED)
    monkeypatch.setattr(letters, "_LONGEST", 0.0)
    with pytest.raises(BranchConflictError, match=r"has taken the answer and not recorded it yet.*checkpoint show r"):
        history.answer("r", "human:much", 41)
    assert left(history) == {}
    out, told = child.communicate("1\n")
    assert out == "result 42\n", told


@posix
def test_the_answer_is_recorded_without_the_process_if_that_is_killed_meanwhile(at_work, history, monkeypatch):
    monkeypatch.setattr(letters, "_PATIENCE", 60.0)
    child = at_work("one")
    [address] = waiting(history)
    os.kill(child.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        given = threads.submit(history.answer, "r", address, 41)
        children.until(lambda: left(history))
        child.kill()
        child.wait()
        assert given.result(60)
    assert not history.run("r").waiting
    assert left(history) == {}


@posix
def test_the_answer_is_recorded_without_the_process_if_that_is_killed_with_it(at_work, history, monkeypatch):
    monkeypatch.setenv("DIES", "1")
    child = at_work("one")
    [address] = waiting(history)
    assert history.answer("r", address, 41)
    assert child.wait() == -signal.SIGKILL
    assert not history.run("r").waiting
    assert left(history) == {}


@posix
def test_a_letter_whose_sender_was_killed_does_no_harm(at_work, where, history):
    child = at_work("one")
    [address] = waiting(history)
    os.kill(child.pid, signal.SIGSTOP)
    sender = children.Child([sys.executable, "-c", SENDER, where, address])
    children.until(lambda: left(history))
    sender.kill()
    sender.wait()
    os.kill(child.pid, signal.SIGCONT)
    children.until(lambda: not history.run("r").waiting)  # it is an answer all the same
    children.until(lambda: not left(history))
    ends(child, history, 42)


@posix
def test_a_letter_to_a_killed_process_is_no_answer_to_what_a_later_one_asks(at_work, where, history):
    child = at_work()
    os.kill(child.pid, signal.SIGSTOP)
    sender = children.Child([sys.executable, "-c", SENDER, where, "human:later"])
    children.until(lambda: left(history))
    for both in (sender, child):
        both.kill()
        both.wait()
    history.delete("r")
    again = at_work()
    children.until(lambda: not left(history))
    out, _ = again.communicate("1\n")
    assert "result" not in out
    assert waiting(history) == ["human:later"]


@posix
def test_an_answer_goes_on_to_the_process_that_takes_over_from_the_killed_one(at_work, history, monkeypatch):
    child, began = at_work("one"), []
    [address] = waiting(history)
    os.kill(child.pid, signal.SIGSTOP)

    def take_over(seconds):
        if not began:
            child.kill()
            child.wait()
            began.append(at_work("one"))
        time.sleep(seconds)

    monkeypatch.setattr(letters, "time", SimpleNamespace(**{**vars(time), "sleep": take_over}))
    assert history.answer("r", address, 41)
    ends(began[0], history, 42)


def test_a_store_whose_processes_exchange_nothing_refuses_the_answer(at_work, where, history):
    class Bare(SqliteProvider if where.endswith(".db") else JsonProvider):
        def open(self, location):
            store = super().open(location)
            store.results = None
            return store

    child = at_work("one")
    [address] = waiting(history)
    with History(where, provider=Bare()) as bare:
        with pytest.raises(BranchConflictError, match=f"process {child.pid}"):
            bare.answer("r", address, 41)
    assert history.answer("r", address, 41)
    ends(child, history, 42)


def test_damaged_letters_are_none(at_work, history):
    child = at_work("one")
    [address] = waiting(history)
    for data in (b"[", b"[1]", b'{"a": 1}', b"\xff"):
        history._store.results.remember(letters._KEY, data)
        assert left(history) == {}
    time.sleep(0.6)  # the process looks at them
    assert history.answer("r", address, 41)
    history.answer("r", "human:later", 0)
    out, told = child.communicate("1\n")
    assert "result 42\n" in out
    assert told == ""


def test_an_answer_that_was_typed_with_bytes_of_no_text_arrives_like_any_other(at_work, history):
    program = WORK.replace("int, name=name)", "name=name)").replace('"heard", got', '"heard", ascii(got)')
    child = at_work("one", program=program.replace("part.result()", "len(part.result())"))
    [address] = waiting(history)
    assert history.answer("r", address, "caf\udce9")
    ends(child, history, 5)


def test_an_answer_on_its_way_does_not_count_for_another_question(on_disk, where, history):
    refused = []

    @flow(checkpoint=on_disk())
    def work() -> int:
        return ask("How much?", int, name="more")

    def hear(source, event):
        journal = journal_of(history.run("r")._record.claim, where)
        sent = {"address": "human:more", "value": 7, "at": "2026-01-01T00:00:00+00:00", "digest": "of another question"}
        letter = {"at": 0.0, "run_id": "r", "branch": "main", "claim": journal.claim["id"]}
        refused.append(receive(journal, {**letter, "answer": sent, "ahead": True}))

    with event_bus.on(HumanFeedbackRequestedEvent, hear), pytest.raises(Suspended):
        work.kickoff(run_id="r")
    with pytest.raises(RefError, match="asks something else by now"):
        refused[0].result(60)
    assert history.run("r").waiting


BRIEFLY = """
import sys, time
from crewlite.flow import ask, flow, step
from crewlite import CheckpointConfig
from crewlite.errors import Suspended

@step
def asks(name: str) -> str:
    return ask(f"{name}?", name=name)

@flow(checkpoint=CheckpointConfig(location=sys.argv[1]))
def work() -> str:
    parts = [asks.submit(name) for name in "ab"]
    time.sleep(float(sys.argv[2]))
    return "".join(part.result() for part in parts)

try:
    work.kickoff(run_id="r", wait=True)
except Suspended:
    pass
"""


def answered_at_any_moment(chance, where, program):
    """Answer a run at random moments while it works, suspends or is killed; then what it was told, and what came."""

    def begin():
        return children.Child([sys.executable, str(program), where, str(chance.random() * 1.5)])

    child, told = begin(), {}
    with History(where, make=True) as history:
        children.until(history.runs)
        addresses = sorted(waiting(history, 2), key=lambda address: address[-1])
        time.sleep(chance.random())
        if chance.random() < 0.3:
            threading.Timer(chance.random(), child.kill).start()
        while history.run("r").status != "finished":
            for address in addresses:
                if address in {one.address for one in history.run("r").waiting}:
                    assert address not in told, "an answer that was acknowledged is not asked for again"
                    with contextlib.suppress(BranchConflictError):
                        history.answer("r", address, said := chance.choice("xyz"))
                        told[address] = said
            child.wait()
            child = begin()
        child.wait()
        assert history.doctor() == []
        return "".join(told[address] for address in addresses), history.run("r").result


@pytest.mark.soak
def test_no_answer_is_lost_or_taken_twice_at_whatever_moment_it_comes(where, tmp_path):
    (tmp_path / "briefly.py").write_text(BRIEFLY)
    for seed in range(in_time(200)):
        path = os.path.join(os.path.dirname(where), f"{seed}-{os.path.basename(where)}")
        told, came = answered_at_any_moment(Random(seed), path, tmp_path / "briefly.py")
        assert told == came, f"at seed {seed}"
