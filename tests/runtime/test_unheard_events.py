"""What a kickoff leaves out when nobody looks: events that nobody receives, and itself once it has ended."""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path

from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.events import BaseEvent
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
