"""What a kickoff leaves out when nobody looks: events that nobody receives, and itself once it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
from pathlib import Path

from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.events import BaseEvent, StepReplayedEvent
from crewlite.events.event_bus import event_bus
from crewlite.state.journal.journal import Journal
from crewlite.testing import ScriptedLLM


def crew(checkpoint: CheckpointConfig | None = None) -> Crew:
    agent = Agent(role="Writer", goal="write", llm=ScriptedLLM(["first", "second"]))
    tasks = [Task(name=name, description=name, expected_output="text", agent=agent) for name in ("draft", "final")]
    return Crew(tasks=tasks, checkpoint=checkpoint)


def recorded_events(location: Path) -> list[tuple[str, str]]:
    (journal,) = location.rglob("*.jsonl")
    commits = [json.loads(line) for line in journal.read_text().splitlines()]
    found = [event for commit in commits for event in commit.get("events", ())]
    assert len({identifier for _, identifier, _, _ in found}) == len(found)
    return [(kind, address) for kind, _, _, address in found]


def test_the_record_holds_the_same_events_whoever_listens(tmp_path):
    heard: list[BaseEvent] = []
    crew(CheckpointConfig(location=tmp_path / "alone")).kickoff(run_id="r")
    with event_bus.on(BaseEvent, lambda source, event: heard.append(event)):
        crew(CheckpointConfig(location=tmp_path / "heard")).kickoff(run_id="r")
    alone, with_a_listener = recorded_events(tmp_path / "alone"), recorded_events(tmp_path / "heard")
    assert alone == with_a_listener
    assert set(alone) <= {(event.type, event.address or "") for event in heard}


def test_a_resume_records_nothing_about_the_steps_that_had_finished(tmp_path):
    def kick_off(*replies: str | Exception) -> None:
        agent = Agent(role="Writer", goal="write", llm=ScriptedLLM(replies))
        names = ("draft", "final")
        tasks = [Task(name=name, description=name, expected_output="text", agent=agent) for name in names]
        with contextlib.suppress(ValueError):
            Crew(tasks=tasks, checkpoint=config).kickoff(run_id="r")

    replayed: list[str | None] = []
    config = CheckpointConfig(location=tmp_path, on_events=["*"])
    with event_bus.on(StepReplayedEvent, lambda source, event: replayed.append(event.address)):
        kick_off("first", ValueError("cut"))
        before = recorded_events(tmp_path)
        kick_off("second")
    assert replayed == ["task:draft"]
    added = recorded_events(tmp_path)[len(before) :]
    assert {address for _, address in added} == {"", "task:final", "task:final/llm#1"}


def journals() -> list[Journal]:
    return [one for one in gc.get_objects() if isinstance(one, Journal)]


def test_a_run_that_has_ended_is_freed_at_once():
    async def journals_left() -> int:
        agent = Agent(role="Writer", goal="write", llm=ScriptedLLM(lambda messages: "text"))
        made = Crew(tasks=[Task(description="draft", expected_output="text", agent=agent)])
        await made.akickoff()
        gc.collect()
        before = {id(one) for one in journals()}  # other tests may have left some
        gc.disable()
        try:
            await made.akickoff_for_each([{}] * 9, max_concurrency=2)
            return len([one for one in journals() if id(one) not in before])
        finally:
            gc.enable()

    assert asyncio.run(journals_left()) <= 2  # of those that ended last, whose tasks the loop has not let go of yet
