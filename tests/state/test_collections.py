"""Collections of items: added once, removed by id, in the order of their adding; they follow the lineage of a run."""

from __future__ import annotations

import asyncio

import pytest

from crewlite import Agent, Crew, History, Task, ToolCall, event_bus, tool
from crewlite.errors import ConfigError, NotCodable, StoreError
from crewlite.events import StepCompletedEvent
from crewlite.flow import flow, step
from crewlite.state import RuntimeState
from crewlite.state.journal.compaction import size
from crewlite.state.providers import provider_for
from crewlite.testing import ScriptedLLM

RUN = "run"


def notes():
    return RuntimeState.current().collection("notes")


def collections(setting, ref=RUN):
    with History(setting.location, setting.provider) as history:
        found = history.run(ref)
        assert not any(name.startswith("$") for name in (*found.values, *found.checkpoints()[-1:][0].versions))
        return {name: list(items.values()) for name, items in found.collections.items()}


def test_items_are_added_looked_up_and_removed(state):
    found = state.collection("notes")
    first, second = found.add({"text": "one"}), found.add("two")
    assert (len(found), list(found), list(found.values())) == (2, [first, second], [{"text": "one"}, "two"])
    assert found[first] == {"text": "one"} and first in found and "other" not in found
    found[first]["text"] = "changed"
    assert found[first] == {"text": "one"}, "an item stays as it was added"
    found.remove(first)
    for act in (found.remove, found.__getitem__):
        with pytest.raises(KeyError):
            act(first)
    assert found.add("three") not in (first, second)
    assert list(state.collection("notes").values()) == ["two", "three"]
    assert dict(state) == {} and len(state) == 0, "collections are no named values"
    assert list(state.collection("others")) == []
    with pytest.raises(ConfigError):
        state.collection("no/slash")
    with pytest.raises(NotCodable):
        found.add(lambda: 1)


def test_snapshots_restores_and_rollbacks_have_the_items(state):
    found = state.collection("notes")
    found.add(1)
    before = state.snapshot()
    found.add(2)
    assert state.snapshot().collections == {"notes": dict(found)}
    state.restore(before)
    assert list(found.values()) == [1]
    with pytest.raises(ZeroDivisionError), state.rollback_on_error():
        found.add(3)
        raise ZeroDivisionError
    assert list(found.values()) == [1]
    assert before.diff(state.snapshot()).added == {}


def test_a_name_that_holds_a_collection_is_no_name_for_a_value(state):
    with pytest.raises(ConfigError, match="is not a name for a value"):
        state["$items:notes"] = 1


def test_items_follow_the_lineage_and_are_the_same_in_every_life(stored):
    seen = []

    @step
    def note(text):
        return notes().add(text)

    @flow(checkpoint=stored(on_events=["step_completed"]))
    def work(stop):
        own = notes().add("own")
        ids = [own, *(note(f"{n}") for n in range(3))]
        notes().remove(ids[1])
        ids.append(notes().add("last"))
        note("end")
        seen.append((ids, dict(notes())))
        if stop[:1] == ["cut"] and len(seen) == 1:
            raise StoreError("here", "cut")  # which is no failure of the flow
        return ids

    with pytest.raises(StoreError):
        work.kickoff(["cut"], run_id=RUN)
    ids = work.kickoff(["cut"], run_id=RUN)
    assert seen[0] == seen[1]
    assert len({*ids}) == 5
    assert collections(stored()) == {"notes": ["own", "1", "2", "last", "end"]}
    with History(stored().location, stored().provider) as history:
        second = history.run(RUN).checkpoints()[1]
        assert list(second.collections["notes"].values()) == ["own", "0", "1"]
        history.fork(second, branch="b")
    assert collections(stored(), f"{RUN}/b") == {"notes": ["own", "0", "1"]}
    work.fork(RUN, rerun=["step:note#2"], branch="c").kickoff()
    assert collections(stored(), f"{RUN}/c") == {"notes": ["own", "1", "2", "last", "end"]}
    with History(stored().location, stored().provider) as history:
        history.prune(keep_last=1)
    assert collections(stored()) == {"notes": ["own", "1", "2", "last", "end"]}


def test_steps_side_by_side_each_add_without_a_conflict(stored):
    @step
    async def note(n):
        await asyncio.sleep(0.01)
        return notes().add(n)

    @flow(checkpoint=stored(on_conflict="error"))
    async def work():
        ids = await asyncio.gather(*map(note, range(5)))
        return [notes()[one] for one in ids]

    assert work.kickoff(run_id=RUN) == [0, 1, 2, 3, 4]


def test_tools_and_handlers_add_items(stored):
    @event_bus.on(StepCompletedEvent)
    def hear(source, event, state):
        state.collection("heard").add(event.address)

    @tool
    def keep(what: str) -> str:
        """Keep something."""
        notes().add(what)
        return "kept"

    @step
    def act():
        return 1

    @flow(checkpoint=stored(on_events=["step_completed"]))
    def work():
        act()
        llm = ScriptedLLM([ToolCall("keep", {"what": "a"}), "done"])
        agent = Agent(role="Clerk", goal="keep", llm=llm, tools=[keep])
        Crew(tasks=[Task(name="t", description="Do", expected_output="x", agent=agent)]).kickoff()
        act()
        return list(notes().values()), list(RuntimeState.current().collection("heard").values())

    assert work.kickoff(run_id=RUN) == (["a"], ["step:act", "step:act#2"])
    assert collections(stored()) == {"notes": ["a"], "heard": ["step:act", "step:act#2"]}


def test_what_a_failed_attempt_added_is_gone(stored):
    tries = []

    @step(retries=1)
    def note():
        notes().add(len(tries))
        tries.append(1)
        if len(tries) == 1:
            raise ValueError
        return list(notes().values())

    @flow(checkpoint=stored())
    def work():
        return note()

    assert work.kickoff(run_id=RUN) == [1]


def test_an_item_costs_what_it_is_however_many_there_are(location, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    sizes = {}
    for count in (100, 200, 400):
        with RuntimeState.open(f"bag{count}", location) as state:
            for n in range(count):
                state.collection("notes").add({"text": f"{n} sk-very-secret"})
                state.snapshot()
            assert state.collection("notes").add(1)
        with History(location) as history:
            items = history.run(f"bag{count}").collections["notes"].values()
            assert [item["text"] for item in items] == [f"{n} [secret]" for n in range(count)]
        sizes[count] = _size(location, f"bag{count}")
    first, second = sizes[200] - sizes[100], sizes[400] - sizes[200]
    assert abs(second - 2 * first) < first / 10


def _size(location, run):
    store = provider_for(location).open(location)
    try:
        return size(store.read(run, "main"))
    finally:
        store.close()
