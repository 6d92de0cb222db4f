"""Tasks side by side: which begin when, what they are given, and what a failure of one costs the others: nothing."""

from __future__ import annotations

import asyncio

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, event_bus
from crewlite.crew.order import Unbegun, needs_of
from crewlite.errors import ConfigError, Suspended
from crewlite.events import TaskCompletedEvent, TaskStartedEvent
from crewlite.state import InMemoryProvider, RuntimeState
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, cut, entries_of, lives
from tests.parts import Stop


class Together(ScriptedLLM):
    """Answers with what it was asked, but not before `meeting` calls were open at once; counts how many are.

    `fails` names tasks whose calls fail. The others are answered when those tasks have failed.
    """

    def __init__(self, meeting=1, fails=()):
        super().__init__(self.reply, delay=0)
        self.open = self.most = 0
        self.asked, self.fails, self.meeting = [], set(fails), meeting

    def reply(self, messages):
        raise AssertionError

    async def acall(self, messages, **context):
        text = messages[-1]["content"]
        name = text.partition("\n")[0].removeprefix("Do ")
        self.asked.append((name, [line[3:] for line in text.splitlines() if line.startswith("## ")]))
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            while self.most < self.meeting:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            while name not in self.fails and self.are_at_work(self.fails):
                await asyncio.sleep(0.001)
        finally:
            self.open -= 1
        if name in self.fails:
            raise Stop(name)
        return f"{name} done"

    def are_at_work(self, names):
        return not {f"task:{name}" for name in names}.isdisjoint(task.get_name() for task in asyncio.all_tasks())


def crew_of(spec, llm=None, **fields):
    """`"a* b* c(a)"`: tasks by name; `*` is async, `(a,b)` the context."""
    agent, tasks = Agent(role="W", goal="g", llm=llm or Together()), {}
    for word in spec.split():
        name, _, context = word.removesuffix(")").partition("(")
        given = [tasks[other] for other in context.split(",") if other] if "(" in word else None
        plain = name.removesuffix("*")
        tasks[plain] = Task(
            name=plain,
            description=f"Do {plain}",
            expected_output="x",
            agent=agent,
            context=given,
            async_execution=name.endswith("*"),
        )
    return Crew(tasks=list(tasks.values()), **fields)


def llm_of(crew):
    return crew.tasks[0].agent.llm


def test_async_tasks_run_at_the_same_time_and_the_next_one_waits_for_them():
    crew = crew_of("a* b* c* d", Together(meeting=3))
    result = crew.kickoff()
    assert llm_of(crew).most == 3
    assert [output.raw for output in result.tasks_output] == ["a done", "b done", "c done", "d done"]
    assert llm_of(crew).asked[-1] == ("d", ["a", "b", "c"])


@pytest.mark.parametrize(
    ("spec", "contexts"),
    [
        ("a b* c* d", {"b": ["a"], "c": ["a"], "d": ["a", "b", "c"]}),
        ("a b c*", {"c": ["a", "b"]}),
        ("a* b c*", {"a": [], "b": ["a"], "c": ["a", "b"]}),
        ("a* b() c* d", {"b": [], "c": ["b"], "d": ["a", "b", "c"]}),  # nobody knows whether a has ended
        ("a* b(a) c*", {"c": ["a", "b"]}),  # b has waited for a
        ("a* b*(a) c(b)", {"b": ["a"], "c": ["b"]}),
    ],
)
def test_what_a_task_is_given_follows_from_the_definition_alone(spec, contexts):
    crew = crew_of(spec)
    crew.kickoff()
    asked = dict(llm_of(crew).asked)
    assert {name: asked[name] for name in contexts} == contexts


def test_a_task_with_a_context_of_its_own_waits_for_no_other_async_task():
    crew = crew_of("slow* b() c(b) d")
    unbegun = Unbegun(needs_of(crew.tasks))
    assert unbegun.take(4) == [0, 1]
    unbegun.note_end(1)
    assert unbegun.take(4) == [2]
    unbegun.note_end(2)
    assert unbegun.take(4) == [], "d is given all, so it waits for slow"
    unbegun.note_end(0)
    assert unbegun.take(4) == [3]


def test_max_concurrency_bounds_what_is_at_work_at_once():
    crew = crew_of("a* b* c* d* e*", Together(meeting=2), max_concurrency=2)
    crew.kickoff()
    assert llm_of(crew).most == 2
    with pytest.raises(ConfigError, match="max_concurrency"):
        crew_of("a", max_concurrency=0)


def test_each_completion_is_its_own_checkpoint(stored):
    crew_of("a* b* c", checkpoint=stored()).kickoff(run_id="r")
    with History(stored().location, stored().provider) as history:
        named = [checkpoint.tasks for checkpoint in history.run("r").checkpoints()]
    assert [len(tasks) for tasks in named] == [1, 2, 3]
    assert sorted(named[-1]) == ["task:a", "task:b", "task:c"]


def test_a_failing_task_does_not_throw_away_what_its_siblings_finish(stored):
    llm = Together(fails={"b"})
    crew = crew_of("a* b* c* d", llm, checkpoint=stored())
    with pytest.raises(Stop, match="b"):
        crew.kickoff(run_id="r")
    assert sorted(name for name, _ in llm.asked) == ["a", "b", "c"]
    llm.fails.clear()
    llm.asked.clear()
    assert crew.kickoff(run_id="r").raw == "d done"
    assert [name for name, _ in llm.asked] == ["b", "d"]


