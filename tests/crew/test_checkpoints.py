"""A checkpoint is exact, whole and never missing; who may name one is decided from the inside out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, event_bus, tool
from crewlite.errors import ConfigError, RefError
from crewlite.events import (
    BaseEvent,
    CheckpointCompletedEvent,
    CheckpointPrunedEvent,
    CheckpointStartedEvent,
    LLMCallCompletedEvent,
    TaskCompletedEvent,
    ToolUsageFinishedEvent,
)
from crewlite.state import InMemoryProvider, JsonProvider, SqliteProvider
from crewlite.testing import EventRecorder, ScriptedLLM
from tests.crew.listed import checkpoints


def test_forty_tasks_write_forty_checkpoints_the_kth_holding_k(make_crew, config):
    make_crew(lambda messages: "done", 40, checkpoint=config()).kickoff()
    found = checkpoints(config())
    assert [len(checkpoint.tasks) for checkpoint in found] == list(range(1, 41))
    assert [checkpoint.address for checkpoint in found] == [f"task:t{n}" for n in range(40)]
    assert [checkpoint.parent_id for checkpoint in found] == [None, *(checkpoint.id for checkpoint in found[:-1])]
    assert [checkpoint.usage.requests for checkpoint in found] == list(range(1, 41))


def test_the_same_at_full_speed_with_async_handlers_and_concurrent_kickoffs(make_crew, config):
    crew = make_crew(lambda messages: "done", 40, checkpoint=config())
    slow = []

    @event_bus.on(BaseEvent)
    async def handler(source, event, state):
        await asyncio.sleep(0)
        slow.append(event.type)

    async def many():
        return await asyncio.gather(*(crew.akickoff(run_id=f"run{n}") for n in range(8)))

    asyncio.run(many())
    for n in range(8):
        found = checkpoints(config(), f"run{n}")
        assert [len(checkpoint.tasks) for checkpoint in found] == list(range(1, 41))
        assert all(checkpoint.run_id == f"run{n}" for checkpoint in found)
    assert slow.count("task_completed") == 8 * 40


def test_a_checkpoints_history_ends_where_it_stands(make_crew, config):
    make_crew(["a", "b", "c"], checkpoint=config()).kickoff()
    first, second, _ = checkpoints(config())
    assert [event.type for event in first.events()][-1] == "task_completed"
    assert first.events() == second.events()[: len(first.events())]
    assert all(event.seq <= first.seq for event in first.events())


def test_a_checkpoint_tells_the_same_whether_its_event_is_heard_or_not(make_crew, config):
    def told(run_id):
        every = config(on_events=["*"])
        make_crew(["the first answer", "b", "c"], checkpoint=every).kickoff(run_id=run_id)
        with contextlib.closing(every.provider.open(every.location)) as store:
            made = [entry.commit["place"] for entry in store.read(run_id, "main") if "place" in entry.commit]
        return [(one["seq"], one["trigger"], one["address"], one["about"]) for one in made]

    unheard = told("unheard")
    with EventRecorder():
        assert told("heard") == unheard
    assert ("task_completed", "the first answer") in [
        (trigger, about.get("output")) for _, trigger, _, about in unheard
    ]


def test_json_checkpoints_are_small_readable_files_of_their_own(make_crew):
    make_crew(["the first answer", "b", "c"], checkpoint=True).kickoff(run_id="r")
    root = Path(".checkpoints")
    files = sorted(root.glob("*.json"))
    assert len(files) == 3
    stamp, _, identifier = files[0].stem.partition("_")
    document = json.loads(files[0].read_text())
    assert stamp[:8].isdigit() and document["id"] == identifier
    assert list(document)[1:5] == ["id", "run_id", "branch", "parent_id"]
    assert document["about"]["output"] == "the first answer"
    assert (root / ".gitignore").read_text() == "*\n"
    assert (root / "journal" / "r" / "main.jsonl").exists()
    if os.name == "posix":
        assert root.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_file()} == {0o600}


@pytest.mark.parametrize(
    ("event", "count"),
    [
        ("llm_call_completed", 2),
        ("llm_call_started", 2),
        ("tool_usage_started", 1),
        ("tool_usage_finished", 1),
        ("task_started", 1),
        ("agent_execution_started", 1),
        ("agent_execution_completed", 1),
        ("crew_kickoff_started", 1),
        ("crew_kickoff_completed", 1),
        ("step_completed", 1),
        ("agent_logs_execution", 2),
    ],
)
def test_on_events_works_for_every_source(config, event, count):
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    llm = ScriptedLLM([ToolCall("look"), "answer"])
    who = Agent(role="W", goal="g", llm=llm, tools=[look], verbose=True)
    task = Task(name="t", description="d", expected_output="x", agent=who, callback=lambda output: None)
    Crew(tasks=[task], checkpoint=config(on_events=[event])).kickoff()
    assert [checkpoint.trigger for checkpoint in checkpoints(config())] == [event] * count


def test_the_wildcard_names_one_at_every_event_that_can(config):
    heard = []
    event_bus.on(BaseEvent, lambda source, event: heard.append(event.type))
    who = Agent(role="W", goal="g", llm=ScriptedLLM(["answer"]))
    task = Task(description="d", expected_output="x", agent=who)
    Crew(tasks=[task], checkpoint=config(on_events=["*"])).kickoff()
    told = [event for event in heard if not event.startswith("checkpoint_")]
    assert [checkpoint.trigger for checkpoint in checkpoints(config())] == told


def test_event_classes_are_accepted_and_typos_answered(config):
    assert config(on_events=[LLMCallCompletedEvent]).on_events == ("llm_call_completed",)
    with pytest.raises(ConfigError, match="did you mean 'task_completed'"):
        config(on_events=["task_complete"])
    with pytest.raises(ConfigError, match="wanted a list"):
        config(on_events="task_completed")
    with pytest.raises(ConfigError, match="never create one"):
        config(on_events=["checkpoint_completed"])


def test_an_event_that_never_happens_is_warned_about(make_crew, config, caplog):
    make_crew(["a", "b", "c"], checkpoint=config(on_events=["lite_agent_execution_completed"])).kickoff()
    assert "is never emitted in a run of crew" in caplog.text


def two_agents(first, second, crew):
    llm = ScriptedLLM(lambda messages: "done")
    one = Agent(role="One", goal="g", llm=llm, checkpoint=first)
    two = Agent(role="Two", goal="g", llm=llm, checkpoint=second)
    tasks = [Task(name=who.role, description="d", expected_output="x", agent=who) for who in (one, two)]
    return Crew(tasks=tasks, checkpoint=crew)


@pytest.mark.parametrize(
    ("first", "second", "crew", "named"),
    [
        (None, None, True, ["One", "Two"]),
        (None, False, True, ["One"]),
        (None, None, None, []),
        (None, True, False, ["Two"]),
        (True, None, None, ["One"]),
        (False, False, True, []),
    ],
)
def test_settings_are_inherited_and_opting_out_stops_there(first, second, crew, named):
    two_agents(first, second, crew).kickoff(inputs={})
    if not Path(".checkpoints").exists():
        assert named == []
        return
    assert [checkpoint.address for checkpoint in checkpoints(CheckpointConfig())] == [f"task:{name}" for name in named]


def test_an_opted_out_agents_work_is_still_recorded_and_not_paid_again(on_disk):
    class Stop(Exception):
        pass

    llm = ScriptedLLM(["a", "b", Stop(), "c"])
    quiet = Agent(role="Quiet", goal="g", llm=llm, checkpoint=False)
    tasks = [Task(name=f"t{n}", description="d", expected_output="x", agent=quiet) for n in range(3)]
    crew = Crew(tasks=tasks, checkpoint=on_disk())
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    assert checkpoints(on_disk()) == []
    assert crew.kickoff(run_id="r").raw == "c"
    assert len(llm.calls) == 4


def test_an_inner_definition_says_when_and_never_where(on_disk):
    inner = CheckpointConfig(on_events=["llm_call_completed"])
    two_agents(inner, None, on_disk()).kickoff()
    assert [(checkpoint.address, checkpoint.trigger) for checkpoint in checkpoints(on_disk())] == [
        ("task:One/llm#1", "llm_call_completed"),
        ("task:Two", "task_completed"),
    ]
    with pytest.raises(ConfigError, match="A run has one store"):
        two_agents(CheckpointConfig(location="./elsewhere"), None, on_disk()).kickoff()


def test_max_checkpoints_keeps_the_newest_of_this_run_alone(make_crew, config):
    pruned = []
    event_bus.on(CheckpointPrunedEvent, lambda source, event: pruned.append(event.removed_count))
    make_crew(lambda messages: "x", 5, checkpoint=config()).kickoff(run_id="other")
    make_crew(lambda messages: "x", 5, checkpoint=config(max_checkpoints=2)).kickoff(run_id="r")
    assert [checkpoint.address for checkpoint in checkpoints(config(), "r")] == ["task:t3", "task:t4"]
    assert len(checkpoints(config(), "other")) == 5
    assert pruned == [1, 1, 1]


def test_max_checkpoints_also_counts_after_a_resume(make_crew, on_disk):
    class Stop(Exception):
        pass

    crew = make_crew(["a", "b", "c", Stop(), "d", "e"], 5, checkpoint=on_disk(max_checkpoints=2))
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    crew.kickoff(run_id="r")
    assert [checkpoint.address for checkpoint in checkpoints(on_disk())] == ["task:t3", "task:t4"]
    if not on_disk().location.endswith(".db"):
        assert len(list(Path(on_disk().location).glob("*.json"))) == 2


def test_checkpoint_events_tell_what_happened(make_crew, config):
    heard = []
    for kind in (CheckpointStartedEvent, CheckpointCompletedEvent):
        event_bus.on(kind, lambda source, event: heard.append(event))
    make_crew(["a"], count=1, checkpoint=config()).kickoff()
    started, completed = heard
    assert started.checkpoint_id == completed.checkpoint_id
    assert completed.trigger == "task_completed"
    assert completed.ref == checkpoints(config())[0].ref
    assert completed.duration_ms > 0


def test_handlers_hear_only_what_is_on_disk(make_crew, on_disk):
    missing = []

    @event_bus.on(BaseEvent)
    def look(source, event):
        if event.seq is not None and event.address and event.type.endswith(("completed", "finished")):
            with History(on_disk().location) as history:
                held = {step.address for step in history.run("r").steps}
            if event.type != "agent_execution_completed" and event.address not in held:
                missing.append(event.address)

    make_crew(["a", "b", "c"], checkpoint=on_disk()).kickoff(run_id="r")
    assert missing == []


def test_a_database_is_the_file_at_its_location(make_crew, tmp_path):
    config = CheckpointConfig(location=tmp_path / "runs", provider=SqliteProvider())
    make_crew(["a", "b", "c"], checkpoint=config).kickoff(run_id="r")
    assert (tmp_path / "runs").is_file()
    assert make_crew([], checkpoint=config).kickoff(run_id="r").raw == "c"


def test_a_task_run_again_is_still_one_task(on_disk):
    class Stop(Exception):
        pass

    def crew(text, llm, **config):
        who = Agent(role="W", goal="g", llm=llm)
        tasks = [
            Task(name=n, description=d, expected_output="x", agent=who, context=[])
            for n, d in (("a", text), ("b", "b"))
        ]
        return Crew(tasks=tasks, checkpoint=on_disk(**config))

    with pytest.raises(Stop):
        crew("a", ScriptedLLM(["1", Stop()])).kickoff(run_id="r")
    crew("a!", ScriptedLLM(["one", "two"]), on_drift="rerun").kickoff(run_id="r")
    assert [checkpoint.tasks for checkpoint in checkpoints(on_disk())] == [
        ("task:a",),
        ("task:a",),
        ("task:a", "task:b"),
    ]


def test_labelled_places_are_never_dropped(make_crew, on_disk):
    @event_bus.on(TaskCompletedEvent)
    def keep(source, event, state):
        if event.task_name in ("t0", "t1"):
            state.checkpoint(label=event.task_name)

    make_crew(lambda messages: "x", 5, checkpoint=on_disk(max_checkpoints=2)).kickoff()
    found = checkpoints(on_disk())
    assert [checkpoint.label for checkpoint in found if checkpoint.label] == ["t0", "t1"]
    assert [checkpoint.address for checkpoint in found if not checkpoint.label] == ["task:t3", "task:t4"]


def test_a_users_own_provider_is_accepted_and_a_class_is_not(make_crew):
    class Mine:
        name = "mine"

        def __init__(self):
            self.inner = InMemoryProvider()

        def open(self, location):
            return self.inner.open(location)

    provider = Mine()
    make_crew(["a", "b", "c"], checkpoint=CheckpointConfig(provider=provider)).kickoff(run_id="r")
    assert len(History("./.checkpoints", provider).run("r").checkpoints()) == 3
    with pytest.raises(ConfigError, match="an instance"):
        CheckpointConfig(provider=JsonProvider)


def test_history_of_nothing_is_a_clear_error():
    with pytest.raises(RefError, match="does not exist"):
        History("./nowhere")
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("payload", [200, 2000])
def test_storage_grows_linearly_with_the_work(make_crew, on_disk, tmp_path, payload):
    def bytes_per_task(count):
        config = CheckpointConfig(location=f"{tmp_path}/n{count}{'.db' if on_disk().location.endswith('.db') else ''}")
        make_crew(lambda messages: "x" * payload, count, checkpoint=config).kickoff()
        path = Path(config.location)
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        return sum(file.stat().st_size for file in files) / count

    few, many = bytes_per_task(50), bytes_per_task(400)
    assert many <= 3 * 1024 + 1.2 * payload
    assert many <= 1.15 * few


def test_a_tool_finished_is_heard_with_the_text_the_model_gets(config):
    @tool
    def facts() -> dict:
        """Facts."""
        return {"höhe": 3}

    outputs = []
    event_bus.on(ToolUsageFinishedEvent, lambda source, event: outputs.append(event.output))
    llm = ScriptedLLM([ToolCall("facts"), "answer"])
    who = Agent(role="W", goal="g", llm=llm, tools=[facts])
    Crew(tasks=[Task(description="d", expected_output="x", agent=who)], checkpoint=config()).kickoff()
    assert outputs == ['{"höhe": 3}'] == [llm.calls[1][-1]["content"]]
