"""A fork begins at exactly a place; the run it is made from never hears of it."""

from __future__ import annotations

import asyncio
import itertools
import threading
from uuid import uuid4

import pytest

from crewlite import Agent, CheckpointConfig, Crew, Task, ToolCall, event_bus, tool
from crewlite.errors import (
    BindMissing,
    BranchExists,
    ConfigError,
    RefError,
)
from crewlite.events import BaseEvent, TaskCompletedEvent
from crewlite.testing import ScriptedLLM
from tests.parts import Stop, checkpoints, history, outputs


def at(config, ref, **more):
    """What `from_checkpoint` and `fork` take, in the same store."""
    return config(restore_from=ref, **more)


def stored(config):
    """Every byte of the main branch, as any provider has it."""
    store = config.provider.open(config.location) if config.provider else None
    if store is None:
        with history(config) as found:
            return found.run("r/main").digest
    try:
        return [entry.line for entry in store.read("r", "main")]
    finally:
        store.close()


def named(llm, *names, config=None, **fields):
    """A crew of tasks that stand alone, each filling in a placeholder of its own name or none."""
    who = Agent(role="Worker", goal="g", llm=llm)
    tasks = [Task(name=name, description=text, expected_output="x", agent=who, context=[]) for name, text in names]
    return Crew(tasks=tasks, checkpoint=config, **fields)


# Where a fork begins.


def test_a_fork_begins_at_exactly_the_place_that_any_kind_of_ref_names(make_crew, config):
    @event_bus.on(TaskCompletedEvent)
    def name(source, event, state):
        state.checkpoint(label="middle" if event.task_name == "t1" else None)

    every = config(on_events=["crew_kickoff_failed"])
    with pytest.raises(Stop):
        make_crew(["a", "b", "c", Stop()], 4, checkpoint=every).kickoff(run_id="r")
    with history(config()) as found:
        places_ = found.run("r").checkpoints()
    second = next(checkpoint for checkpoint in places_ if checkpoint.label)
    refs = {
        "ref": second.ref,
        "id": second.id,
        "part of an id": second.id[-8:],
        "task": "main@task:t1",
        "run and task": "r/main@task:t1",
        "label": "main@label:middle",
        "back": "r/main@task:t2~1",
    }
    before = stored(config())
    for number, (kind, ref) in enumerate(refs.items()):
        llm = ScriptedLLM([f"c{number}", f"d{number}"])
        forked = make_crew(llm, 4, checkpoint=config()).fork(at(config, ref), branch=f"f{number}")
        assert outputs(forked.kickoff()) == ["a", "b", f"c{number}", f"d{number}"], kind
        assert len(llm.calls) == 2
        [shared, *own] = checkpoints(config(), f"r/f{number}")[1:]
        assert (shared.id, shared.branch, shared.seq) == (second.id, "main", second.seq)
        assert {checkpoint.branch for checkpoint in own} == {f"f{number}"}
    assert stored(config()) == before


def test_a_fork_at_a_head_goes_on_with_all_that_is_recorded(make_crew, config):
    quiet = config(on_events=["crew_kickoff_completed"])
    with pytest.raises(Stop):
        make_crew(["a", "b", Stop()], checkpoint=quiet).kickoff(run_id="r")
    for branch, ref in (("one", "r"), ("two", "r/main"), ("three", "latest"), ("four", "main")):
        forked = make_crew([f"c of {branch}"], checkpoint=quiet).fork(at(config, ref), branch=branch)
        assert outputs(forked.kickoff()) == ["a", "b", f"c of {branch}"]
    assert outputs(make_crew(["c"], checkpoint=quiet).kickoff(run_id="r")) == ["a", "b", "c"]


def test_a_fork_of_a_fork_stands_on_both(make_crew, config):
    with pytest.raises(Stop):
        make_crew(["a", "b", Stop()], 4, checkpoint=config()).kickoff(run_id="r")
    one = make_crew(["B", Stop(), "C", "D"], 4, checkpoint=config()).fork(at(config, "main@task:t0"), branch="one")
    with pytest.raises(Stop):
        one.kickoff()
    two = make_crew(["cc", "dd"], 4, checkpoint=config()).fork(at(config, "one@task:t1"), branch="one/two")
    assert outputs(two.kickoff()) == ["a", "B", "cc", "dd"]
    assert outputs(one.kickoff()) == ["a", "B", "C", "D"]
    found = checkpoints(config(), "r/one/two")
    assert [(checkpoint.branch, checkpoint.address) for checkpoint in found] == [
        ("main", "task:t0"),
        ("one", "task:t1"),
        ("one/two", "task:t2"),
        ("one/two", "task:t3"),
    ]
    assert [checkpoint.parent_id for checkpoint in found] == [None, *(checkpoint.id for checkpoint in found[:-1])]


