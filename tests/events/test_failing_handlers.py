"""Handlers that raise, end the program, or emit without end."""

from __future__ import annotations

import functools
import logging
import sys
import time

import pytest

from crewlite.concurrency import background
from crewlite.events import StepCompletedEvent, StepStartedEvent, TaskCompletedEvent
from tests.events.spoken import completed, divide, started, step


class Rude(BaseException):
    pass


def index():
    return ()[len(sys.argv) + 1]


def recurse():
    return recurse()


def throw(error):
    raise error


KINDS = {
    **{kind.__name__: functools.partial(throw, kind("no")) for kind in (ValueError, TypeError, OSError, MemoryError)},
    **{kind.__name__: functools.partial(throw, kind("no")) for kind in (StopIteration, StopAsyncIteration, EOFError)},
    **{kind.__name__: functools.partial(throw, kind("no")) for kind in (AssertionError, NotImplementedError, Warning)},
    **{kind.__name__: functools.partial(throw, kind("no")) for kind in (GeneratorExit, Rude, TimeoutError, NameError)},
    "ExceptionGroup": functools.partial(throw, ExceptionGroup("no", [ValueError("a")])),
    "BaseExceptionGroup": functools.partial(throw, BaseExceptionGroup("no", [Rude("a")])),
    "UnicodeDecodeError": lambda: b"\xff".decode(),
    "division": divide,
    "index": index,
    "recursion": recurse,
    "attribute": lambda: None.nothing,
    "key": lambda: {}["x"],
    "import": lambda: __import__("no_such_module"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_that_raises_breaks_nothing_and_is_logged_by_its_name(bus, kind, caplog):
    heard = []

    def careless(source, event):
        KINDS[kind]()

    bus.on(StepCompletedEvent, lambda source, event: heard.append("before"))
    bus.on(StepCompletedEvent, careless)
    bus.on(StepCompletedEvent, lambda source, event: heard.append("after"))
    bus.emit(None, step())
    bus.emit(None, step())
    assert heard == ["before", "after"] * 2
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(logged) == 2
    assert "careless failed on step_completed" in logged[0].getMessage()
    assert logged[0].exc_info


@pytest.mark.parametrize("kind", KINDS)
def test_an_async_handler_that_raises_breaks_nothing_and_is_logged_by_its_name(bus, kind, caplog):
    heard = []

    async def careless(source, event):
        KINDS[kind]()

    async def careful(source, event):
        heard.append(event.name)

    bus.on(StepCompletedEvent, careless)
    bus.on(StepCompletedEvent, careful)
    for n in range(3):
        bus.emit(None, step(n))
    assert bus.flush(5)
    assert heard == ["0", "1", "2"]
    assert caplog.text.count("careless failed on step_completed") == 3


@pytest.mark.parametrize("stop", [SystemExit, KeyboardInterrupt])
def test_a_handler_may_end_the_program(bus, stop):
    bus.on(StepCompletedEvent, lambda source, event: throw(stop()))
    with pytest.raises(stop):
        bus.emit(None, step())
    heard = []
    bus.on(TaskCompletedEvent, lambda source, event: heard.append(event))
    bus.emit(None, completed())
    assert len(heard) == 1


@pytest.mark.parametrize("stop", [SystemExit, KeyboardInterrupt])
def test_a_handler_cannot_end_the_loop_that_all_runs_share(bus, stop, caplog):
    async def emit():
        bus.emit(None, step())
        return "went on"

    def quitting(source, event):
        raise stop

    bus.on(StepCompletedEvent, quitting)
    assert background.submit(emit()).result(5) == "went on"
    assert background.submit(emit()).result(5) == "went on"
    assert caplog.text.count("quitting failed on step_completed") == 2


def test_handlers_without_a_name_are_logged_all_the_same(bus, caplog):
    bus.on(StepCompletedEvent, functools.partial(lambda error, s, e: throw(error), ValueError("partial")))
    bus.emit(None, step())
    assert "partial" in caplog.text


def test_ten_thousand_events_arrive_in_exact_order_beside_handlers_that_raise(bus, caplog):
    caplog.set_level(logging.CRITICAL + 1, "crewlite.events")
    heard: list[list[str]] = [[] for _ in range(8)]

    def failing(source, event):
        raise ValueError(event.name)

    for n in range(10):
        bus.on(
            StepCompletedEvent, failing if n % 5 == 4 else lambda s, e, *, mine=heard[n - n // 5]: mine.append(e.name)
        )
    names = [str(n) for n in range(10_000)]
    for name in names:
        bus.emit(None, step(name))
    assert all(mine == names for mine in heard)


def test_an_endless_loop_is_stopped_and_its_chain_told(bus, caplog):
    heard = []

    def ping(source, event):
        heard.append(event.type)
        bus.emit(None, completed())

    def pong(source, event):
        heard.append(event.type)
        bus.emit(None, step())

    bus.on(StepCompletedEvent, ping)
    bus.on(TaskCompletedEvent, pong)
    bus.emit(None, step())
    assert len(heard) == 64
    assert "step_completed -> task_completed -> step_completed" in caplog.text
    bus.emit(None, step())
    assert len(heard) == 128


def test_an_endless_loop_of_async_handlers_is_stopped_too(bus, caplog):
    heard = []

    async def again(source, event):
        heard.append(event.type)
        bus.emit(None, step())

    bus.on(StepCompletedEvent, again)
    bus.emit(None, step())
    while bus.flush(5) and len(heard) < 64:
        time.sleep(0.001)
    assert bus.flush(5)
    assert len(heard) == 64
    assert "step_completed -> step_completed" in caplog.text


def test_many_events_in_a_row_are_no_loop(bus, caplog):
    heard = []

    def burst(source, event):
        for n in range(500):
            bus.emit(None, step(n))

    bus.on(StepStartedEvent, burst)
    bus.on(StepCompletedEvent, lambda source, event: heard.append(event.name))
    bus.emit(None, started())
    assert heard == [str(n) for n in range(500)]
    assert caplog.text == ""
