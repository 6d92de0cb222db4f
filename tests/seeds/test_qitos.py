"""What people coming from QitOS's page on checkpoints and forks want, step by step, with the names of this house."""

from __future__ import annotations

import signal
import sys

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, event_bus
from crewlite.errors import InputsChanged
from crewlite.events import TaskCompletedEvent
from crewlite.state import InMemoryProvider, JsonProvider, SqliteProvider
from crewlite.testing import ScriptedLLM
from tests import children


@pytest.fixture(params=["memory", "json", "sqlite"])
def store(request):
    provider = {"memory": InMemoryProvider, "json": JsonProvider, "sqlite": SqliteProvider}[request.param]()
    return CheckpointConfig(
        location="checkpoints.db" if request.param == "sqlite" else "checkpoints", provider=provider
    )


def analysis(llm, store):
    agent = Agent(role="Analyst", goal="analyse", llm=llm)
    names = ("read", "clean", "model", "report")
    tasks = [Task(name=n, description=f"{n} {{what}}", expected_output="text", agent=agent) for n in names]
    return Crew(tasks=tasks, checkpoint=store)


def history_of(store):
    return History(store.location, store.provider)


def echo(messages):
    return "did " + messages[1]["content"].split("\n")[0]


def test_basic_checkpointing(store):
    result = analysis(ScriptedLLM(echo), store).kickoff({"what": "the dataset"})
    with history_of(store) as history:
        latest = history.checkpoint(result.run_id)
        assert (latest.version, latest.address) == (4, "task:report")
        assert latest == history.run(result.run_id).checkpoints()[-1]
        assert latest.tasks == ("task:read", "task:clean", "task:model", "task:report")


def test_resuming_a_run(store):
    llm = ScriptedLLM(["one", "two", RuntimeError("network"), "three", "four"])
    crew = analysis(llm, store)
    with pytest.raises(RuntimeError, match="network"):
        crew.kickoff({"what": "it"}, run_id="my-run-001")
    result = crew.kickoff(run_id="my-run-001")
    assert [output.raw for output in result.tasks_output] == ["one", "two", "three", "four"]
    assert len(llm.calls) == 5, "nothing was asked twice"
    with history_of(store) as history:
        [run] = history.runs()
        assert [place.version for place in run.checkpoints()] == [1, 2, 3, 4]
    with pytest.raises(TypeError, match="checkpoint_config"):
        crew.kickoff(checkpoint_config="my-run-001")  # an argument that nobody knows is not swallowed
    with pytest.raises(InputsChanged):
        crew.kickoff({"what": "something else"}, run_id="my-run-001")


def test_forking_a_checkpoint(store):
    crew = analysis(ScriptedLLM(echo), store)
    first = crew.kickoff({"what": "A"}, run_id="my-run-001")
    with history_of(store) as history:
        third = history.run("my-run-001").checkpoints()[2]
        before = history.run("my-run-001").digest, history.run("my-run-001").checkpoints()
    fork = crew.fork(CheckpointConfig(restore_from=third.id), branch="branch-a")
    other = fork.kickoff({"what": "B"})
    assert [output.raw for output in other.tasks_output] == [f"did {n} B" for n in ("read", "clean", "model", "report")]
    assert crew.kickoff(run_id="my-run-001") == first, "the original is untouched"
    with history_of(store) as history:
        assert history.run("my-run-001").checkpoints() == before[1]
        assert history.run("my-run-001/branch-a").base.checkpoint_id == third.id


def test_running_the_agent_from_the_forked_state_with_a_different_prompt(store):
    llm = ScriptedLLM(["found a gap", "tried otherwise"])
    agent = Agent(role="Analyst", goal="analyse", llm=llm, checkpoint=store)
    agent.kickoff("Analyse it", run_id="my-run-001")
    forked = agent.fork(CheckpointConfig(restore_from="my-run-001"), branch="branch-a")
    assert forked.kickoff("Try a different strategy").raw == "tried otherwise"
    said = [message["content"] for message in llm.calls[1][1:]]
    assert said == ["Analyse it", "found a gap", "Try a different strategy"], "it goes on from the forked state"


def test_time_travel_within_a_run(store):
    llm = ScriptedLLM(echo)
    crew = analysis(llm, store)
    crew.kickoff({"what": "A"}, run_id="my-run-001")
    with history_of(store) as history:
        second = history.run("my-run-001").checkpoints()[1]
    again = crew.fork(CheckpointConfig(restore_from=second.id), branch="redo").kickoff()
    assert again.run_id == "my-run-001"
    assert len(llm.calls) == 6, "two answered from the record, two were done again"
    with history_of(store) as history:
        assert history.checkpoint("my-run-001/redo").version == 4
        assert history.checkpoint("my-run-001/redo~2") == history.checkpoint(second.id)
        tail = history.run("my-run-001").checkpoints()
        assert [place.version for place in tail] == [1, 2, 3, 4], "what was left stays"