def test_a_fork_of_a_finished_run_does_again_what_came_after(make_crew, config):
    make_crew(["a", "b", "c"], checkpoint=config()).kickoff(run_id="r")
    llm = ScriptedLLM(["B", "C"])
    forked = make_crew(llm, checkpoint=config()).fork(at(config, "r/main@task:t0"))
    assert outputs(forked.kickoff()) == ["a", "B", "C"]
    at_the_end = make_crew([], checkpoint=config()).fork(at(config, "r"), branch="end")
    assert outputs(at_the_end.kickoff()) == ["a", "b", "c"]


def test_a_fork_of_a_failed_run_leaves_its_failure_behind(make_crew, config):
    with pytest.raises(Stop):
        make_crew(["a", Stop()], checkpoint=config()).kickoff(run_id="r")
    forked = make_crew(["b", "c"], checkpoint=config()).fork(at(config, "r"), branch="f")
    with history(config()) as found:
        assert [run.status for run in found.runs()] == ["failed", "unfinished"]
    assert outputs(forked.kickoff()) == ["a", "b", "c"]
    with history(config()) as found:
        assert {run.branch: run.status for run in found.runs()} == {"main": "failed", "f": "finished"}


def test_a_running_run_can_be_forked_and_neither_waits_for_the_other(make_crew, config):
    forks = []

    @event_bus.on(TaskCompletedEvent)
    def fork(source, event):
        if event.branch == "main":
            crew = make_crew([f"{event.task_name} forked", "x", "y"], checkpoint=config())
            forks.append((event.task_name, crew.fork(at(config, "r"), branch=f"after-{event.task_name}")))

    assert outputs(make_crew(["a", "b", "c"], checkpoint=config()).kickoff(run_id="r")) == ["a", "b", "c"]
    assert [name for name, _ in forks] == ["t0", "t1", "t2"]
    assert outputs(forks[0][1].kickoff()) == ["a", "t0 forked", "x"]
    assert outputs(forks[1][1].kickoff()) == ["a", "b", "t1 forked"]
    assert outputs(forks[2][1].kickoff()) == ["a", "b", "c"]


def test_a_place_inside_a_task_answers_with_the_calls_before_it(config):
    calls = []

    @tool(effect="once")
    def look(where: str) -> str:
        """Look somewhere."""
        calls.append(where)
        return f"saw {where}"

    def crew(*script):
        who = Agent(role="Worker", goal="g", llm=ScriptedLLM(script), tools=[look])
        task = Task(name="t", description="d", expected_output="x", agent=who)
        return Crew(tasks=[task], checkpoint=config(on_events=["tool_usage_finished"]))

    crew(ToolCall("look", {"where": "here"}), ToolCall("look", {"where": "there"}), "main").kickoff(run_id="r")
    other = crew(ToolCall("look", {"where": "elsewhere"}), "forked")
    forked = other.fork(at(config, "main@task:t/tool:look"), allow_effects=True)
    assert forked.kickoff().raw == "forked"
    assert calls == ["here", "there", "elsewhere"]


# On the class and on an instance.


def test_an_instance_keeps_its_live_parts_and_its_other_bindings(make_crew, config):
    crew = make_crew(["a", Stop(), "b", "c"], checkpoint=config(on_events=["llm_call_completed"]))
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    forked = crew.fork(at(config, "r"), branch="f")
    assert forked is not crew
    assert forked.tasks == crew.tasks
    assert outputs(forked.kickoff()) == ["a", "b", "c"]
    assert {checkpoint.trigger for checkpoint in checkpoints(config(), "r/f")} == {"llm_call_completed"}
    with pytest.raises(ConfigError, match="bind= is for Crew.fork"):
        crew.fork(at(config, "r"), bind={"llm": "offline"})


def test_the_class_rebuilds_the_crew_and_binds_what_is_live(make_crew, config):
    with pytest.raises(Stop):
        make_crew(["a", Stop()], checkpoint=config()).kickoff(run_id="r")
    forked = Crew.fork(at(config, "r"), branch="f", bind={"llm": ScriptedLLM(["b", "c"])})
    assert isinstance(forked, Crew)
    assert outputs(forked.kickoff()) == ["a", "b", "c"]


