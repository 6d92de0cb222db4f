"""What people coming from the checkpointing page of another framework write, with the package name changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.events.event_bus import crewlite_event_bus
from crewlite.events.types.llm_events import LLMCallCompletedEvent
from crewlite.state import JsonProvider, SqliteProvider
from crewlite.state.runtime import RuntimeState
from crewlite.testing import ScriptedLLM


class CtrlC(Exception):
    pass


@pytest.fixture(params=["environment", "llm="])
def model(request, monkeypatch):
    """A model for the crews below, given in one of the two ways; yields the fields to give to a Crew."""
    if request.param == "environment":
        monkeypatch.setenv("CREWLITE_MODEL", "offline")
        return {}
    return {"llm": ScriptedLLM(lambda messages: f"answer to {messages[-1]['content'][:20]}")}


def team(**fields):
    researcher = Agent(role="Researcher", goal="Research", backstory="Expert")
    writer = Agent(role="Writer", goal="Write", backstory="Expert")
    return Crew(
        agents=[researcher, writer],
        tasks=[
            Task(description="Research AI trends", agent=researcher, expected_output="bullets"),
            Task(description="Write a summary", agent=writer, expected_output="paragraph"),
        ],
        **fields,
    )


@pytest.mark.parametrize("storage", ["json", "sqlite"])
def test_the_tutorial_resume_a_failing_crew(storage):
    database = CheckpointConfig(location="./.checkpoints.db", provider=SqliteProvider())
    llm = ScriptedLLM(["- trends", CtrlC(), "a summary"])
    crew = team(checkpoint=True if storage == "json" else database, llm=llm)
    with pytest.raises(CtrlC):
        crew.kickoff()
    if storage == "json":
        [place] = Path(".checkpoints").glob("*_*.json")
    else:
        place = Path("./.checkpoints.db")
    result = crew.kickoff(from_checkpoint=CheckpointConfig(restore_from=str(place)))
    again = crew.kickoff(from_checkpoint=CheckpointConfig(restore_from=str(place)))
    assert result == again
    assert [output.raw for output in result.tasks_output] == ["- trends", "a summary"]
    assert len(llm.calls) == 3
    assert "- trends" in llm.calls[-1][1]["content"]


def test_enable_with_defaults(model):
    team(checkpoint=True, **model).kickoff()
    assert len(list(Path(".checkpoints").glob("*_*.json"))) == 2


@pytest.mark.parametrize("provider", [None, JsonProvider(), SqliteProvider()])
def test_customise_storage_and_frequency(model, provider):
    location = "./my_checkpoints.db" if isinstance(provider, SqliteProvider) else "./my_checkpoints"
    crew = team(
        checkpoint=CheckpointConfig(
            location=location,
            provider=provider,
            on_events=["task_completed", "crew_kickoff_completed"],
            max_checkpoints=5,
        ),
        **model,
    )
    assert crew.kickoff().durability == "sync"
    assert Path(location).exists()


def test_opt_one_agent_out(model):
    crew = Crew(
        agents=[
            researcher := Agent(role="Researcher", goal="Research", backstory="Expert"),
            writer := Agent(role="Writer", goal="Write", backstory="Expert", checkpoint=False),
        ],
        tasks=[
            Task(description="Research AI trends", agent=researcher, expected_output="bullets"),
            Task(description="Write a summary", agent=writer, expected_output="paragraph"),
        ],
        checkpoint=True,
        **model,
    )
    crew.kickoff()
    assert len(list(Path(".checkpoints").glob("*_*.json"))) == 1


def test_checkpoint_an_agent(model):
    agent = Agent(
        role="Researcher",
        goal="Research topics",
        backstory="Expert researcher",
        checkpoint=CheckpointConfig(location="./agent_cp", on_events=["lite_agent_execution_completed"]),
        **model,
    )
    result = agent.kickoff(messages=[{"role": "user", "content": "Research AI trends"}])
    assert result.raw
    assert len(list(Path("agent_cp").glob("*_*.json"))) == 1


@pytest.mark.parametrize("location", ["./my_checkpoints", "./my_checkpoints.db"])
def test_write_a_checkpoint_by_hand(model, location):
    saved = []

    @crewlite_event_bus.on(LLMCallCompletedEvent)
    def on_llm_done(source: Any, event: LLMCallCompletedEvent, state: RuntimeState) -> None:
        saved.append(state.checkpoint(location))

    team(**model).kickoff()
    assert len(saved) == 2


def test_write_a_checkpoint_by_hand_asynchronously(model):
    saved = []

    @crewlite_event_bus.on(LLMCallCompletedEvent)
    async def on_llm_done_async(source: Any, event: LLMCallCompletedEvent, state: RuntimeState) -> None:
        saved.append(await state.acheckpoint("./my_checkpoints"))

    team(**model).kickoff()
    assert [Path(path).exists() for path in saved] == [True, True]


@pytest.mark.parametrize("provider", [JsonProvider(), SqliteProvider()])
def test_fork_into_a_new_branch(monkeypatch, provider):
    monkeypatch.setenv("CREWLITE_MODEL", "offline")
    location = "./my_checkpoints.db" if isinstance(provider, SqliteProvider) else "./my_checkpoints"
    original = Crew(
        agents=[planner := Agent(role="Planner", goal="Plan", backstory="Expert")],
        tasks=[
            Task(description="Look at the market", agent=planner, expected_output="bullets"),
            Task(description="Plan with a {strategy} strategy", agent=planner, expected_output="plan"),
        ],
        checkpoint=CheckpointConfig(location=location, provider=provider),
    )
    first = original.kickoff(inputs={"strategy": "careful"})
    with History(location, provider) as history:
        place, _ = history.run().checkpoints()
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file() and "db" not in path.name}

    config = CheckpointConfig(restore_from=str(Path(place.ref).relative_to(Path.cwd())))
    crew = Crew.fork(config, branch="experiment-a")
    result = crew.kickoff(inputs={"strategy": "aggressive"})

    assert result.tasks_output[0].raw == first.tasks_output[0].raw
    assert result.tasks_output[1].description == "Plan with a aggressive strategy"
    assert {path: path.read_bytes() for path in before} == before
    with History(location, provider) as history:
        assert [run.branch for run in history.runs()] == ["main", "experiment-a"]
        assert history.run("experiment-a").inputs == {"strategy": "aggressive"}
        assert history.run("main").inputs == {"strategy": "careful"}
    assert Crew.fork(config).kickoff().raw == first.raw
    with History(location, provider) as history:
        assert history.runs()[-1].branch.startswith("fork/")
