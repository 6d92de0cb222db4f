"""Handlers of one source: they hear what that object emits, and go with it."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from crewlite import Agent, Crew, Task
from crewlite.events import BaseEvent, StepCompletedEvent, StepStartedEvent
from crewlite.events.event_bus import EventBus, event_bus
from crewlite.testing import ScriptedLLM
from tests.events.spoken import divide, started, step


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
