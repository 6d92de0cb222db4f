"""A run that was cut comes to the state of one that was not: after a conflict, with a cache, with handlers of its start."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import pickle
import statistics
import sys

import pytest

from crewlite import event_bus
from crewlite.encoding import homes
from crewlite.encoding.codec import decode, encode
from crewlite.errors import ConfigError, NotCodable
from crewlite.events import FlowStartedEvent, StepCompletedEvent, StepStartedEvent
from crewlite.flow import flow, step
from crewlite.state import RuntimeState
from crewlite.state.format.operations import items_moved
from tests.children import run
from tests.cuts import RUN, cut, cut_anywhere, entries_of, kept_by


def state():
    return RuntimeState.current()


def held(whole, setting, **more):
    """The result of the flow, which is the same when it is cut after any commit and resumed."""
    expected = whole(setting).kickoff(run_id=RUN)
    cut_anywhere(whole, setting, expected, **more)
    return expected


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_step_resumed_right_after_a_conflict_begins_with_what_the_other_left(stored, order):
    @step(retries=1)
    async def count(n):
        before = state().get("count", 0)
        await asyncio.sleep(0.1 * n)
        state()["count"] = before + 1

    def whole(setting):
        @flow(checkpoint=setting, name="two")
        async def two():
            await asyncio.gather(*map(count, order))
            return state()["count"]

        return two

    assert held(whole, stored(on_conflict="error"), on_conflict="error") == 2


def test_what_a_handler_sets_at_the_start_of_a_step_holds_after_a_conflict_too(stored):
    @event_bus.on(StepStartedEvent)
    def begun(source, event, state):
        state[event.address] = True

    @step(retries=1)
    async def count(n):
        before = state().get("count", 0)
        await asyncio.sleep(0.05 * n)
        state()["count"] = before + 1

    def whole(setting):
        @flow(checkpoint=setting, name="two")
        async def two():
            await asyncio.gather(count(0), count(1))
            return dict(state())

        return two

    expected = {"step:count": True, "step:count#2": True, "count": 2}
    assert held(whole, stored(on_conflict="error"), on_conflict="error") == expected


def test_items_of_a_cached_answer_are_those_of_the_step_that_reuses_it(stored):
    @step
    def inner(x):
        return state().collection("notes").add(f"inner {x}")

    @step(cache=True, version=1)
    def note(x):
        notes = state().collection("notes")
        notes.remove(notes.add("passing"))
        notes.add(x)
        inner(x)

    @flow(checkpoint=stored())
    def work(xs):
        for x in xs:
            note(x)
        return list(state().collection("notes").values()), list(state().collection("notes"))

    assert work.kickoff(["a"], run_id="one")[0] == ["a", "inner a"]
    texts, ids = work.kickoff(["b", "a", "a"], run_id="two")
    assert texts == ["b", "inner b", "a", "inner a", "a", "inner a"]
    assert ids[2:4] == ["step:note#2.2", "step:note#2/step:inner.1"]


def test_only_the_items_of_the_step_itself_get_new_ids():
    operations = [
        ["set", ["$items:n", "step:a.1"], 1],
        ["set", ["$items:n", "step:a!2/step:b.1"], 2],
        ["remove", ["$items:n", "step:a#2.1"]],
        ["remove", ["$items:n", "step:a.b.1"]],
        ["set", ["n", "step:a.1"], 3],
    ]
    ids = [path[1] for _, path, *_ in items_moved(operations, "step:a", "step:z")]
    assert ids == ["step:z.1", "step:z!2/step:b.1", "step:a#2.1", "step:a.b.1", "step:a.1"]


def test_what_handlers_set_at_the_start_of_a_run_is_set_once(stored):
    @event_bus.on(FlowStartedEvent)
    def begun(source, event, state):
        state["n"] = state.get("n", 0) + 1
        state.setdefault("log", []).append("started")
        state.collection("c").add("start")

    @event_bus.on(StepCompletedEvent)
    def ended(source, event, state):
        state.collection("c").add(event.address)

    @step
    def act(n):
        return n

    def whole(setting):
        @flow(checkpoint=setting, name="work")
        def work():
            act(1)
            return state()["n"], list(state()["log"]), len(state().collection("c"))

        return work

    setting = stored()
    expected = whole(setting).kickoff(run_id=RUN)
    assert expected == (1, ["started"], 2)
    assert kept_by(setting)[1] == {"c": {"run+1": "start", "step:act+1": "step:act"}}
    entries = entries_of(setting)
    for at in range(1, len(entries)):
        again = cut(entries, at)
        result = whole(again).kickoff(run_id=RUN)
        assert result[:2] == expected[:2], f"cut after commit {at}"
        assert kept_by(again)[0] == kept_by(setting)[0]
        assert kept_by(again)[1]["c"]["run+1"] == "start" and "run+2" not in kept_by(again)[1]["c"]


def test_what_a_state_or_a_collection_cannot_do_is_told_with_what_to_do_instead():
    @step
    def act():
        found = state().collection("notes")
        with pytest.raises(ConfigError, match=r"collection 'notes' has no set.* Use add"):
            found["x"] = 1
        with pytest.raises(ConfigError, match=r"has no del.* remove\(id\)"):
            del found["x"]
        with pytest.raises(ConfigError, match="has no clear.* remove all items"):
            found.clear()
        with pytest.raises(AttributeError, match="'Collection' object has no attribute 'other'"):
            found.other()
        with pytest.raises(KeyError, match="collection 'notes' has no item 'nope'"):
            found.remove("nope")
        with pytest.raises(ConfigError, match="the state of a running step has no close"):
            state().close()
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(ConfigError, match=r"Copy the values: copy.deepcopy\(dict\(state\)\)"):
                copied(state())

    @flow
    def work():
        act()

    work.kickoff()


def test_a_list_that_holds_itself_is_told_in_a_short_message():
    own: list[object] = []
    own.append(own)
    with pytest.raises(NotCodable, match="contains itself") as told:
        encode(own, "state['a']")
    assert len(str(told.value)) < 400


@dataclasses.dataclass
class Point:
    x: int


def test_a_value_of_a_class_beside_the_flow_comes_back_as_one_in_another_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    for expected in ("cut", "1 Color.RED 2"):
        done = run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout.strip() == expected, done.stderr


def test_a_class_is_found_only_in_the_program_and_only_under_its_own_name():
    homes.note(test_a_class_is_found_only_in_the_program_and_only_under_its_own_name)
    homes.note(statistics.mean)  # a step may be made of a function of Python
    assert homes.find("namedtuple", "inspect:ArgInfo") is None, "it is one of Python"
    assert homes.find("dataclass", "pydantic.fields:ComputedFieldInfo") is None, "it is one of a library"
    assert homes.find("dataclass", f"{__name__}:Point") is Point
    assert homes.find("dataclass", f"{__name__}:RuntimeState") is None, "it is imported there"
    assert homes.find("dataclass", f"{__name__}:Nothing.at.all") is None
    wrong = {"$": "enum", "c": f"{__name__}:Point", "v": 1}
    assert decode(wrong) == 1, "a class of another kind is not used"


SCRIPT = """
import dataclasses, enum, os
from pydantic import BaseModel
from crewlite import CheckpointConfig
from crewlite.flow import flow, step
from crewlite.state import RuntimeState

class Color(enum.Enum):
    RED = 1

@dataclasses.dataclass
class Point:
    x: int

class Report(BaseModel):
    n: int

@step
def make():
    state = RuntimeState.current()
    state["point"], state["color"], state["report"] = Point(1), Color.RED, Report(n=2)

@flow(checkpoint=CheckpointConfig(location="runs"))
def work():
    make()
    if not os.path.exists("again"):
        open("again", "w").close()
        print("cut", flush=True)
        os._exit(0)
    state = RuntimeState.current()
    print(state["point"].x, state["color"], state["report"].n)

work.kickoff(run_id="run")
"""
