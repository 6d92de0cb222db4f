"""Attributes of flows: kickoffs of one object at the same time do not see each other's, and none hides what all have."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest
from pydantic import BaseModel, Field, PrivateAttr

from crewlite import event_bus
from crewlite.errors import ConfigError, Suspended
from crewlite.events import FlowInputRequestedEvent, MethodExecutionFinishedEvent
from crewlite.flow import Flow, listen, start


class Greeting(Flow):
    """Its two kickoffs set the same attribute at the same moment."""

    met: Barrier

    def __init__(self) -> None:
        super().__init__()
        self.met = Barrier(2)
        self.seen: list[str] = []

    @start()
    def choose(self, name):
        self.met.wait(10)
        self.customer = name
        self.met.wait(10)
        return name

    @listen(choose)
    def greet(self, name):
        self.seen.append(name)
        return f"dear {self.customer}", name, self.state["name"]


WANTED = [("dear ada", "ada", "ada"), ("dear bob", "bob", "bob")]


def in_threads(flow):
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda name: flow.kickoff({"name": name}), ("ada", "bob")))


def in_tasks(flow):
    async def both():
        return await asyncio.gather(*(flow.akickoff({"name": name}) for name in ("ada", "bob")))

    return asyncio.run(both())


def submitted(flow):
    handles = [flow.submit({"name": name}) for name in ("ada", "bob")]
    return [handle.result() for handle in handles]


@pytest.mark.parametrize("at_once", [in_threads, in_tasks, submitted])
def test_kickoffs_of_one_flow_at_once_do_not_see_each_others_attributes(at_once):
    flow = Greeting()
    assert at_once(flow) == WANTED
    assert sorted(flow.seen) == ["ada", "bob"]  # what was in an attribute before is the same for all
    assert at_once(flow) == WANTED


def test_the_source_of_events_is_the_flow_itself_in_each_of_them():
    flow, sources = Greeting(), []
    with event_bus.scoped():
        event_bus.on(MethodExecutionFinishedEvent, lambda source, event: sources.append(source))
        in_threads(flow)
    assert len(sources) == 4
    assert all(source is flow for source in sources)


class Asking(Flow):
    met = Barrier(2)

    @start()
    def meet(self):
        self.met.wait(10)
        self.by = self.state["name"]
        return self.ask(f"Is {self.by} right?", bool)


def test_a_method_on_a_copy_asks_a_person_as_the_flow_itself_does(memory):
    flow, asked = Asking(checkpoint=memory()), []

    def waits(name):
        with pytest.raises(Suspended):
            flow.kickoff({"name": name})

    with event_bus.scoped():
        event_bus.on(FlowInputRequestedEvent, lambda source, event: asked.append((source is flow, event.message)))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(waits, ("ada", "bob")))
    assert sorted(asked) == [(True, "Is ada right?"), (True, "Is bob right?")]


def test_after_a_lone_kickoff_the_attributes_are_on_the_flow():
    class Lone(Flow):
        @start()
        def first(self):
            self.found = "text"

    flow = Lone()
    flow.kickoff()
    assert flow.found == "text"


def test_a_kickoff_of_the_flow_in_a_method_of_its_own_has_other_attributes():
    class Deep(Flow):
        @start()
        def first(self, depth):
            self.depth = depth
            inner = self.kickoff({"depth": depth - 1}) if depth else []
            return [self.depth, self.state["depth"], *inner]

    assert Deep().kickoff({"depth": 2}) == [2, 2, 1, 1, 0, 0]


def test_a_thread_that_is_not_bound_gets_the_error_about_the_state_from_a_copy_too():
    class Leaky(Flow):
        @start()
        def first(self, met):
            met.wait(10)
            with ThreadPoolExecutor(1) as pool, pytest.raises(ConfigError, match="is running"):
                pool.submit(lambda: self.state).result()
            met.wait(10)
            return True

    flow, met = Leaky(), Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: flow.kickoff({"met": met}), range(2))) == [True, True]


def test_a_kickoff_that_begins_later_does_not_see_what_the_first_has_set():
    begun, goes_on = Event(), Event()

    class Late(Flow):
        @start()
        def first(self):
            seen = getattr(self, "customer", None)
            self.customer = self.state["name"]
            if seen is None and self.state["name"] == "ada":
                begun.set()
                goes_on.wait(10)
            return seen

    flow = Late()
    with ThreadPoolExecutor(2) as pool:
        ada = pool.submit(flow.kickoff, {"name": "ada"})
        begun.wait(10)
        assert flow.kickoff({"name": "bob"}) is None
        goes_on.set()
        assert ada.result() is None


class Log(Flow):
    """A flow with attributes that pydantic declares, as flows for CrewAI have them."""

    lines: list[str] = Field(default_factory=list)
    _port: str = PrivateAttr(default="Brest")
    _seen: list[str] = PrivateAttr(default_factory=list)
    _none: str = PrivateAttr()

    def __init__(self, port=None, **settings):
        super().__init__(**settings)
        self._port = port or self._port

    @start()
    def note(self):
        self._seen.append(self._port)
        return self._port


class Longer(Log):
    _port: str = PrivateAttr(default="Lorient")


def test_each_flow_has_its_own_values_of_what_pydantic_declares():
    log, other, longer = Log(), Log("Nantes"), Longer(name="longer")
    assert [one.kickoff() for one in (log, other, longer, log)] == ["Brest", "Nantes", "Lorient", "Brest"]
    assert [one._seen for one in (log, other, longer)] == [["Brest", "Brest"], ["Nantes"], ["Lorient"]]
    assert log.lines == [] and log.lines is not other.lines


class Waters(BaseModel):
    metres: float = 0.0


@pytest.mark.parametrize("value", [Waters, Waters(), {"metres": 1.0}, Field(default=1)])
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("state", r"the state of a flow is declared as in class Plan\(Flow\[PlanState\]\), or by initial_state="),
        ("graph", "this would hide graph of every flow"),
        ("last_human_feedback", "this would hide last_human_feedback of every flow"),
        ("mermaid", r"this would hide mermaid\(\) of every flow"),
        ("fork", r"this would hide fork\(\) of every flow"),
    ],
)
def test_an_attribute_that_would_hide_what_every_flow_has_is_refused_on_the_class_and_on_an_object(name, hint, value):
    with pytest.raises(ConfigError, match=f"a flow has no setting '{name}'; {hint}"):
        type("Plan", (Flow,), {name: value, "begin": start()(lambda self: None)})
    if name != "state":
        with pytest.raises(ConfigError, match=f"has no setting '{name}'; {hint}"):
            setattr(Flow(), name, value)


def test_a_setting_of_checkpoints_on_a_flow_says_where_it_belongs():
    belongs = r"'on_drift'; it is a setting: checkpoint=CheckpointConfig\(on_drift=...\)"
    with pytest.raises(ConfigError, match=f"a flow has no setting {belongs}"):
        type("Plan", (Flow,), {"on_drift": "rerun", "begin": start()(lambda self: None)})
    with pytest.raises(ConfigError, match=f"no setting and no field of its state {belongs}"):
        Longer(on_drift="rerun")


def test_a_misspelt_setting_of_an_object_is_refused_and_what_the_class_declares_is_its_own():
    class Tides(Flow):
        checkpoints: list[str]

        def __init__(self):
            super().__init__()
            self.checkpoints, self.names, self.port = ["buoy"], ["Brest"], "Brest"

        @start()
        def begin(self):
            return self.port

    flow = Tides()
    for name in ("verbos", "chekpoint"):
        with pytest.raises(ConfigError, match=f"flow 'Tides' has no setting '{name}'; did you mean .* resembles no"):
            setattr(flow, name, True)
    assert (flow.kickoff(), flow.checkpoints) == ("Brest", ["buoy"])
