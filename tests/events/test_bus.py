"""Who hears which event, in which order, and what happens when a handler fails."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import sys
import textwrap
import threading
import time
import weakref

import pytest

from crewlite import Agent, Crew, Task, background
from crewlite.errors import OnLoopThread
from crewlite.events import BaseEvent, StepCompletedEvent, StepStartedEvent, TaskCompletedEvent, TaskFailedEvent
from crewlite.events.event_bus import EventBus, crewlite_event_bus, event_bus
from crewlite.testing import EventRecorder, ScriptedLLM
from tests import children


@pytest.fixture
def bus():
    return EventBus()


def step(name="s"):
    return StepCompletedEvent(kind="step", name=str(name))


def started(name="s"):
    return StepStartedEvent(kind="step", name=str(name))


def completed():
    return TaskCompletedEvent(output="done")


# Who hears what


def test_the_central_bus_has_one_name_more():
    assert crewlite_event_bus is event_bus


def test_handlers_hear_in_the_order_they_were_registered(bus):
    heard = []
    for n in range(30):
        bus.on([StepCompletedEvent, BaseEvent][n % 2], lambda source, event, *, n=n: heard.append(n))
    for _ in range(100):
        bus.emit(None, step())
    assert heard == list(range(30)) * 100


def test_a_base_class_hears_all_below_it_and_a_class_only_its_own(bus):
    all_of_them, steps, tasks = [], [], []
    bus.on(BaseEvent, lambda source, event: all_of_them.append(event.type))
    bus.on(StepStartedEvent.__mro__[1], lambda source, event: steps.append(event.type))
    bus.on(TaskCompletedEvent, lambda source, event: tasks.append(event.type))
    for event in (started(), step(), completed(), TaskFailedEvent(error="x", error_type="X")):
        bus.emit(None, event)
    assert all_of_them == ["step_started", "step_completed", "task_completed", "task_failed"]
    assert steps == ["step_started", "step_completed"]
    assert tasks == ["task_completed"]


def test_a_handler_registered_late_hears_of_classes_that_were_emitted_before(bus):
    bus.emit(None, step())
    heard = []
    bus.on(BaseEvent, lambda source, event: heard.append(event))
    bus.emit(None, event := step())
    assert heard == [event]


def test_on_decorates_a_function_and_gives_it_back(bus):
    heard = []

    @bus.on(StepCompletedEvent)
    def handler(source, event):
        heard.append((source, event))

    assert handler.__name__ == "handler"
    bus.emit("me", event := step())
    assert heard == [("me", event)]
    bus.off(StepCompletedEvent, handler)
    bus.off(StepCompletedEvent, handler)
    bus.off(TaskCompletedEvent, handler)
    bus.emit("me", step())
    assert len(heard) == 1


def test_a_subscription_ends_with_its_block_or_by_cancelling_it(bus):
    heard = []
    with bus.on(StepCompletedEvent, lambda source, event: heard.append(1)) as subscription:
        bus.emit(None, step())
    bus.emit(None, step())
    subscription.cancel()
    other = bus.on(StepCompletedEvent, lambda source, event: heard.append(2))
    bus.emit(None, step())
    other.cancel()
    other.cancel()
    bus.emit(None, step())
    assert heard == [1, 2]


def test_cancelling_one_subscription_leaves_another_of_the_same_handler(bus):
    heard = []

    def handler(source, event):
        heard.append(event.name)

    with bus.on(StepCompletedEvent, handler):
        with bus.on(StepCompletedEvent, handler):
            bus.emit(None, step("two"))
        bus.emit(None, step("one"))
    bus.emit(None, step("none"))
    assert heard == ["two", "two", "one"]


def test_handlers_subscribed_in_a_scope_are_gone_after_it(bus):
    heard = []
    bus.on(StepCompletedEvent, lambda source, event: heard.append("outer"))
    with bus.scoped() as same:
        assert same is bus
        bus.on(BaseEvent, lambda source, event: heard.append("inner"))
        with bus.scoped_handlers():
            bus.on(BaseEvent, lambda source, event: heard.append("innermost"))
            bus.emit(None, step())
        bus.emit(None, step())
    bus.emit(None, step())
    assert heard == ["outer", "inner", "innermost", "outer", "inner", "outer"]


@pytest.mark.parametrize("handler", [lambda: None, lambda event: None, lambda a, b, c, d: None, lambda *, source: None])
def test_a_handler_that_cannot_be_called_with_an_event_is_refused(bus, handler):
    with pytest.raises(TypeError, match=r"as handler; wanted a function of \(source, event\)"):
        bus.on(StepStartedEvent, handler)


@pytest.mark.parametrize("wrong", [int, "task_completed", None, BaseEvent(), object])
def test_only_event_classes_can_be_subscribed_to(bus, wrong):
    with pytest.raises(TypeError, match="wanted an event class"):
        bus.on(wrong, print)


def test_two_buses_share_nothing(bus):
    heard = []
    bus.on(BaseEvent, lambda source, event: heard.append(event))
    EventBus().emit(None, step())
    assert heard == []


# One source alone


class Speaker:
    pass


def test_a_handler_of_one_source_hears_it_alone_in_its_place_in_the_order(bus):
    one, other, heard = Speaker(), Speaker(), []
    bus.on(StepCompletedEvent, lambda source, event: heard.append("first"))
    bus.on(BaseEvent, lambda source, event: heard.append("one"), source=one)

    @bus.on(StepCompletedEvent, source=other)
    def decorated(source, event):
        heard.append("other")

    bus.on(BaseEvent, lambda source, event: heard.append("last"))
    bus.emit(one, step())
    bus.emit(other, step())
    bus.emit(None, step())
    bus.emit(one, started())
    assert heard == ["first", "one", "last", "first", "other", "last", "first", "last", "one", "last"]


def test_a_handler_of_one_source_is_isolated_and_may_be_async_and_take_the_state(bus, caplog):
    speaker, heard = Speaker(), []

    async def later(source, event, state):
        heard.append(state)

    bus.on(StepCompletedEvent, lambda source, event: divide(), source=speaker)
    bus.on(StepCompletedEvent, later, source=speaker)

    async def main():
        bus.emit(speaker, step(), "state")
        bus.emit(Speaker(), step(), "another")
        await bus.aflush()

    asyncio.run(main())
    assert heard == ["state"]
    assert caplog.text.count("ZeroDivisionError: ") == 1


def test_the_bus_tells_whether_a_source_is_heard(bus):
    one, other = Speaker(), Speaker()
    with bus.on(StepCompletedEvent, print, source=one):
        assert bus.hears(StepCompletedEvent) and bus.hears(StepCompletedEvent, one)
        assert not bus.hears(StepCompletedEvent, other) and not bus.hears(StepStartedEvent, one)
    assert not bus.hears(StepCompletedEvent)


def test_off_ends_the_subscriptions_of_a_handler_to_all_sources_or_to_one(bus):
    one, other, heard = Speaker(), Speaker(), []

    def handler(source, event):
        heard.append(event.name)

    def subscribe():
        for source in (one, other, None):
            bus.on(StepCompletedEvent, handler, source=source)

    subscribe()
    bus.off(StepCompletedEvent, handler, source=one)
    bus.emit(one, step("a"))
    bus.emit(other, step("b"))
    bus.off(StepCompletedEvent, handler)
    bus.emit(other, step("c"))
    assert heard == ["a", "b", "b"]
    assert not bus.hears(BaseEvent)
    with bus.scoped():
        subscribe()
    assert not bus.hears(StepCompletedEvent)


def test_a_source_that_is_gone_lets_go_of_its_handlers_and_no_later_object_takes_its_place(bus):
    def handler(source, event):
        heard.append(event.name)

    heard, kept = [], weakref.ref(handler)
    speaker = Speaker()
    bus.on(StepCompletedEvent, handler, source=speaker)
    bus.emit(speaker, step("a"))
    del handler, speaker
    gc.collect()
    assert kept() is None
    assert not bus.hears(StepCompletedEvent)
    for _ in range(50):
        bus.emit(Speaker(), step("b"))
    assert heard == ["a"]


def test_a_bus_that_is_gone_does_not_matter_to_a_source():
    speaker, bus = Speaker(), EventBus()
    bus.on(StepCompletedEvent, lambda source, event: None, source=speaker)
    gone = weakref.ref(bus)
    del bus
    gc.collect()
    assert gone() is None
    del speaker


@pytest.mark.parametrize("wrong", ["crew", 3, ()])
def test_a_source_is_an_object_that_can_be_forgotten(bus, wrong):
    with pytest.raises(TypeError, match="as source; wanted the object that emits the events, such as a crew"):
        bus.on(StepCompletedEvent, print, source=wrong)


def test_sources_come_and_go_on_many_threads_and_each_hears_its_own(bus):
    counts = []
    always = []
    bus.on(BaseEvent, lambda source, event: always.append(1))

    def work(number):
        for n in range(60):
            speaker, heard = Speaker(), []
            mine = f"{number}-{n}"
            bus.on(StepCompletedEvent, lambda source, event, heard=heard: heard.append(event.name), source=speaker)
            if n % 3 == 0:
                bus.on(BaseEvent, lambda source, event: None).cancel()
            bus.emit(speaker, step(mine))
            bus.emit(None, step("nobody"))
            counts.append(heard == [mine])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert counts == [True] * 360
    assert len(always) == 720
    bus.emit(None, step())
    assert [bus.hears(StepCompletedEvent), bus.hears(StepStartedEvent)] == [True, True]


def test_a_finalizer_that_ends_a_subscription_meanwhile_is_not_undone(bus):
    heard, ending = [], []

    class Odd:
        """Its comparison, in the middle of `off`, ends another subscription."""

        def __call__(self, source, event):
            heard.append("odd")

        def __eq__(self, other):
            for subscription in ending:
                subscription.cancel()
            return False

        __hash__ = None

    bus.on(StepCompletedEvent, Odd())
    ending.append(bus.on(StepCompletedEvent, lambda source, event: heard.append("second")))
    bus.off(StepCompletedEvent, print)
    bus.emit(None, step())
    assert heard == ["odd"]


def test_one_crew_is_heard_of_two_of_the_same_kind():
    agent = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(lambda messages: "At noon."))
    mine, theirs = (
        Crew(tasks=[Task(name="tides", description="When?", expected_output="A time", agent=agent)]) for _ in range(2)
    )
    heard = []
    with (
        event_bus.on(BaseEvent, lambda source, event: heard.append((source, event.type)), source=mine),
        event_bus.on(BaseEvent, lambda source, event: heard.append((source, event.type)), source=theirs.tasks[0]),
    ):
        mine.kickoff()
        theirs.kickoff()
    assert heard == [
        (mine, "crew_kickoff_started"),
        (mine, "crew_kickoff_completed"),
        (theirs.tasks[0], "task_started"),
        (theirs.tasks[0], "task_completed"),
    ]


# What a handler is given


class Handlers:
    def __init__(self):
        self.heard = []

    def two(self, source, event):
        self.heard.append((source, event))

    def three(self, source, event, state):
        self.heard.append((source, event, state))

    def __call__(self, source, event, state):
        self.heard.append((source, event, state))

    @staticmethod
    def static(source, event, state): ...

    @classmethod
    def of_class(cls, source, event, state): ...


def test_handlers_that_take_three_arguments_are_given_the_state(bus):
    one, heard = Handlers(), []

    def unresolvable(source: Nowhere, event: NoSuchType, state: "also nothing") -> Nothing:  # noqa: F821, F722, UP037
        heard.append(state)

    taking_three = [
        *(one.three, one),
        lambda s, e, state: heard.append(state),
        lambda *args: heard.append(args[2]),
        lambda source, *rest: heard.append(rest[1]),
        lambda s, e, state=None: heard.append(state),
        functools.partial(lambda x, s, e, state: heard.append(state), 0),
        unresolvable,
    ]
    taking_two = [one.two, lambda s, e: heard.append("two"), lambda s, e, *, state="own": heard.append(state)]
    for handler in (*taking_three, *taking_two):
        bus.on(StepCompletedEvent, handler)
    bus.emit("source", event := step(), "state")
    assert one.heard == [("source", event, "state")] * 2 + [("source", event)]
    assert heard == ["state"] * 6 + ["two", "own"]


def test_methods_of_classes_can_be_handlers(bus, caplog):
    bus.on(StepCompletedEvent, Handlers.static)
    bus.on(StepCompletedEvent, Handlers.of_class)
    bus.emit(None, step(), "state")
    assert caplog.text == ""


def test_handlers_are_kept_alive_by_the_bus_alone(bus):
    heard = []

    class Counter:
        def hear(self, source, event):
            heard.append(1)

    bus.on(StepCompletedEvent, Counter().hear)
    bus.on(StepCompletedEvent, lambda source, event: heard.append(2))
    for _ in range(3):
        gc.collect()
    bus.emit(None, step())
    assert heard == [1, 2]


# Errors


class Rude(BaseException):
    pass


def divide():
    return 1 / 0


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


# Events in answer to events


def test_an_event_emitted_by_a_handler_waits_until_the_current_one_was_heard_by_all(bus):
    heard = []

    def first(source, event):
        heard.append(f"first {event.type}")
        if event.type == "step_started":
            bus.emit(None, step())
            bus.emit(None, completed())

    bus.on(BaseEvent, first)
    bus.on(BaseEvent, lambda source, event: heard.append(f"second {event.type}"))
    bus.emit(None, started())
    assert heard == [
        f"{who} {what}" for what in ("step_started", "step_completed", "task_completed") for who in ("first", "second")
    ]


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


def test_a_handler_that_unsubscribes_itself_hears_no_more(bus):
    heard = []

    def once(source, event):
        heard.append(event)
        bus.off(StepCompletedEvent, once)

    bus.on(StepCompletedEvent, once)
    bus.on(StepCompletedEvent, lambda source, event: heard.append("other"))
    bus.emit(None, first := step())
    bus.emit(None, step())
    assert heard == [first, "other", "other"]


# Async handlers


def slow_first(heard):
    async def handler(source, event):
        if event.name == "0":
            await asyncio.sleep(0.02)
        heard.append(event.name)

    return handler


def test_an_async_handler_hears_in_order_though_it_takes_its_time(bus):
    heard, others = [], []
    bus.on(StepCompletedEvent, slow_first(heard))
    bus.on(StepCompletedEvent, slow_first(others))
    for n in range(50):
        bus.emit(None, step(n))
    assert bus.flush(5)
    assert heard == others == [str(n) for n in range(50)]


def test_async_handlers_run_on_the_loop_that_emits_and_aflush_waits_for_them(bus):
    heard, where = [], []

    async def handler(source, event, state):
        await asyncio.sleep(0)
        heard.append((event.name, state))
        where.append(asyncio.get_running_loop())

    bus.on(StepCompletedEvent, handler)

    async def main():
        for n in range(20):
            bus.emit(None, step(n), n)
        assert heard == []
        assert await bus.aflush() == []
        assert set(where) == {asyncio.get_running_loop()}

    asyncio.run(main())
    assert heard == [(str(n), n) for n in range(20)]


def test_one_bus_serves_many_loops_one_after_another(bus):
    heard = []

    async def handler(source, event):
        heard.append(event.name)

    bus.on(StepCompletedEvent, handler)

    async def main(n):
        bus.emit(None, step(n))
        await bus.aflush()

    for n in range(5):
        asyncio.run(main(n))
    assert heard == [str(n) for n in range(5)]


def test_async_callables_and_methods_are_awaited(bus):
    heard = []

    class Object:
        async def __call__(self, source, event):
            heard.append("called")

        async def method(self, source, event, state):
            heard.append(state)

    bus.on(StepCompletedEvent, Object())
    bus.on(StepCompletedEvent, Object().method)
    bus.on(StepCompletedEvent, functools.partial(Object().method, state="partial"))
    bus.emit(None, step(), "state")
    assert bus.flush(5)
    assert sorted(heard) == ["called", "partial", "state"]


def test_events_from_plain_threads_reach_sync_and_async_handlers(bus):
    sync, later = [], []

    async def handler(source, event):
        later.append(event.name)

    bus.on(StepCompletedEvent, lambda source, event: sync.append(event.name))
    bus.on(StepCompletedEvent, handler)
    names = [[f"{t}-{n}" for n in range(100)] for t in range(4)]
    threads = [threading.Thread(target=lambda mine=mine: [bus.emit(None, step(n)) for n in mine]) for mine in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bus.flush(5)
    for heard in (sync, later):
        for mine in names:
            assert [name for name in heard if name in set(mine)] == mine


def test_a_handler_that_takes_too_long_is_named_and_goes_on(bus, caplog):
    release = threading.Event()
    heard = []

    async def dawdling(source, event):
        while not release.is_set():
            await asyncio.sleep(0.001)
        heard.append(event.name)

    bus.on(StepCompletedEvent, dawdling)
    bus.emit(None, step("late"))
    assert bus.flush(0.01) is False
    assert "dawdling" in caplog.text
    release.set()
    assert bus.flush(5)
    assert heard == ["late"]


def test_a_flush_past_a_handler_that_blocks_its_loop_says_no(bus):
    """In a loop of its own: the background loop belongs to everybody."""
    release, ready = threading.Event(), threading.Event()

    async def blocking(source, event):
        release.wait(5)

    async def main():
        bus.on(StepCompletedEvent, blocking)
        bus.emit(None, step())
        ready.set()
        await bus.aflush()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    ready.wait(5)
    assert bus.flush(0) is False
    release.set()
    thread.join()


def test_a_cancelled_handler_loses_only_its_own_event_and_no_order(bus):
    heard = []

    async def handler(source, event):
        if event.name == "0":
            raise asyncio.CancelledError
        heard.append(event.name)

    bus.on(StepCompletedEvent, handler)

    async def main():
        for n in range(5):
            bus.emit(None, step(n))
        await asyncio.sleep(0)
        await bus.aflush()

    asyncio.run(main())
    assert heard == ["1", "2", "3", "4"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_handler_whose_task_was_cancelled_hears_what_waited_before_what_comes_next(bus, begun):
    heard = []

    async def handler(source, event):
        heard.append(event.name)
        await asyncio.sleep(60 if event.name == "0" and begun else 0)

    async def main():
        for n in range(3):
            bus.emit(None, step(n))
        await asyncio.sleep(0) if begun else None
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)
        await bus.aflush(5)
        bus.emit(None, step(3))
        await bus.aflush(5)

    bus.on(StepCompletedEvent, handler)
    asyncio.run(main())
    assert heard == ["0", "1", "2", "3"]


def test_a_flush_goes_on_though_the_task_of_a_handler_is_cancelled_meanwhile(bus):
    heard = []

    async def handler(source, event):
        heard.append(event.name)
        await asyncio.sleep(60 if event.name == "0" else 0)

    async def main():
        for n in range(3):
            bus.emit(None, step(n))
        (handling,) = asyncio.all_tasks() - {asyncio.current_task()}
        flushed = asyncio.create_task(bus.aflush(5))
        await asyncio.sleep(0)
        handling.cancel()
        return await flushed

    bus.on(StepCompletedEvent, handler)
    assert asyncio.run(main()) == []
    assert heard == ["0", "1", "2"]


def test_what_a_loop_left_undelivered_goes_with_it(bus):
    left = []

    async def handler(source, event):
        await asyncio.sleep(60)

    async def main():
        for n in range(3):
            bus.emit(None, event := step(n))
            left.append(weakref.ref(event))
        await asyncio.sleep(0)

    subscription = bus.on(StepCompletedEvent, handler)
    for _ in range(3):
        asyncio.run(main())
    subscription.cancel()
    gc.collect()
    assert [event() for event in left] == [None] * 9


def test_an_async_handler_may_emit_and_flush_waits_for_what_follows(bus):
    heard = []

    async def first(source, event):
        await asyncio.sleep(0)
        bus.emit(None, completed())

    async def second(source, event):
        heard.append(event.type)

    bus.on(StepCompletedEvent, first)
    bus.on(TaskCompletedEvent, second)
    bus.emit(None, step())
    assert bus.flush(5)
    assert bus.flush(5)
    assert heard == ["task_completed"]


def test_flush_on_the_background_loop_would_wait_for_itself(bus):
    raised = []

    async def handler(source, event):
        try:
            bus.flush()
        except OnLoopThread as error:
            raised.append(str(error))

    bus.on(StepCompletedEvent, handler)
    bus.emit(None, step())
    assert bus.flush(5)
    assert "await aflush()" in raised[0]


def test_flush_with_nothing_to_wait_for_is_done_at_once(bus):
    assert bus.flush(0)
    assert asyncio.run(bus.aflush(0)) == []


def run(code):
    return children.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)


def test_what_async_handlers_have_not_heard_at_the_end_of_the_program_they_hear_still():
    done = run(
        """
        import asyncio
        from crewlite.events import StepCompletedEvent
        from crewlite.events.event_bus import event_bus

        @event_bus.on(StepCompletedEvent)
        async def handler(source, event):
            await asyncio.sleep(0.02)
            print(event.name, flush=True)

        for n in range(5):
            event_bus.emit(None, StepCompletedEvent(kind="step", name=str(n)))
        """
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["0", "1", "2", "3", "4"], "")


def test_events_emitted_while_the_program_ends_are_heard_too():
    done = run(
        """
        import asyncio, atexit
        from crewlite.events import StepCompletedEvent
        from crewlite.events.event_bus import event_bus

        @event_bus.on(StepCompletedEvent)
        async def handler(source, event):
            await asyncio.sleep(0.02)
            print("async", event.name, flush=True)

        @event_bus.on(StepCompletedEvent)
        def plain(source, event):
            print("plain", event.name, flush=True)

        event_bus.emit(None, StepCompletedEvent(kind="step", name="during"))
        atexit.register(lambda: event_bus.emit(None, StepCompletedEvent(kind="step", name="at exit")))
        """
    )
    lines = ["async at exit", "async during", "plain at exit", "plain during"]
    assert (done.returncode, sorted(done.stdout.splitlines()), done.stderr) == (0, lines, "")


# The recorder that tests use


def test_the_recorder_keeps_events_in_order():
    with EventRecorder() as events:
        event_bus.emit(None, first := started())
        event_bus.emit(None, step())
        event_bus.emit(None, completed())
    event_bus.emit(None, completed())
    assert events.types == ["step_started", "step_completed", "task_completed"]
    assert len(events) == 3
    assert list(events)[0] is events[0] is first
    assert [event.name for event in events.of(StepCompletedEvent)] == ["s"]
    assert events.of(BaseEvent) == list(events)
    assert "step_started" in repr(events)


def test_the_recorder_can_listen_to_one_run():
    with EventRecorder(run_id="mine") as mine, EventRecorder() as everything:
        for run_id in ("mine", "theirs", None, "mine"):
            event_bus.emit(None, StepCompletedEvent(kind="step", name="s", run_id=run_id))
    assert [event.run_id for event in mine] == ["mine", "mine"]
    assert len(everything) == 4


def test_recorders_do_not_disturb_each_other_and_can_go_on():
    with EventRecorder() as outer:
        with EventRecorder() as inner:
            event_bus.emit(None, step())
        event_bus.emit(None, completed())
        with inner:
            event_bus.emit(None, started())
    assert outer.types == ["step_completed", "task_completed", "step_started"]
    assert inner.types == ["step_completed", "step_started"]


def test_the_recorder_stops_listening_when_its_block_raises():
    with pytest.raises(ZeroDivisionError), EventRecorder() as events:
        divide()
    event_bus.emit(None, step())
    assert len(events) == 0


def test_the_recorder_listens_to_any_bus(bus):
    with EventRecorder(bus=bus) as events:
        bus.emit(None, step())
        event_bus.emit(None, completed())
    assert events.types == ["step_completed"]


def test_the_module_of_the_bus_says_where_the_bus_is():
    from crewlite.events import event_bus as module

    with pytest.raises(AttributeError, match="from crewlite import event_bus"):
        module.on(BaseEvent, print)
