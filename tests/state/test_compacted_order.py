"""What a compaction leaves of a journal has the numbers of the commits that recorded it: what came first decides what counts."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, tool
from crewlite.errors import ScriptExhausted
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider
from crewlite.state.format.entry import Entry, seal
from crewlite.state.format.record import Record
from crewlite.state.format.times import Times, calls_in_doubt
from crewlite.state.journal.compaction import compact_entries
from crewlite.state.journal.effects import once_calls
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, cut, entries_of


@pytest.mark.parametrize("pruned", [False, True])
def test_code_without_an_earlier_call_asks_again_what_came_after_it(pruned):
    llm = ScriptedLLM(lambda messages: f"re: {messages[-1]['content']}")

    @step
    def deep():
        return str(llm.call("what is deep?"))

    def greeting():
        return [*(str(llm.call("hello")) for _ in range(5)), deep()]

    whole = CheckpointConfig(location="whole", provider=InMemoryProvider(), on_events=["llm_call_completed"])
    flow(greeting, name="program", checkpoint=whole).kickoff(run_id=RUN)
    setting = cut(entries_of(whole), 7)
    if pruned:
        with History(setting.location, setting.provider) as history:
            assert history.prune(keep_last=1).freed
    del llm.calls[:]
    assert flow(lambda: [deep()], name="program", checkpoint=setting).kickoff(run_id=RUN) == ["re: what is deep?"]
    assert len(llm.calls) == 1, "it may be asked because of what `hello` came to, which nobody knows now"


def test_calls_in_doubt_are_listed_in_the_order_in_which_they_were_begun_last():
    """A compaction leaves out the intent of a call that had ended, and that changed code has begun again since."""

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    @tool
    def tell() -> str:
        """Tell."""
        return "told"

    def crew(text, checkpoint):
        who = Agent(
            role="Clerk", goal="g", llm=ScriptedLLM([ToolCall("look", {}), ToolCall("tell", {})]), tools=[look, tell]
        )
        return Crew(tasks=[Task(name="t", description=text, expected_output="x", agent=who)], checkpoint=checkpoint)

    def cut_once_begun(text, setting, number):
        with contextlib.suppress(ScriptExhausted):
            crew(text, setting).kickoff(run_id=RUN)
        entries = entries_of(setting)
        begins = [n for n, entry in enumerate(entries, 1) if "intents" in entry.commit]
        return cut(entries, begins[number], on_drift="rerun")

    begun = cut_once_begun("Do", CheckpointConfig(location="begun", provider=InMemoryProvider()), 1)
    again = cut_once_begun("Do more", begun, 2)
    entries = entries_of(again)
    last = next(n for n, entry in enumerate(entries, 1) if "claim" in entry.commit and n > 1) - 1
    for compacted in (entries, compact_entries([], entries, [last])):
        assert [*calls_in_doubt(Record.of(compacted))] == ["task:t/tool:tell", "task:t/tool:look"]


@pytest.mark.parametrize("pruned", [False, True])
def test_failed_steps_are_listed_in_the_order_in_which_they_failed_last(pruned):
    """A compaction leaves out the failure of a step inside one that finished, and that changed code has run again."""
    setting = CheckpointConfig(location="failed", provider=InMemoryProvider(), on_drift="rerun")

    @step
    def first(is_caught):
        return is_caught

    @step
    def inner(is_caught):
        raise ValueError("no")

    @step
    def outer(is_caught):
        first(is_caught)
        try:
            return inner(is_caught)
        except ValueError:
            if is_caught:
                return "text " * 100
            raise

    @step
    def other():
        raise ValueError("no")

    def program(is_caught):
        return flow(lambda: [outer(is_caught), other()], name="program", checkpoint=setting)

    for is_caught in (True, False):
        with pytest.raises(ValueError, match="no"):
            program(is_caught).kickoff(run_id=RUN)
    with History(setting.location, setting.provider) as history:
        assert history.prune(keep_last=1).freed if pruned else True
        listed = [one.address for one in history.run(RUN).steps if one.status == "failed"]
    assert listed == ["step:other", "step:outer/step:inner", "step:outer", ""]


def test_a_step_that_ended_twice_with_the_same_answer_has_worked_as_long_each_time_as_before():
    setting = CheckpointConfig(location="twice", provider=InMemoryProvider(), on_events=["task_completed"])
    who = Agent(role="Clerk", goal="g", llm=ScriptedLLM(lambda messages: "done"))
    tasks = [Task(name=name, description="Do", expected_output="x", agent=who, context=[]) for name in ("s", "t")]
    crew = Crew(tasks=tasks, checkpoint=setting)
    crew.kickoff(run_id=RUN)
    with History(setting.location, setting.provider) as history:
        history.rewind(f"{RUN}@task:s")
    crew.kickoff(run_id=RUN)
    entries = as_slow_as(entries_of(setting), {"task": [9.0, 9.0, 9.0], "llm": [3.0, 1.0, 5.0]})
    end = next(entry.seq for entry in entries if "rewind" in entry.commit) - 1
    compacted = compact_entries([], entries, [])
    for own in (entries, compacted):
        tail = Record.of(entry for entry in own if entry.seq <= end)
        assert [Times(record).milliseconds("task:t") for record in (tail, Record.of(own))] == [1.0, 5.0]
    assert "task:t/llm#1" not in Record.of(compacted).outcomes


def as_slow_as(entries: list[Entry], taken: dict[str, list[float]]) -> list[Entry]:
    """The same entries, in which the steps of some kinds took so many milliseconds, each time that they ended."""
    found, after = list[Entry](), ""
    for entry in entries:
        commit = {**entry.commit}
        if steps := commit.get("steps"):
            commit["steps"] = [
                {**one, "ms": taken[one["kind"]].pop(0)} if one["kind"] in taken else one for one in steps
            ]
        if back := commit.get("rewind"):
            commit["rewind"] = {**back, "sum": found[back["seq"] - 1].sum}
        found.append(seal(commit, after=after))
        after = found[-1].sum
    return found


def a_run() -> list[Entry]:
    """The entries of a run with steps, calls that may be made once, and a failure that the code has handled."""

    @step(effect="once")
    def pay(amount):
        return amount

    @step
    def fails():
        raise ValueError("no")

    @flow(checkpoint=CheckpointConfig(location="made", provider=InMemoryProvider(), on_events=["flow_finished"]))
    def order():
        for amount in range(12):
            pay(amount)
            try:
                fails()
            except ValueError:
                continue

    order.kickoff(run_id=RUN)
    return entries_of(order.checkpoint)[:-1]


def numbers(record: Record) -> tuple[Any, ...]:
    return (
        {at: (one.seq, one.order) for at, one in record.ends.items()},
        [event.seq for event in record.events],
        record.events.claims,
        {at: record.intended_in.get(at) for at in record.intents},
    )


def test_what_is_merged_keeps_its_numbers_also_when_it_is_merged_again():
    merged = own = a_run()
    for pinned in ([20], []):
        merged = compact_entries([], merged, pinned)
        assert len(merged) == 2 + len(pinned)
        assert numbers(Record.of(merged)) == numbers(Record.of(own))
        assert once_calls(merged) == once_calls(own)


def test_what_an_earlier_release_has_merged_has_the_number_of_the_merged_commit():
    first, merged = compact_entries([], a_run(), [])
    commit = {**merged.commit, "folded": {"first": merged.first, "sum": merged.sum}}
    commit["steps"] = [{name: part for name, part in one.items() if name != "recorded"} for one in commit["steps"]]
    earlier = seal(commit, after=first.sum)
    record, last = Record.of([first, earlier]), merged.seq
    assert {one.seq for one in record.ends.values()} == {event.seq for event in [*record.events][1:]} == {last}
    assert {call["seq"] for call in once_calls([first, earlier])} == {last}, (
        "it is never taken for one before its result"
    )
    again = compact_entries([], [first, earlier], [])
    assert numbers(Record.of(again))[:2] == numbers(record)[:2]
