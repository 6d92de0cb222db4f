"""Answers given while the run is at work in this process: it hears of them at once."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from crewlite import CheckpointConfig, History, event_bus
from crewlite.errors import AnswerRefused, BranchConflictError, RefError, RunCancelled, Suspended
from crewlite.events import FlowPausedEvent, HumanFeedbackRequestedEvent
from crewlite.flow import ask, flow, step
from crewlite.state import InMemoryProvider
from crewlite.state.journal import letters
from crewlite.system import disk
from tests import children
from tests.state.wrapped import Wrapped


@contextlib.contextmanager
def at_work(work, began, **request):
    """Kick off in a thread, until it has begun; what comes of it is in the list once the block has ended."""
    came = []

    def run():
        try:
            came.append(work.kickoff(**request))
        except Exception as error:
            came.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    began.wait(60)
    yield came
    thread.join(60)
    assert not thread.is_alive()


@pytest.fixture
def slow():
    """A step that goes on when it is let; and when it has begun."""
    began, go = threading.Event(), threading.Event()

    @step
    def slow() -> int:
        began.set()
        go.wait(60)
        return 1

    return slow, began, go


def test_an_answer_given_ahead_to_a_run_at_work_in_this_process_is_heard_by_its_later_question(on_disk, slow):
    waits, began, go = slow

    @flow(checkpoint=on_disk())
    def work() -> int:
        return waits() + ask("How much more?", int, name="more")

    with at_work(work, began, run_id="r") as came, History(on_disk().location) as history:
        history.answer("r", "human:more", 41)
        with pytest.raises(RefError):
            history.answer("r", "task:none", 41)
        go.set()
    assert came == [42]
    with History(on_disk().location) as history:
        assert history.run("r").status == "finished"
        assert history.doctor() == []


def test_a_question_that_waits_while_its_siblings_work_gets_its_answer_in_the_same_kickoff(on_disk, slow):
    waits, began, go = slow
    done, asked = [], threading.Event()

    @step
    def asks() -> int:
        return ask("How much more?", int, name="more")

    @step
    def other() -> int:
        done.append(1)
        return waits()

    @flow(checkpoint=on_disk())
    def work() -> int:
        first, second = other.submit(), asks.submit()
        return first.result() + second.result()

    event_bus.on(HumanFeedbackRequestedEvent, lambda source, event: asked.set())
    with at_work(work, began, run_id="r") as came, History(on_disk().location) as history:
        asked.wait(60)
        address = _waiting(history)
        with pytest.raises(AnswerRefused):
            history.answer("r", address, "no number")
        history.answer("r", address, 41)
        with pytest.raises(AnswerRefused, match="an answer already"):
            history.answer("r", address, 40)
        go.set()
    assert came == [42]
    assert done == [1]


def _waiting(history):
    while True:
        if waiting := history.run("r").waiting:
            return waiting[0].address
        time.sleep(0.005)


@pytest.mark.parametrize("event", [HumanFeedbackRequestedEvent, FlowPausedEvent])
def test_a_handler_may_answer_the_question_it_hears_of(on_disk, event):
    @flow(checkpoint=on_disk())
    def work() -> int:
        return ask("How much?", int, name="much")

    def hear(source, event):
        with History(on_disk().location) as history:
            history.answer("r", "human:much", 7)

    with event_bus.on(event, hear):
        if event is FlowPausedEvent:  # it waits already, and goes on with the next kickoff
            with pytest.raises(Suspended):
                work.kickoff(run_id="r")
    assert work.kickoff(run_id="r") == 7 if event is FlowPausedEvent else True
    with event_bus.on(event, hear):
        if event is HumanFeedbackRequestedEvent:
            assert work.kickoff(run_id="r") == 7


def test_one_of_two_answers_lets_the_run_go_as_far_as_it_can(on_disk, slow):
    waits, began, go = slow
    after, asked = [], threading.Event()

    @step
    def asks(name: str) -> int:
        got = ask(f"How much is {name}?", int)
        after.append(name)
        return got

    @flow(checkpoint=on_disk())
    def work() -> int:
        parts = [asks.submit("one"), asks.submit("two")]
        first = waits()
        return first + sum(part.result() for part in parts)

    heard = []

    def hear(source, event):
        heard.append(event)
        if len(heard) == 2:
            asked.set()

    event_bus.on(HumanFeedbackRequestedEvent, hear)
    with at_work(work, began, run_id="r") as came, History(on_disk().location) as history:
        assert asked.wait(60)
        while len(history.run("r").waiting) < 2:
            time.sleep(0.005)
        first = next(each for each in history.run("r").waiting if "one" in each.question)
        history.answer("r", first.address, 1)
        go.set()
    assert isinstance(came[0], Suspended)
    assert after == ["one"]
    assert len(came[0].waiting) == 1


def test_what_is_begun_does_not_hang_on_how_soon_a_sibling_waits_for_an_answer(on_disk):
    @step
    def asks(name: str) -> int:
        return ask(f"How much is {name}?", int)

    @flow(checkpoint=on_disk())
    def work() -> int:
        first = asks.submit("one")
        while not first.done():
            time.sleep(0.005)
        return sum(part.result() for part in (first, asks.submit("two")))

    with pytest.raises(Suspended) as waits:
        work.kickoff(run_id="r")
    assert len(waits.value.waiting) == 2
    answers = dict.fromkeys(waits.value.waiting, 2)
    assert work.kickoff(run_id="r", answers=answers) == 4


def test_an_answer_to_a_run_that_has_ended_waits_until_the_run_lets_go_of_its_branch(tmp_path):
    ended, held, go = threading.Event(), threading.Event(), threading.Event()
    where = str(tmp_path / "runs.db")  # of a journal in a file, the lock is awaited before it is read

    @flow(checkpoint=CheckpointConfig(location=where))
    def work() -> int:
        return ask("How much?", int, name="much")

    def hold(operation):
        if ended.is_set() and threading.current_thread().name == "crewlite-writer":
            held.set()
            go.wait(60)

    event_bus.on(FlowPausedEvent, lambda source, event: ended.set())
    with disk.watched(hold), at_work(work, held, run_id="r") as came, History(where) as history:
        with ThreadPoolExecutor(1) as threads:
            given = threads.submit(history.answer, "r", "human:much", 41)
            children.until(lambda: given.done() or history._store.results.recall(letters._KEY))
            go.set()
            assert given.result(60)
    assert isinstance(came[0], Suspended)
    assert work.kickoff(run_id="r") == 41


class CancelledAt(Wrapped):
    """A provider with which the run is cancelled right before a commit with this part is stored."""

    part = ""

    def _do(self, store, verb, call, args):
        if (
            verb == "append"
            and self.part
            and any(self.part in entry.commit for one in args[0] for entry in one.entries)
        ):
            self.part = ""
            with History("here", self.inner) as history:
                history.cancel("r")
        return call()


def test_an_answer_to_a_run_that_is_cancelled_at_that_moment_is_recorded_once_it_lets_go(slow):
    waits, began, go = slow
    provider = CancelledAt(InMemoryProvider())

    @flow(checkpoint=CheckpointConfig(location="here", provider=provider))
    def work() -> int:
        return waits() + ask("How much more?", int, name="more")

    with at_work(work, began, run_id="r") as came, History("here", provider) as history:
        provider.part = "answers"
        threading.Timer(0.2, go.set).start()
        assert history.answer("r", "human:more", 41)
    assert isinstance(came[0], RunCancelled)
    assert work.kickoff(run_id="r") == 42


def test_a_label_for_a_run_that_is_cancelled_at_that_moment_is_given_or_refused_as_the_run_holds_its_branch(slow):
    waits, began, go = slow
    provider = CancelledAt(InMemoryProvider())

    @step
    def first() -> int:
        return 1

    @flow(checkpoint=CheckpointConfig(location="here", provider=provider, on_events=["step_completed"]))
    def work() -> int:
        return first() + waits()

    with at_work(work, began, run_id="r") as came, History("here", provider) as history:
        provider.part = "place"
        with contextlib.suppress(BranchConflictError):
            history.label("r@step:first", "good")
        assert not provider.part
        go.set()
    assert isinstance(came[0], RunCancelled)
    with History("here", provider) as history:
        assert history.label("r@step:first", "good").label == "good"
