"""State belongs to steps: each has its own view, whose changes are recorded with its outcome or dropped with its attempt."""

from __future__ import annotations

import asyncio
import copy
import threading

import pytest
from hypothesis import given, settings, strategies as st

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, bound, durable, event_bus, tool
from crewlite.errors import ConfigError, StateConflict, StoreError
from crewlite.events import (
    LLMCallCompletedEvent,
    StepCompletedEvent,
    StepStartedEvent,
    StepStateConflictEvent,
    TaskCompletedEvent,
)
from crewlite.flow import flow, step
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
    said = [e.commit["values"]["by"] for e in entries_of(config()) if "values" in e.commit]
    assert said == [
        {"step:fill": {"set": {"basket": ["apple", "apple"]}}},
        {"step:count": {"set": {"count": 2}}},
    ]
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
    with pytest.raises(ConfigError, match="outside a run's steps"):
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
    old, after = [], ""
    for entry in entries_of(config()):
        facts = {**entry.commit}
        if changed := facts.get("values"):
            [said] = changed["by"].values()
            facts["values"] = {**said, "versions": changed["versions"]}
        old.append(seal(facts, after=after))
        after = old[-1].sum
    setting = cut(old, len(old))
    Crew(tasks=tasks, checkpoint=setting).kickoff(run_id=RUN)
    assert values(setting) == {"done": 3}


names = st.sampled_from(["a", "b", "c"])
plain = st.one_of(
    st.tuples(st.just("set"), names, st.integers(0, 9)),
    st.tuples(st.just("append"), names, st.integers(0, 9)),
    st.tuples(st.just("delete"), names),
)
programs = st.recursive(
    st.lists(plain, max_size=3),
    lambda inner: st.lists(
        plain
        | st.tuples(st.sampled_from(["step", "fails", "retried", "beside"]), inner)
        | st.tuples(st.just("handled"), inner),
        max_size=4,
    ),
    max_leaves=8,
)


def act(bag, operation):
    match operation:
        case ("set", name, value):
            bag[name] = [value]
        case ("append", name, value):
            bag.setdefault(name, []).append(value)
        case ("delete", name):
            bag.pop(name, None)


class Broken(Exception):
    pass


def expected(program, bag):
    """What a dictionary says: each step works on a copy, which takes the place of the original if it ends well."""
    seen = []
    for verb, *details in program:
        if verb in ("step", "retried", "beside", "handled", "fails"):
            own = copy.deepcopy(bag)
            seen.append(expected(details[0], own))
            if verb in ("step", "retried", "beside"):
                bag.clear()
                bag.update(own)
        else:
            act(bag, (verb, *details))
        seen.append(dict(sorted(copy.deepcopy(bag).items())))
    return seen


def body(program):
    seen = []
    for verb, *details in program:
        match verb:
            case "step":
                seen.append(inner(details[0]))
            case "beside":
                seen.append(inner.submit(details[0]).result())
            case "retried":
                seen.append(retried(details[0]))
            case "fails" | "handled":
                try:
                    failing(details[0])
                except Broken as error:
                    seen.append(error.args[0])
            case _:
                act(state(), (verb, *details))
        seen.append(dict(sorted(copy.deepcopy(dict(state())).items())))
    return seen


@step
def inner(program):
    return body(program)


@step
def failing(program):
    raise Broken(body(program))


@step(retries=1)
def retried(program):
    seen = body(program)
    if not durable.scope().past:
        raise Broken
    return seen


def played(program, setting):
    @flow(name="played", checkpoint=setting)
    def whole(program):
        return body(program)

    return whole.kickoff(program, run_id=RUN)


def hold(program):
    bag: dict[str, object] = {}
    wanted = expected(program, bag)
    setting = CheckpointConfig(location="whole", provider=InMemoryProvider())
    assert played(program, setting) == wanted
    assert values(setting) == bag
    entries = entries_of(setting)
    for at in range(1, len(entries)):
        again = cut(entries, at)
        assert played(program, again) == wanted, f"cut after commit {at}"
        assert values(again) == bag, f"cut after commit {at}"
    return len(entries) - 1


@given(programs)
@settings(max_examples=60, deadline=None)
def test_any_program_that_is_cut_after_any_commit_has_the_state_that_a_dictionary_says(program):
    hold(program)


@pytest.mark.soak
def test_thousands_of_programs():
    cuts = []

    @given(programs)
    @settings(max_examples=2000, deadline=None, database=None)
    def any_program(program):
        cuts.append(hold(program))

    any_program()
    print({"programs": len(cuts), "cuts": sum(cuts)})
