"""State belongs to steps: each has its own view, whose changes are recorded with its outcome or dropped with its attempt."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, bound, durable, event_bus, tool
from crewlite.errors import ConfigError, StateConflict, StoreError, Suspended
from crewlite.events import (
    FlowStartedEvent,
    LLMCallCompletedEvent,
    StepCompletedEvent,
    StepFailedEvent,
    StepStartedEvent,
    StepStateConflictEvent,
    TaskCompletedEvent,
)
from crewlite.flow import ask, flow, step
from crewlite.state import InMemoryProvider, RuntimeState
from crewlite.state.format.entry import seal
from crewlite.state.format.record import Record
from crewlite.state.providers.base import Commit
from crewlite.testing import EventRecorder, ScriptedLLM

RUN = "run"


def state():
    return RuntimeState.current()


def entries_of(setting):
    store = setting.provider.open(setting.location)
    try:
        return store.read(RUN, "main")
    finally:
        store.close()


def cut(entries, at):
    """A store that holds the run as it was after `at` commits."""
    provider = InMemoryProvider()
    provider.open("cut").append([Commit(RUN, "main", 0, "", tuple(entries[:at]))])
    return CheckpointConfig(location="cut", provider=provider)


def values(setting):
    with History(setting.location, setting.provider) as history:
        return history.run(RUN).values


def test_what_a_step_changes_is_seen_by_the_code_after_it_and_recorded_with_its_outcome(config):
    @step
    def fill(n):
        state()["basket"] = ["apple"] * n

    @step
    async def count():
        state()["count"] = len(state()["basket"])

    @flow(checkpoint=config())
    async def shop():
        await fill.submit(2)
        await count()
        return dict(state())

    assert shop.kickoff(run_id=RUN) == {"basket": ["apple"] * 2, "count": 2}
    said = [step["state"] for e in entries_of(config()) for step in e.commit.get("steps", ()) if "state" in step]
    assert said == [[["set", ["basket"], ["apple", "apple"]]], [["set", ["count"], 2]]]
    assert not any("values" in e.commit for e in entries_of(config())), "nothing is written twice"
    assert values(config()) == {"basket": ["apple"] * 2, "count": 2}


def test_a_step_that_is_cut_leaves_nothing_of_its_changes_and_a_finished_one_is_applied_without_running(config, ran):
    stop = [True]

    @step
    def first():
        ran.append("first")
        state()["log"] = [*state().get("log", []), "first"]

    @step
    def second():
        ran.append("second")
        state()["log"].append("half")
        if stop.pop() if stop else False:
            raise StoreError("here", "cut")  # which is no failure of the step
        state()["log"].append("whole")

    @flow(checkpoint=config())
    def work():
        state()["log"] = ["flow"]
        first()
        seen = copy.deepcopy(dict(state()))
        second()
        return seen, dict(state())

    with pytest.raises(StoreError):
        work.kickoff(run_id=RUN)
    assert values(config()) == {"log": ["flow", "first"]}
    seen, after = work.kickoff(run_id=RUN)
    assert ran == ["first", "second", "second"]
    assert seen == {"log": ["flow", "first"]}
    assert after == values(config()) == {"log": ["flow", "first", "half", "whole"]}


def test_an_attempt_that_fails_takes_its_changes_with_it_and_those_of_the_steps_inside_it(config):
    @step
    def inner():
        state()["inner"] = state().get("inner", 0) + 1

    @step(retries=1)
    def outer():
        before = dict(state())
        state()["tries"] = state().get("tries", 0) + 1
        inner()
        inner()
        if not durable.scope().past:
            raise ValueError
        return before

    @flow(checkpoint=config())
    def work():
        state()["kept"] = True
        return outer(), dict(state())

    before, after = work.kickoff(run_id=RUN)
    assert before == {"kept": True}
    assert after == values(config()) == {"kept": True, "tries": 1, "inner": 2}


def test_what_a_handled_failure_changed_is_gone_in_every_life(config):
    @step
    def risky():
        state()["risky"] = 1
        raise ValueError

    @step
    def safe():
        state()["safe"] = state().get("risky", 0)

    @flow(checkpoint=config())
    def work():
        try:
            risky()
        except ValueError:
            safe()
        return dict(state())

    assert work.kickoff(run_id=RUN) == {"safe": 0}
    for at in range(2, len(entries_of(config()))):
        again = flow(checkpoint=cut(entries_of(config()), at))(work.func)
        assert again.kickoff(run_id=RUN) == {"safe": 0}


def test_an_inner_step_sees_what_the_outer_changed_before_and_is_applied_again_if_that_is_cut(config, ran):
    stop = [True]

    @step
    def inner():
        ran.append("inner")
        state()["log"].append("inner")
        return list(state()["log"])

    @step
    def outer():
        state()["log"] = ["outer"]
        seen = inner()
        if stop:
            stop.clear()
            raise StoreError("here", "cut")  # which is no failure of the step
        return seen, list(state()["log"])

    @flow(checkpoint=config())
    def work():
        return outer()

    with pytest.raises(StoreError):
        work.kickoff(run_id=RUN)
    assert work.kickoff(run_id=RUN) == (["outer", "inner"], ["outer", "inner"])
    assert ran == ["inner"]
    assert values(config()) == {"log": ["outer", "inner"]}


def side_by_side(setting, finish, *, name=lambda n: "same", retries=0):
    """Two steps at once that change one name, the one with the number `finish[0]` ending first."""
    first = asyncio.Event()

    @step(retries=retries)
    async def change(n):
        before = state().get(name(n), 0)
        if n == finish[0]:
            await asyncio.sleep(0.01)  # until the other has begun
            first.set()
        elif not durable.scope().past:
            await first.wait()
            await asyncio.sleep(0.02)
        state()[name(n)] = before + n + 1

    @flow(checkpoint=setting)
    async def both():
        state()["before"] = 0
        for future in [change.submit(n) for n in range(2)]:
            await future
        return dict(state())

    return both


def test_steps_side_by_side_merge_by_field(config):
    whole = side_by_side(config(), (0, 1), name=lambda n: f"n{n}").kickoff(run_id=RUN)
    assert whole == values(config()) == {"before": 0, "n0": 1, "n1": 2}


@pytest.mark.parametrize("finish", [(0, 1), (1, 0)])
def test_of_a_field_that_two_steps_changed_the_later_commit_counts_and_an_event_says_so(config, finish):
    with EventRecorder() as heard:
        result = side_by_side(config(), finish).kickoff(run_id=RUN)
    assert result == {"before": 0, "same": finish[1] + 1}
    [event] = heard.of(StepStateConflictEvent)
    assert (event.names, event.run_id) == (("same",), RUN)
    entries = entries_of(config())
    last = max(e.seq for e in entries if any(s["kind"] == "step" for s in e.commit.get("steps", ())))
    assert side_by_side(cut(entries, last), finish).kickoff(run_id=RUN) == result, "in whatever order it is replayed"


def test_a_conflict_is_an_error_if_that_is_wanted_and_a_retry_begins_with_what_the_other_left(config):
    with pytest.raises(StateConflict, match="has changed 'same' of the state"):
        side_by_side(config(on_conflict="error"), (0, 1)).kickoff(run_id="once")
    again = side_by_side(config(on_conflict="error"), (0, 1), retries=1)
    assert again.kickoff(run_id=RUN)["same"] == 3


def test_coroutines_and_threads_of_one_step_share_its_view(config):
    @step
    async def gathered():
        async def one(n):
            await asyncio.sleep(0)
            state()[f"c{n}"] = n

        await asyncio.gather(*map(one, range(3)))

        def in_thread():
            state()["thread"] = True

        thread = threading.Thread(target=bound(in_thread))
        thread.start()
        thread.join()

    @flow(checkpoint=config())
    async def work():
        await gathered()
        return dict(state())

    assert work.kickoff(run_id=RUN) == {"c0": 0, "c1": 1, "c2": 2, "thread": True}


def test_outside_a_run_there_is_no_current_state():
    with pytest.raises(ConfigError, match="outside the steps of a run"):
        RuntimeState.current()


def test_tools_and_tasks_of_a_crew_have_the_state_and_a_resumed_one_has_it_again(config):
    @tool
    def note(what: str) -> str:
        """Note something."""
        state().setdefault("notes", []).append(what)
        return "noted"

    def crew(setting, replies):
        agent = Agent(role="Clerk", goal="note", llm=ScriptedLLM(replies), tools=[note])
        tasks = [Task(name=n, description=f"Do {n}", expected_output="x", agent=agent) for n in ("one", "two")]
        return Crew(tasks=tasks, checkpoint=setting)

    replies = [ToolCall("note", {"what": "a"}), "done", ToolCall("note", {"what": "b"}), "done"]
    crew(config(), replies).kickoff(run_id=RUN)
    assert values(config()) == {"notes": ["a", "b"]}
    entries = entries_of(config())
    for at in range(1, len(entries)):
        setting, left = cut(entries, at), replies[_answered(entries[:at]) :]
        crew(setting, left).kickoff(run_id=RUN)
        assert values(setting) == {"notes": ["a", "b"]}


def test_a_tool_call_that_fails_changes_nothing(config):
    @tool
    def note(what: str) -> str:
        """Note something."""
        state()[what] = True
        if what == "bad":
            raise OSError("disk full")
        return "noted"

    replies = [ToolCall("note", {"what": "bad"}), ToolCall("note", {"what": "good"}), "done"]
    agent = Agent(role="Clerk", goal="note", llm=ScriptedLLM(replies), tools=[note])
    task = Task(name="one", description="Do it", expected_output="x", agent=agent)
    Crew(tasks=[task], checkpoint=config()).kickoff(run_id=RUN)
    assert values(config()) == {"good": True}


def _answered(entries):
    return sum(address.rpartition("/")[2].startswith("llm") for address in Record.of(entries).outcomes)


def test_a_handler_changes_the_state_of_the_step_its_event_belongs_to(config, ran):
    stop = [True]

    @event_bus.on(StepStartedEvent)
    def begun(source, event, state):
        state["begun"] = [*state.get("begun", []), event.address]

    @event_bus.on(StepCompletedEvent)
    def ended(source, event, state):
        state["ended"] = [*state.get("ended", []), event.address]

    @step
    def act(n):
        ran.append(n)
        return list(state().get("ended", []))

    @flow(checkpoint=config())
    def work():
        seen = [act(n) for n in range(2)]
        after = dict(state())
        act(2)
        if stop:
            stop.clear()
            raise StoreError("here", "cut")  # which is no failure of the step
        return seen, after

    with pytest.raises(StoreError):
        work.kickoff(run_id=RUN)
    assert work.kickoff(run_id=RUN) == (
        [[], ["step:act"]],
        {"begun": ["step:act", "step:act#2"], "ended": ["step:act", "step:act#2"]},
    )
    assert ran == [0, 1, 2]


def test_what_an_async_handler_sets_later_is_recorded_too(config):
    @event_bus.on(TaskCompletedEvent)
    async def note(source, event, state):
        notes = state.setdefault("notes", [])
        await asyncio.sleep(0.01)
        notes.append(event.address)
        state["last"] = event.address

    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(lambda messages: "x"))
    Crew(tasks=[Task(description="Do it", expected_output="x", agent=agent)], checkpoint=config()).kickoff(run_id=RUN)
    assert values(config()) == {"notes": ["task#1"], "last": "task#1"}


def test_a_fork_has_the_state_of_its_base_and_not_what_came_after(config):
    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(lambda messages: "x"))
    tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=agent) for n in range(3)]
    crew = Crew(tasks=tasks, checkpoint=config())

    @event_bus.on(LLMCallCompletedEvent)
    def count(source, event, state):
        state["calls"] = [*state.get("calls", []), event.address]

    crew.kickoff(run_id=RUN)
    with History(config().location, config().provider) as history:
        second = history.run(RUN).checkpoints()[1]
        assert second.values == {"calls": ["task:t0/llm#1", "task:t1/llm#1"]}
        history.fork(second, branch="b")
    crew.kickoff(from_checkpoint=config(restore_from=f"{RUN}/b"))
    with History(config().location, config().provider) as history:
        assert history.run(f"{RUN}/b").values == history.run(RUN).values
        history.prune(keep_last=1)
        assert history.run(RUN).values["calls"] == [f"task:t{n}/llm#1" for n in range(3)]


def test_a_pruned_run_goes_on_with_the_state_of_each_step(config):
    stop = [True]

    @step
    def act(n):
        state()["log"] = [*state().get("log", []), n]

    @flow(checkpoint=config(on_events=["step_completed"]))
    def work():
        seen = []
        for n in range(6):
            act(n)
            seen.append(list(state()["log"]))
        if stop:
            stop.clear()
            raise StoreError("here", "cut")  # which is no failure of the step
        return seen

    with pytest.raises(StoreError):
        work.kickoff(run_id=RUN)
    with History(config().location, config().provider) as history:
        history.prune(keep_last=1)
    assert work.kickoff(run_id=RUN) == [list(range(n + 1)) for n in range(6)]


def test_values_that_an_earlier_release_recorded_are_there_when_its_run_goes_on(config):
    """They rode with whatever commit came next, and belonged to no step."""

    @event_bus.on(TaskCompletedEvent)
    def count(source, event, state):
        state["done"] = state.get("done", 0) + 1

    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(["a", "b", RuntimeError("cut"), "c"]))
    tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=agent) for n in range(3)]
    with pytest.raises(RuntimeError):
        Crew(tasks=tasks, checkpoint=config()).kickoff(run_id=RUN)
    old, after, versions = [], "", 0
    for entry in entries_of(config()):
        facts = {**entry.commit}
        if late := facts.pop("late", None):
            [[_, [name], value]] = late[0]["ops"]
            versions += 1
            facts["values"] = {"set": {name: value}, "versions": {name: versions}}
        old.append(seal(facts, after=after))
        after = old[-1].sum
    assert versions == 2
    setting = cut(old, len(old))
    Crew(tasks=tasks, checkpoint=setting).kickoff(run_id=RUN)
    assert values(setting) == {"done": 3}


def cuts(whole, setting, expected, *, after=1):
    """The flow, cut after each commit and gone on with, comes to the result and the values that it would have had."""
    entries = entries_of(setting)
    for at in range(after, len(entries)):
        again = cut(entries, at)
        assert whole(again).kickoff(run_id=RUN) == expected, f"cut after commit {at}"
        assert values(again) == values(setting), f"cut after commit {at}"


def test_what_a_submitted_step_changed_comes_in_where_its_result_is_taken(config):
    @step
    def change():
        state()["x"] = "step"

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        async def work():
            handle = change.submit()
            state()["x"] = "flow"
            before = await asyncio.sleep(0.01) or state()["x"]
            await handle
            return before, state()["x"]

        return work

    assert whole(config()).kickoff(run_id=RUN) == ("flow", "step")
    assert values(config()) == {"x": "step"}
    cuts(whole, config(), ("flow", "step"))


def test_in_a_thread_a_submitted_step_begins_with_what_held_when_it_was_submitted(config):
    @step
    def look():
        return dict(state())

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        def work():
            seen = []
            for n in range(20):
                state()["n"] = n
                handle = look.submit()
                state()["n"] = -1
                seen.append(handle.result()["n"])
            return seen

        return work

    assert whole(config()).kickoff(run_id=RUN) == list(range(20))


def test_what_a_step_appended_and_another_appended_after_it_failed_are_both_there_after_a_resume(config):
    @step
    def add(n):
        state().setdefault("log", []).append(n)

    @step
    def fails():
        raise ValueError

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        def work():
            add("first")
            with contextlib.suppress(ValueError):
                try:
                    fails()
                finally:
                    add("cleanup")
            return list(state()["log"])

        return work

    assert whole(config()).kickoff(run_id=RUN) == ["first", "cleanup"]
    cuts(whole, config(), ["first", "cleanup"])


def test_a_step_that_is_done_again_in_a_fork_takes_nothing_away_from_those_that_are_not(config):
    done = []

    @step
    def add(n):
        done.append(n)
        state().setdefault("log", []).append(n)
        state()["last"] = n

    @flow(checkpoint=config())
    def work():
        for n in (1, 2, 3):
            add(n)
        return list(state()["log"]), state()["last"]

    assert work.kickoff(run_id=RUN) == ([1, 2, 3], 3)
    fork = work.fork(RUN, rerun=["step:add"], branch="b")
    assert fork.kickoff() == ([1, 2, 3], 3)
    assert done == [1, 2, 3, 1]
    with History(config().location, config().provider) as history:
        assert history.run(f"{RUN}/b").values == {"log": [1, 2, 3], "last": 3}
    edited = work.fork(RUN, edits={"step:add#2": None}, branch="c")
    assert edited.kickoff() == ([1, 2, 3], 3), "an edited output keeps what its step has changed"


def test_names_come_in_the_same_order_in_every_life(config):
    @step
    async def put(name, wait):
        await asyncio.sleep(wait)
        state()[name] = name

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        async def work():
            state()["c"] = 1
            await asyncio.gather(put("b", 0.04), put("a", 0.01))
            del state()["c"]
            state()["c"] = 2
            return list(state())

        return work

    assert whole(config()).kickoff(run_id=RUN) == ["a", "b", "c"]
    cuts(whole, config(), ["a", "b", "c"])


def test_equal_results_side_by_side_are_a_conflict(config):
    @step
    async def count():
        n = state().get("n", 0)
        await asyncio.sleep(0.01)
        state()["n"] = n + 1

    @step(retries=5)
    async def retried():
        n = state().get("n", 0)
        await asyncio.sleep(0.01)
        state()["n"] = n + 1

    def whole(setting, add):
        @flow(name="whole", checkpoint=setting)
        async def work():
            await asyncio.gather(add(), add(), add())
            return state()["n"]

        return work

    with EventRecorder() as heard:
        assert whole(config(), count).kickoff(run_id=RUN) == 1
    assert [event.names for event in heard.of(StepStateConflictEvent)] == [("n",), ("n",)]
    cuts(lambda setting: whole(setting, count), config(), 1)
    with pytest.raises(StateConflict):
        whole(config(on_conflict="error"), count).kickoff(run_id="other")
    assert whole(config(on_conflict="error"), retried).kickoff(run_id="third") == 3


def test_a_conflict_with_a_step_that_an_earlier_life_recorded_is_one_too(config):
    stop = [True]

    @step(retries=3)
    async def count(wait):
        n = state().get("n", 0)
        await asyncio.sleep(wait)
        if wait and stop:
            stop.clear()
            raise StoreError("here", "cut")  # which is no failure of the step
        state()["n"] = n + 1

    @flow(checkpoint=config(on_conflict="error"))
    async def work():
        await asyncio.gather(count(0.05), count(0))
        return state()["n"]

    with pytest.raises(StoreError):
        work.kickoff(run_id=RUN)
    assert work.kickoff(run_id=RUN) == 2


def test_the_state_of_a_step_offers_nothing_that_another_life_could_not_do_again(config):
    @flow(checkpoint=config())
    def work():
        for verb in ("snapshot", "restore", "checkpoint", "checkpoints", "add_usage"):
            with pytest.raises(ConfigError, match=f"the state of a running step has no {verb}"):
                getattr(state(), verb)
        state()["n"] = [1]
        with contextlib.suppress(ZeroDivisionError), state().rollback_on_error():
            state()["n"].append(2)
            state()["m"] = 1
            raise ZeroDivisionError
        return dict(state())

    assert work.kickoff(run_id=RUN) == {"n": [1]}


def test_a_cached_answer_changes_the_state_as_the_step_did(config):
    ran = []

    @step(cache=True, version=1)
    def fill(n):
        ran.append(n)
        state().setdefault("log", []).append(n)
        return n

    @flow(checkpoint=config())
    def work():
        fill(7)
        return list(state()["log"])

    assert work.kickoff(run_id="one") == [7]
    assert work.kickoff(run_id="two") == [7]
    assert ran == [7]
    with History(config().location, config().provider) as history:
        assert history.run("two").values == {"log": [7]}


def test_what_is_left_running_cannot_change_the_state_of_a_step_that_has_ended(config):
    kept, told = [], []

    @step
    def leave():
        kept.append(state())
        state()["x"] = 1

    @flow(checkpoint=config())
    def work():
        leave()
        try:
            kept[0]["x"] = 2
        except ConfigError as error:
            told.append(str(error))
        return dict(kept[0]), dict(state())

    assert work.kickoff(run_id=RUN) == ({"x": 1}, {"x": 1})
    assert "The state of step:leave was changed after that had ended" in told[0]


def test_a_handle_that_nobody_awaits_hands_over_its_changes_at_the_end_of_the_step_around_it(config):
    @step
    async def put(name):
        state()[name] = True

    @step
    async def outer():
        for name in "ab":
            put.submit(name)
        return list(state())

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        async def work():
            return await outer(), list(state())

        return work

    assert whole(config()).kickoff(run_id=RUN) == ([], ["a", "b"])
    cuts(whole, config(), ([], ["a", "b"]))


def test_the_later_commit_counts_in_whatever_order_results_are_taken(config):
    @step
    async def put(n, wait):
        await asyncio.sleep(wait)
        state()["x"] = n
        state().setdefault("log", []).append(n)

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        async def work():
            state()["log"] = []
            late, early = put.submit("late", 0.05), put.submit("early", 0)
            await late
            between = dict(state())
            await early
            return between, dict(state())

        return work

    expected = {"log": ["late"], "x": "late"}, {"log": ["early", "late"], "x": "late"}
    assert whole(config()).kickoff(run_id=RUN) == expected
    assert values(config()) == {"log": ["early", "late"], "x": "late"}
    cuts(whole, config(), expected, after=4)


def test_appends_and_keys_side_by_side_are_put_together_without_a_conflict(config):
    @step
    async def add(n):
        await asyncio.sleep(0.01)
        state()["list"].append(n)
        state()["keys"][f"k{n}"] = n
        state()["keys"]["deep"][f"d{n}"] = n
        state().setdefault("begun", []).append(n)
        state().setdefault("mapping", {})[f"{n}"] = n

    @flow(checkpoint=config())
    async def work():
        state().update(list=[], keys={"deep": {}})
        await asyncio.gather(*map(add, range(3)))
        return dict(state())

    with EventRecorder() as heard:
        found = work.kickoff(run_id=RUN)
    assert not heard.of(StepStateConflictEvent)
    assert sorted(found["list"]) == sorted(found["begun"]) == [0, 1, 2]
    assert found["keys"].keys() == {"deep", "k0", "k1", "k2"}
    assert found["keys"]["deep"].keys() == {"d0", "d1", "d2"}
    assert found["mapping"] == {"0": 0, "1": 1, "2": 2}
    assert values(config()) == found


def test_many_appends_cost_bytes_for_what_is_appended(memory):
    @step
    def add(n):
        state().setdefault("log", []).append(f"entry {n}")

    def size(count, setting):
        @flow(checkpoint=setting)
        def work():
            for n in range(count):
                add(n)
            return len(state()["log"])

        assert work.kickoff(run_id=f"{RUN}{count}") == count
        store = setting.provider.open(setting.location)
        return sum(len(entry.line) for entry in store.read(f"{RUN}{count}", "main"))

    first, second, third = (size(count, memory()) for count in (100, 200, 400))
    assert abs((third - second) - 2 * (second - first)) < (second - first) / 10


def test_a_run_that_never_asks_for_the_state_records_nothing_of_it(config):
    @step
    def act(n):
        return n

    @flow(checkpoint=config())
    def work():
        return [act(n) for n in range(3)]

    work.kickoff(run_id=RUN)
    for entry in entries_of(config()):
        assert not {"values", "late"} & entry.commit.keys()
        assert not any("state" in one or "order" in one for one in entry.commit.get("steps", ()))


def test_a_crew_in_a_flow_and_a_flow_in_a_step_hand_their_changes_outward(config):
    @tool
    def note(what: str) -> str:
        """Note something."""
        state().setdefault("notes", []).append(what)
        return "noted"

    @step
    def inner(n):
        state().setdefault("notes", []).append(n)

    @flow
    def nested(n):
        state()["nested"] = n
        inner(n)

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        def work():
            llm = ScriptedLLM(
                lambda messages: "done" if messages[-1]["role"] == "tool" else ToolCall("note", {"what": "x"})
            )
            agent = Agent(role="Clerk", goal="note", llm=llm, tools=[note])
            Crew(tasks=[Task(name="t", description="Do", expected_output="x", agent=agent)]).kickoff()
            nested.kickoff(n=1)
            nested(2)
            return dict(state())

        return work

    expected = {"notes": ["x", 1, 2], "nested": 2}
    assert whole(config()).kickoff(run_id=RUN) == expected
    assert values(config()) == expected
    cuts(whole, config(), expected)


def test_tasks_side_by_side_hand_their_changes_to_those_that_wait_for_them(config):
    @tool
    def note(what: str) -> str:
        """Note something."""
        state().setdefault("notes", []).append(what)
        return ", ".join(state()["notes"])

    def whole(setting):
        def reply(messages):
            return (
                "done" if messages[-1]["role"] == "tool" else ToolCall("note", {"what": messages[-1]["content"][3:4]})
            )

        agent = Agent(role="Clerk", goal="note", llm=ScriptedLLM(reply), tools=[note])
        first, second = (
            Task(name=n, description=f"Do {n}", expected_output="x", agent=agent, async_execution=True) for n in "ab"
        )
        last = Task(name="c", description="Do c", expected_output="x", agent=agent, context=[first, second])
        return Crew(tasks=[first, second, last], checkpoint=setting)

    whole(config()).kickoff(run_id=RUN)
    found = values(config())["notes"]
    assert sorted(found[:2]) == ["a", "b"] and found[2:] == ["c"]
    entries = entries_of(config())
    for at in range(1, len(entries)):
        again = cut(entries, at)
        whole(again).kickoff(run_id=RUN)
        notes = values(again)["notes"]
        assert sorted(notes[:2]) == ["a", "b"] and notes[2:] == ["c"], f"cut after commit {at}"


def test_what_a_handler_sets_at_the_start_of_the_run_is_there_for_its_steps_and_for_every_later_life(config):
    @event_bus.on(FlowStartedEvent)
    def begun(source, event, state):
        state["lives"] = state.get("lives", 0) + 1

    stop = [True]

    @step
    def look():
        return state()["lives"]

    @flow(checkpoint=config())
    def work():
        seen = look()
        state()["seen"] = state()["lives"]
        if stop:
            stop.clear()
            raise StoreError("here", "cut")  # which is no failure of the flow
        return seen, dict(state())

    with pytest.raises(StoreError):
        work.kickoff(run_id=RUN)
    assert work.kickoff(run_id=RUN) == (1, {"lives": 1, "seen": 1}), "as in a run that nothing has cut"
    assert values(config()) == {"lives": 1, "seen": 1}


def test_what_a_handler_sets_at_the_start_of_a_step_holds_for_all_its_attempts(config):
    @event_bus.on(StepStartedEvent)
    def begun(source, event, state):
        state["begun"] = state.get("begun", 0) + 1

    @step(retries=2)
    def act():
        state()["tries"] = len(durable.scope().past)
        if len(durable.scope().past) < 2:
            raise ValueError
        return dict(state())

    @flow(checkpoint=config())
    def work():
        return act(), dict(state())

    assert work.kickoff(run_id=RUN) == ({"begun": 1, "tries": 2}, {"begun": 1, "tries": 2})


def test_handlers_of_steps_side_by_side_each_see_what_the_others_have_set(config):
    @event_bus.on(StepCompletedEvent)
    def count(source, event, state):
        state["finished"] = state.get("finished", 0) + 1

    @step
    def act(n):
        return n

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        def work():
            act.map(range(5)).result()
            return state()["finished"]

        return work

    assert whole(config()).kickoff(run_id=RUN) == 5
    assert whole(config()).kickoff(run_id=RUN) == 5


def test_what_a_handler_hears_of_a_failure_is_kept_until_the_step_is_answered(config):
    @event_bus.on(StepFailedEvent)
    def failed(source, event, state):
        state["failures"] = state.get("failures", 0) + 1

    stop = [True]

    @step
    def act():
        if stop:
            raise ValueError("once")

    @flow(checkpoint=config())
    def work():
        act()
        return dict(state())

    with pytest.raises(ValueError):
        work.kickoff(run_id=RUN)
    assert values(config()) == {"failures": 1}
    stop.clear()
    assert work.kickoff(run_id=RUN) == {"failures": 1}
    assert values(config()) == {"failures": 1}


def replayed(whole, setting, expected):
    """The flow, cut just before its own outcome is recorded, comes to the same: all its steps answer from the record."""
    entries = entries_of(setting)
    again = cut(entries, len(entries) - 1)
    assert whole(again).kickoff(run_id=RUN) == expected
    assert values(again) == values(setting)


def test_coroutines_side_by_side_write_in_the_order_in_which_their_steps_were_committed(config):
    @step
    async def put(name, wait):
        await asyncio.sleep(wait)
        state().setdefault("log", []).append(name)
        state()[name] = name

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        async def work():
            async def one(names, wait):
                for name in names:
                    await put(name, wait)
                    state()["last"] = name
                    state().setdefault("bodies", []).append(name)

            await asyncio.gather(one("ab", 0.05), one("cdef", 0.02), one("g", 0.01))
            return dict(state()), list(state())

        return work

    expected = whole(config()).kickoff(run_id=RUN)
    replayed(whole, config(), expected)


def test_threads_side_by_side_leave_the_names_in_the_order_of_the_commits(config):
    @step
    def put(name, wait):
        time.sleep(wait)
        state()[name] = name

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        def work():
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(bound(lambda n: put(f"{n}", 0.06 - 0.02 * n)), range(4)))
            return list(state())

        return work

    expected = whole(config()).kickoff(run_id=RUN)
    for _ in range(5):
        replayed(whole, config(), expected)


def test_a_handle_that_another_step_awaits_hands_its_changes_to_the_code_that_began_it(config):
    kept = {}

    @step
    def put(n):
        state()["x"] = n

    @step
    def waits():
        kept["handle"].result()
        return dict(state())

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        def work():
            kept["handle"] = put.submit(1)
            state()["x"] = "own"
            seen = waits(), dict(state())
            kept["handle"].result()
            return *seen, dict(state())

        return work

    expected = ({"x": "own"}, {"x": "own"}, {"x": 1})
    assert whole(config()).kickoff(run_id=RUN) == expected
    cuts(whole, config(), expected)


def test_a_flow_that_is_tried_again_writes_again_and_its_recorded_steps_change_the_state_once(config):
    @step
    def put(n):
        state().setdefault("log", []).append(n)

    def whole(setting):
        @flow(name="whole", checkpoint=setting, retries=1)
        def work():
            state().setdefault("body", []).append(1)
            put("first")
            if not durable.scope().past:
                raise ValueError
            put("second")
            return dict(state())

        return work

    expected = {"body": [1], "log": ["first", "second"]}
    assert whole(config()).kickoff(run_id=RUN) == expected
    cuts(whole, config(), expected)


def test_a_flow_that_waits_for_an_answer_has_its_state_when_it_goes_on(config):
    @step
    def put(n):
        state()[f"{n}"] = len(state())

    @flow(checkpoint=config())
    def work():
        state()["own"] = 1
        put("before")
        state()["own"] = 2
        state()["who"] = ask("Who?", name="who")
        put("after")
        return dict(state())

    with pytest.raises(Suspended):
        work.kickoff(run_id=RUN)
    assert values(config()) == {"own": 2, "before": 1}
    expected = {"own": 2, "before": 1, "who": "Ann", "after": 3}
    assert work.kickoff(run_id=RUN, answers={"human:who": "Ann"}) == expected == values(config())


def test_checkpoints_show_what_the_code_of_the_run_saw_then_in_whatever_life_they_were_made(config):
    @step
    def put(n):
        state().setdefault("log", []).append(n)

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        def work():
            for n in range(3):
                state()["own"] = n
                state().setdefault("body", []).append(n)
                put(n)

        return work

    def shown(setting):
        with History(setting.location, setting.provider) as history:
            return [checkpoint.values for checkpoint in history.run(RUN).checkpoints()]

    setting = config(on_events=["step_completed"])
    whole(setting).kickoff(run_id=RUN)
    expected = [{"own": n, "body": [*range(n + 1)], "log": [*range(n + 1)]} for n in range(3)]
    assert shown(setting) == expected
    for at in range(1, len(entries_of(setting))):
        again = cut(entries_of(setting), at).model_copy(update={"on_events": ("step_completed",)})
        whole(again).kickoff(run_id=RUN)
        assert shown(again) == expected, f"cut after commit {at}"


def test_a_preview_has_the_state_that_the_run_would_have(config):
    @step
    def put(n):
        state()["n"] = n
        return n

    @step
    def look(n):
        return n

    @flow(checkpoint=config())
    def work():
        put(1)
        look(state()["n"])

    work.kickoff(run_id=RUN)
    found = {step.address: step.verdict for step in work.fork(RUN, rerun=["step:look"]).preview()}
    assert found == {"step:put": "reused", "step:look": "runs"}


def test_a_retry_after_a_conflict_is_in_conflict_with_no_step_whose_change_it_began_with(config):
    retried, handed = asyncio.Event(), asyncio.Event()

    @step
    async def early():
        state()["n"] = 1

    @step(retries=1)
    async def late():
        n = state().get("n", 0)
        if durable.scope().past:
            retried.set()
            await handed.wait()
        else:
            await asyncio.sleep(0.05)
        state()["n"] = n + 1

    @flow(checkpoint=config(on_conflict="error"))
    async def work():
        first, second = early.submit(), late.submit()
        await retried.wait()
        await first
        handed.set()
        await second
        return state()["n"]

    assert work.kickoff(run_id=RUN) == 2