def test_of_several_failures_the_first_in_order_is_raised_and_nothing_more_begins():
    llm = Together(fails={"b", "c"})
    with pytest.raises(Stop, match="b"):
        crew_of("a* b* c* d*(a) e", llm).kickoff()
    assert {"d", "e"}.isdisjoint(name for name, _ in llm.asked)


def test_a_task_that_was_at_work_goes_on_as_resumed(stored):
    llm = Together(fails={"b"})
    crew = crew_of("a* b* c", llm, checkpoint=stored())
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    llm.fails.clear()
    started = []
    event_bus.on(TaskStartedEvent, lambda source, event: started.append((event.address, event.resumed)))
    crew.kickoff(run_id="r")
    assert started == [("task:b", True), ("task:c", False)]


@pytest.mark.parametrize("spec", ["a* b* c", "a b* c* d e*", "a* b() c*(a) d(b)", "a* b*"])
@pytest.mark.parametrize("width", [None, 1])
def test_killed_after_any_commit_it_ends_as_it_would_have(spec, width):
    for whole, again in lives(lambda **fields: crew_of(spec, max_concurrency=width, **fields)):
        assert again == whole


def test_a_fork_runs_again_what_builds_on_an_edit_and_nothing_else(stored):
    crew = crew_of("a* b* c(a) d(b)", checkpoint=stored())
    crew.kickoff(run_id="r")
    llm = llm_of(crew)
    llm.asked.clear()
    crew.fork("r", branch="f", edits={"task:a": "another"}).kickoff()
    assert llm.asked == [("c", ["a"])]


def test_a_preview_says_what_would_run(stored):
    crew = crew_of("a* b* c(a) d(b)", checkpoint=stored())
    crew.kickoff(run_id="r")
    seen = crew.fork("r", branch="f", edits={"task:a": "another"}).preview()
    assert [(step.address, step.verdict) for step in seen] == [
        ("task:a", "reused"),
        ("task:b", "reused"),
        ("task:c", "runs"),
        ("task:d", "reused"),
    ]


def test_a_crew_with_async_tasks_is_rebuilt(stored):
    llm = Together(fails={"c"})
    crew = crew_of("a* b* c", llm, max_concurrency=3, checkpoint=stored())
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    again = Crew.from_checkpoint(stored(restore_from="r"), bind={"llm": Together()})
    assert [task.async_execution for task in again.tasks] == [True, True, False]
    assert again.max_concurrency == 3
    assert again.kickoff().raw == "c done"
    assert llm_of(again).asked == [("c", ["a", "b"])]


def test_one_that_waits_for_a_person_lets_its_siblings_finish(on_disk):
    llm = Together()
    agent = Agent(role="W", goal="g", llm=llm)
    tasks = [
        Task(name="a", description="Do a", expected_output="x", agent=agent, async_execution=True, human_input=True),
        Task(name="b", description="Do b", expected_output="x", agent=agent, async_execution=True),
        Task(name="c", description="Do c", expected_output="x", agent=agent),
    ]
    crew = Crew(tasks=tasks, checkpoint=on_disk())
    done = []
    event_bus.on(TaskCompletedEvent, lambda source, event: done.append(event.address))
    with pytest.raises(Suspended) as caught:
        crew.kickoff(run_id="r")
    assert done == ["task:b"]
    [address] = caught.value.waiting
    assert crew.kickoff(run_id="r", answers={address: ""}).raw == "c done"
    assert [name for name, _ in llm.asked] == ["a", "b", "c"]


class Seeing(ScriptedLLM):
    """Notes what the state holds when each task asks, and has each task set a value. `after`: who waits for whom."""

    def __init__(self, after):
        super().__init__(lambda messages: "")
        self.after, self.saw, self.asked, self.recorded = after, {}, set(), set()

    async def acall(self, messages, **context):
        name, state = messages[-1]["content"].partition("\n")[0].removeprefix("Do "), RuntimeState.current()
        self.saw[name] = set(state)
        state[name] = True
        self.asked.add(name)
        while not self.recorded | self.asked >= self.after.get(name, set()):
            await asyncio.sleep(0)
        return f"{name} done"


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_task_that_is_cut_begins_again_with_the_state_it_began_with(first):
    after = {"a": {"b"}, "b": {"c"}, "c": {"d"}} if first == "a" else {"b": {"a"}, "a": {"d"}, "d": {"c"}}
    whole, llm = CheckpointConfig(location="here", provider=InMemoryProvider()), Seeing(after)
    spec = "a* b* c*(a) d*(b) e(a,b,c,d)"
    expected = crew_of(spec, llm, checkpoint=whole).kickoff(run_id=RUN).raw
    entries = entries_of(whole)
    for at in range(1, len(entries)):
        again, later = cut(entries, at), Seeing(after)
        with History(again.location, again.provider) as history:
            later.recorded = {step.address.partition("/")[0].removeprefix("task:") for step in history.run(RUN).steps}
        assert crew_of(spec, later, checkpoint=again).kickoff(run_id=RUN).raw == expected
        assert later.saw == {name: llm.saw[name] for name in later.saw}