def test_fork_then_time_travel_within_the_run_with_the_versions_of_its_state(store):
    """Steps 3 to 6 in one go: a branch from a place, then the run itself back to a place, and what changed since."""

    @event_bus.on(TaskCompletedEvent)
    def remember(source, event, state):
        state["current_step"] = state.get("current_step", 0) + 1

    llm = ScriptedLLM(lambda messages: f"{echo(messages)}, reply {len(llm.calls)}")
    durable = store.model_copy(update={"durability": "async"})
    crew = analysis(llm, durable)
    first = [output.raw for output in crew.kickoff({"what": "A"}, run_id="my-run-001").tasks_output]
    with history_of(store) as history:
        second, third, last = history.run("my-run-001").checkpoints()[1:]
        history.fork(third, branch="branch-a", operation_id="branch-a")
    there = CheckpointConfig(restore_from="my-run-001/branch-a", **_where(store))
    branched = crew.kickoff(from_checkpoint=there)
    assert [output.raw for output in branched.tasks_output][:3] == first[:3]
    with history_of(store) as history:
        run = history.rewind(second, reason="redo from step 2")
        assert (run.status, run.checkpoints()[-1]) == ("unfinished", second)
        assert history.checkpoint("my-run-001").versions == {"current_step": 1}
        assert history.checkpoint(last.id).versions == {"current_step": 3}, "what was left can be read"
    redone = [output.raw for output in crew.kickoff(run_id="my-run-001").tasks_output]
    assert redone[:2] == first[:2] and not set(redone[2:]) & set(first[2:]) and len(llm.calls) == 7
    with history_of(store) as history:
        run = history.run("my-run-001")
        assert [place.version for place in run.checkpoints()] == [1, 2, 5, 6], "a number is used once"
        assert second.diff(run.checkpoints()[-1]).changed["current_step"] == (1, 2)
        (tail,) = run.abandoned
        assert (tail.status, tail.checkpoints()[-1]) == ("finished", last)
        assert history.run("my-run-001/branch-a").status == "finished", "forks of what was left stand"
        assert history.doctor() == []


STEPS = """
import os, signal, sys
from crewlite.flow import flow, step
from crewlite import CheckpointConfig

@step
def work(number):
    if number == 3 and sys.argv[2] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    print(number, flush=True)
    return number

@flow(checkpoint=CheckpointConfig(location="checkpoints.db", durability=sys.argv[1], on_events=["step_completed"]))
def agent():
    return sum(work(number) for number in range(6))

print("sum", agent.kickoff(run_id="my-run-001"))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL, which this platform has not")
@pytest.mark.parametrize("durability", ["sync", "async"])
def test_durability_modes(durability):
    def run(how):
        return children.run([sys.executable, "-c", STEPS, durability, how], capture_output=True, text=True)

    assert run("dies").returncode == -signal.SIGKILL
    with History("checkpoints.db") as history:
        saved = [place.address for place in history.run("my-run-001").checkpoints()]
    if durability == "sync":
        assert len(saved) == 3, "all that had been done when the process was killed"
    done = run("lives").stdout.split()
    assert done == [*map(str, range(len(saved), 6)), "sum", "15"], "what is recorded is not done again"
    with History("checkpoints.db") as history:
        assert [place.version for place in history.run("my-run-001").checkpoints()] == [1, 2, 3, 4, 5, 6]


def test_state_version_tracking(store):
    @event_bus.on(TaskCompletedEvent)
    def remember(source, event, state):
        state["current_step"] = state.get("current_step", 0) + 1
        state.setdefault("scratchpad", []).append(event.address)
        if event.address == "task:clean":
            state["finding"] = "dirty"
        state["task"] = "the dataset"

    llm = ScriptedLLM(["one", "two", RuntimeError("network"), "three", "four", "other"])
    crew = analysis(llm, store)
    with pytest.raises(RuntimeError):
        crew.kickoff({"what": "it"}, run_id="my-run-001")
    crew.kickoff(run_id="my-run-001")
    with history_of(store) as history:
        places = history.run("my-run-001").checkpoints()
        assert [place.versions for place in places] == [
            {},
            {"current_step": 1, "scratchpad": 1, "task": 1},
            {"current_step": 2, "scratchpad": 2, "task": 1, "finding": 1},
            {"current_step": 3, "scratchpad": 3, "task": 1, "finding": 1},
        ]
        assert places[1].diff(places[2]).added == {"finding": "dirty"}
        history.fork(places[2], branch="b")
    crew.kickoff(from_checkpoint=CheckpointConfig(restore_from="my-run-001/b", **_where(store)))
    with history_of(store) as history:
        assert history.checkpoint("my-run-001/b").versions == places[2].versions


def _where(store):
    return {"location": store.location, "provider": store.provider}
