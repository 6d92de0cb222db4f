"""Who hears which event, in which order, and what happens when a handler fails."""

from __future__ import annotations

import functools
import gc
import itertools
import sys

import pytest

from crewlite.events import BaseEvent, StepCompletedEvent, StepStartedEvent, TaskCompletedEvent, TaskFailedEvent
from crewlite.events.event_bus import EventBus, crewlite_event_bus, event_bus
from tests.events.spoken import completed, started, step


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


def test_the_module_of_the_bus_says_where_the_bus_is():
    from crewlite.events import event_bus as module

    with pytest.raises(AttributeError, match="from crewlite import event_bus"):
        module.on(BaseEvent, print)


def test_a_handler_is_heard_though_another_one_ends_in_the_middle_of_its_subscription(bus):
    """As garbage collection may end it, at any call: of a stream whose run nobody awaits any more."""
    ends = itertools.count(1)
    while True:
        other, heard, left = bus.on(StepCompletedEvent, lambda source, event: None), [], next(ends)

        def watch(frame, event, argument, other=other):
            nonlocal left
            left -= 1
            if left == 0:
                other.cancel()

        sys.settrace(watch)
        try:
            bus.on(StepCompletedEvent, lambda source, event, heard=heard: heard.append(event))
        finally:
            sys.settrace(None)
        bus.emit(None, step())
        assert len(heard) == 1
        if left > 0:
            return