def test_what_was_not_bound_can_be_bound_later_as_the_branch_is_there(make_crew, config):
    with pytest.raises(Stop):
        make_crew(["a", Stop()], checkpoint=config()).kickoff(run_id="r")
    with pytest.raises(BindMissing, match="agents.Worker.llm"):
        Crew.fork(at(config, "r"), branch="f")
    forked = Crew.from_checkpoint(at(config, "r/f"), bind={"llm": ScriptedLLM(["b", "c"])})
    assert outputs(forked.kickoff()) == ["a", "b", "c"]
    assert checkpoints(config(), "r/f")[-1].branch == "f"


def test_a_fork_writes_where_it_came_from_whatever_the_crew_says(make_crew, on_disk, tmp_path):
    with pytest.raises(Stop):
        make_crew(["a", Stop()], checkpoint=on_disk()).kickoff(run_id="r")
    ref = checkpoints(on_disk(), "r")[0].ref
    elsewhere = CheckpointConfig(location=tmp_path / "elsewhere")
    make_crew(["b", "c"], checkpoint=elsewhere).fork(ref, branch="f").kickoff()
    assert not (tmp_path / "elsewhere").exists()
    assert [checkpoint.branch for checkpoint in checkpoints(on_disk(), "r/f")] == ["main", "f", "f"]


# Many forks.


def test_forks_made_first_and_run_in_any_order_never_mix(make_crew, config):
    with pytest.raises(Stop):
        make_crew(["a", "b", Stop()], checkpoint=config()).kickoff(run_id="r")
    before = stored(config())
    for number, order in enumerate(itertools.permutations(range(3))):
        crews = [
            make_crew([f"b{n}", f"c{n}"], checkpoint=config()).fork(at(config, "main@task:t0"), branch=f"p{number}.{n}")
            for n in range(3)
        ]
        for n in order:
            assert outputs(crews[n].kickoff()) == ["a", f"b{n}", f"c{n}"]
        for n in range(3):
            found = checkpoints(config(), f"r/p{number}.{n}")
            assert [checkpoint.branch for checkpoint in found] == ["main", f"p{number}.{n}", f"p{number}.{n}"]
            assert [checkpoint.parent_id for checkpoint in found] == [
                None,
                *(checkpoint.id for checkpoint in found[:-1]),
            ]
    assert stored(config()) == before
    assert outputs(make_crew(["c"], checkpoint=config()).kickoff(run_id="r")) == ["a", "b", "c"]


