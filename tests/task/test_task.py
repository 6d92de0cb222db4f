"""What a task does before it counts as finished, and in which order."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from crewlite import Agent, Crew, History, Task, event_bus
from crewlite.errors import ConfigError
from crewlite.events import StepCompletedEvent, TaskCompletedEvent
from crewlite.flow import flow
from crewlite.testing import CrashInjector, ScriptedLLM


class Fact(BaseModel):
    word: str
    count: int = 1


def run(task_fields, *replies, **crew_fields):
    who = Agent(role="W", goal="g", llm=ScriptedLLM(list(replies)))
    task = Task(**{"description": "d", "expected_output": "x", "agent": who, **task_fields})
    return Crew(tasks=[task], **crew_fields)


def test_output_pydantic_and_output_json_give_the_answer_its_shape():
    reply = '{"word": "tide"}'
    output = run({"output_pydantic": Fact}, reply).kickoff().tasks_output[0]
    assert output.pydantic == Fact(word="tide")
    assert (output.raw, output.json_dict, output["count"]) == (reply, None, 1)
    result = run({"output_json": Fact}, reply).kickoff()
    assert result.json_dict == {"word": "tide", "count": 1}
    assert json.loads(result.json) == json.loads(output.json) == result.json_dict
    with pytest.raises(ConfigError, match="There is no JSON"):
        run({}, reply).kickoff().json  # noqa: B018 - a property
    with pytest.raises(ConfigError, match="choose one"):
        Task(description="d", expected_output="x", output_json=Fact, output_pydantic=Fact)


def test_an_expected_output_may_be_left_to_the_description():
    crew = run({"expected_output": ""}, "done")
    assert crew.kickoff().raw == "done"
    [[_, asked]] = crew.tasks[0].agent.llm.calls
    assert asked["content"] == "d"


def test_a_person_without_a_terminal_may_be_heard_on_a_pipe(monkeypatch, tmp_path):
    (tmp_path / "said.txt").write_text("shorter\n\n")
    with (tmp_path / "said.txt").open() as said:
        monkeypatch.setattr(sys, "stdin", said)
        assert run({"human_input": True}, "a long answer", "short").kickoff().raw == "short"
    with open(os.devnull) as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        with pytest.raises(ConfigError, match="nobody could answer"):
            run({"human_input": True}, "a").kickoff()


def test_the_output_file_is_written_whole_with_its_placeholders_filled():
    run({"output_file": "out/{topic}.md"}, "# Tides\n").kickoff(inputs={"topic": "tides"})
    assert Path("out/tides.md").read_text() == "# Tides\n"
    if os.name == "posix":
        umask = os.umask(0)
        os.umask(umask)
        assert Path("out/tides.md").stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_failing_write_leaves_the_old_file_whole():
    Path("out.md").write_text("old")
    with CrashInjector() as clean:
        run({"output_file": "clean.md"}, "new").kickoff()
    for n in range(1, clean.count):
        with CrashInjector(n, error=OSError(28, "full")), pytest.raises(OSError, match="full"):
            run({"output_file": "out.md"}, "new").kickoff()
        assert Path("out.md").read_text() == "old"
    assert [path.name for path in Path().glob(".*.tmp")] == []


def test_file_then_callback_then_finished():
    order = []

    def callback(output):
        order.append(("callback", Path("out.md").read_text()))

    event_bus.on(StepCompletedEvent, lambda source, event: order.append((event.address, event.kind)))
    event_bus.on(TaskCompletedEvent, lambda source, event: order.append(event.type))
    run({"name": "t", "output_file": "out.md", "callback": callback}, "text").kickoff()
    assert order == [("callback", "text"), ("task:t/callback:callback", "callback"), "task_completed"]


def test_a_failing_callback_keeps_the_answer_and_is_called_again_on_resume():
    calls = []

    async def callback(output):
        calls.append(output.raw)
        if len(calls) == 1:
            raise ConnectionRefusedError("hook is down")

    crew = run({"name": "t", "callback": callback}, "text", checkpoint=True)
    with pytest.raises(ConnectionRefusedError):
        crew.kickoff(run_id="r")
    assert crew.kickoff(run_id="r").raw == "text"
    assert calls == ["text", "text"]
    assert len(crew.tasks[0].agent.llm.calls) == 1
    kinds = [step.kind for step in History().run("r").steps]
    assert kinds == ["llm", "callback", "task", "crew"]


def test_answers_of_any_characters_survive():
    odd = "tab\t nul\0 bell\a surrogate\ud83d moon\U0001f319 rtl\u202e"
    crew = run({"name": "t", "output_file": "out.md"}, odd, checkpoint=True)
    assert crew.kickoff(run_id="r").raw == odd
    assert crew.kickoff(run_id="r").raw == odd


def test_a_task_may_have_any_name_and_its_address_a_plain_one(memory):
    config, names = memory(), ["Synthèse & Co: 1", "潮汐", "a/b#2!", "a_b_2", "plain one"]
    clerk = Agent(role="Clerk", goal="g", llm="offline")

    def crew():
        tasks = [Task(name=name, description=name, expected_output="x", agent=clerk) for name in names]
        return Crew(tasks=tasks, checkpoint=config)

    result = crew().kickoff(run_id="r")
    assert [output.name for output in result.tasks_output] == names
    assert result["潮汐"] is result.tasks_output[1]
    with History(config.location, provider=config.provider) as history:
        addresses = [checkpoint.address for checkpoint in history.run("r").checkpoints()]
    assert addresses[0] == "task:Synthese_Co_1"
    assert addresses[1].startswith("task:task_")
    assert addresses[2:] == ["task:a_b_2", "task:a_b_2#2", "task:plain one"]
    edited = crew().fork(f"r/main@{addresses[1]}", edits={addresses[1]: "other"}).kickoff()
    assert edited["潮汐"].raw == "other"

    @flow
    def inside():
        return crew().with_(checkpoint=None).kickoff()["a/b#2!"].raw

    assert inside.kickoff()
    with pytest.raises(ConfigError, match="wanted one line of visible characters"):
        Task(name="a\nb", description="d", expected_output="x")


def test_none_asks_for_the_default():
    task = Task(description="d", expected_output="x", human_input=None, tools=None, name=None)
    assert (task.human_input, task.tools, task.name) == (False, (), None)
    agent = Agent(role="Clerk", goal="g", verbose=None, max_iter=None, max_tool_output=None)
    assert (agent.verbose, agent.max_iter, agent.max_tool_output) == (False, 25, None), "where None says nothing itself"
    with pytest.raises(ConfigError, match="role"):
        Agent(role=None, goal="g")