def test_forks_at_once_in_threads_and_tasks_never_mix(make_crew, config):
    with pytest.raises(Stop):
        make_crew(["a", Stop()], checkpoint=config()).kickoff(run_id="r")
    results = {}

    def crew(name):
        return make_crew(lambda messages: f"{name}: {messages[-1]['content'].split()[1]}", checkpoint=config())

    def in_thread(name):
        results[name] = outputs(crew(name).fork(at(config, "r"), branch=name).kickoff())

    async def in_task(name):
        results[name] = outputs(await crew(name).fork(at(config, "r"), branch=name).akickoff())

    async def tasks():
        await asyncio.gather(*(in_task(f"task{n}") for n in range(6)))

    threads = [threading.Thread(target=in_thread, args=(f"thread{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    asyncio.run(tasks())
    for thread in threads:
        thread.join()
    assert len(results) == 12
    for name, found in results.items():
        assert found == ["a", f"{name}: 1", f"{name}: 2"]
        assert [checkpoint.branch for checkpoint in checkpoints(config(), f"r/{name}")] == ["main", name, name]


# Names.


def test_what_a_result_has_is_not_looked_for_in_a_fork(config):
    agent = Agent(role="R", goal="g", llm=ScriptedLLM(["a"]))
    crew = Crew(tasks=[Task(description="d", expected_output="x", agent=agent)], checkpoint=config())
    crew.kickoff(run_id="r")
    for name in ("raw", "tasks_output"):
        with pytest.raises(AttributeError, match=rf"fork\(ref\)\.kickoff\(\)\.{name}"):
            getattr(crew.fork("r"), name)
    with pytest.raises(AttributeError, match=r"Agent has no 'raw': .*kickoff\(\)\.raw"):
        _ = agent.raw
    assert not hasattr(agent, "no_such_thing")


def test_a_handle_says_on_which_branch_its_run_is(make_crew, config):
    handle = make_crew(["one", "two", "three"], checkpoint=config()).submit(run_id="r")
    handle.result()
    assert (handle.branch, repr(handle)) == ("main", "RunHandle('r')")
    fork = make_crew([], checkpoint=config()).fork("r").submit()
    fork.result()
    assert (fork.run_id, repr(fork)) == ("r", f"RunHandle('r', branch={fork.branch!r})")
    with history(config()) as found:
        assert found.run(f"r/{fork.branch}").branch == fork.branch


def test_a_name_is_made_up_or_checked_or_taken(make_crew, config):
    with pytest.raises(Stop):
        make_crew(["a", Stop()], checkpoint=config()).kickoff(run_id="r")
    crew = make_crew(["b", "c"], checkpoint=config())
    for _ in range(3):
        crew.fork(at(config, "r"))
    with history(config()) as found:
        made = [run.branch for run in found.runs() if run.branch != "main"]
    assert len(set(made)) == 3
    assert all(name.startswith("fork/") for name in made)
    crew.fork(at(config, "r"), branch="experiment-a/deep.er_1")
    for taken, by in (("main", "run_id='r'"), ("experiment-a/deep.er_1", "from_checkpoint='r/experiment-a/deep.er_1'")):
        with pytest.raises(BranchExists, match=f"has a branch '{taken}' already.*{by}"):
            crew.fork(at(config, "r"), branch=taken)
    for bad in ("../x", "/x", "a//b", "latest", "-rf", "a b", "x" * 101):
        with pytest.raises(ConfigError, match="not a usable name"):
            crew.fork(at(config, "r"), branch=bad)


def test_a_fork_of_nothing_is_told_with_candidates(make_crew, config):
    with pytest.raises(Stop):
        make_crew(["a", Stop()], checkpoint=config()).kickoff(run_id="r")
    crew = make_crew(["b", "c"], checkpoint=config())
    for ref, problem in (
        ("main@task:t9", "names no checkpoint of this branch"),
        ("nowhere", "names nothing"),
        ("r/nowhere", "nothing"),
    ):
        with pytest.raises(RefError, match=problem):
            crew.fork(at(config, ref))
    with pytest.raises(ConfigError, match="names no checkpoint"):
        crew.fork(config())


def test_an_operation_done_again_gives_the_same_branch(make_crew, config):
    with pytest.raises(Stop):
        make_crew(["a", Stop()], checkpoint=config()).kickoff(run_id="r")
    crew = make_crew(["b", "c"], checkpoint=config())
    first = crew.fork(at(config, "r"), operation_id="try the bold one")
    assert outputs(first.kickoff()) == ["a", "b", "c"]
    assert outputs(
        make_crew([], checkpoint=config()).fork(at(config, "r"), operation_id="try the bold one").kickoff()
    ) == [
        "a",
        "b",
        "c",
    ]
    another = uuid4()
    crew.fork(at(config, "r"), operation_id=another)
    crew.fork(at(config, "r"), operation_id=str(another))
    crew.fork(at(config, "r"), operation_id="named", branch="n")
    crew.fork(at(config, "r"), operation_id="named", branch="n")
    with pytest.raises(BranchExists):
        crew.fork(at(config, "r"), operation_id="not that one", branch="n")
    with history(config()) as found:
        assert len(found.runs()) == 4


def test_an_operation_done_by_many_at_once_makes_one_branch(make_crew, config):
    with pytest.raises(Stop):
        make_crew(["a", Stop()], checkpoint=config()).kickoff(run_id="r")
    problems = []

    def fork():
        try:
            make_crew(["b", "c"], checkpoint=config()).fork(at(config, "r"), operation_id="same")
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=fork) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    with history(config()) as found:
        assert len(found.runs()) == 2


def test_fork_events_tell_what_happened(make_crew, config):
    with pytest.raises(Stop):
        make_crew(["a", Stop()], checkpoint=config()).kickoff(run_id="r")
    [checkpoint] = checkpoints(config(), "r")
    heard = []
    event_bus.on(BaseEvent, lambda source, event: heard.append((source, event)))
    crew = make_crew(["b", "c"], checkpoint=config())
    crew.fork(at(config, checkpoint.ref), branch="f")
    with pytest.raises(BranchExists):
        crew.fork(at(config, "r"), branch="f")
    with history(config()) as found:
        found.fork("r/f", branch="g")
        assert heard[-1][0] is found
    told = [(event.type, event.branch, event.parent_branch, event.parent_checkpoint_id) for _, event in heard]
    assert told == [
        ("checkpoint_fork_started", "f", "main", checkpoint.id),
        ("checkpoint_fork_completed", "f", "main", checkpoint.id),
        ("checkpoint_fork_started", "f", "main", None),
        ("checkpoint_fork_failed", "f", "main", None),
        ("checkpoint_fork_started", "g", "f", None),
        ("checkpoint_fork_completed", "g", "f", None),
    ]
    assert {event.run_id for _, event in heard} == {"r"}
    assert heard[3][1].error_type == "BranchExists"
    assert heard[0][0] is crew
