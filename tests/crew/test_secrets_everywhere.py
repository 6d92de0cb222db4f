"""Secrets stand wherever a text of a user can stand, and nobody who watches a run or reads its record gets to see one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from click.testing import CliRunner
from pydantic import BaseModel, SecretStr

from crewlite import Agent, BaseLLM, CheckpointConfig, Crew, History, LLMReply, Task, ToolCall, event_bus, report, tool
from crewlite.cli.main import main
from crewlite.errors import RunMismatch
from crewlite.events import BaseEvent, LLMCallStartedEvent
from crewlite.events.registry import load
from crewlite.flow import Flow, ask, flow, human_feedback, listen, start, step
from crewlite.recovery import FailurePolicy, replan
from crewlite.runtime.steps.run import Origin, Run
from crewlite.state.format.record import Record
from crewlite.state.journal.journal import Journal
from crewlite.state.subscriber import CheckpointSubscriber
from crewlite.testing import EventRecorder, ScriptedLLM
from crewlite.texts.masking import MASK
from crewlite.texts.secrets import Secrets
from crewlite.usage import Usage

ENVIRONMENT, KEY, INPUT = "env-canary-4444444444", "key-canary-1111111111", "inp-canary-7777777777"
KNOWN = {"environment": ENVIRONMENT, "key of a model": KEY, "input": INPUT}
ALL = " ".join(KNOWN.values())
PLACES = {"run_id", "branch", "address", "parent_event_id", "started_event_id", "source_id", "event_id", "kind"}
"""Fields that say where an event belongs, or of which kind a step is: no texts of users."""


@dataclass
class Note:
    text: str


class Letter(BaseModel):
    body: Any


def sample(hint):
    """A value of this type, with the secret in each of its texts."""
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    if type(None) in get_args(hint):
        return sample(next(one for one in get_args(hint) if one is not type(None)))
    if get_origin(hint) is Union or hint == int | float:
        return 1
    if get_origin(hint) is tuple:
        return (sample(get_args(hint)[0]),)
    if get_origin(hint) is dict:
        return {ALL: sample(get_args(hint)[1])}
    if hint is Any:
        deep = {ALL: [ALL, (ALL,), {ALL}], "bytes": ALL.encode(), "path": Path(ALL)}
        return Letter(body=[deep, Note(ALL), Letter(body=ALL), ValueError(ALL)])
    plain = {str: ALL, int: 1, float: 1.0, bool: True, datetime: datetime.now(UTC), Usage: Usage()}
    return plain[hint]


@pytest.mark.parametrize("cls", [one for one in load().values() if one is not BaseEvent], ids=lambda cls: cls.__name__)
def test_no_field_of_any_event_that_a_run_tells_holds_a_secret(cls):
    about = {name: sample(one.annotation) for name, one in cls.model_fields.items() if name not in PLACES}
    about |= {"kind": "step"} if "kind" in cls.model_fields else {}

    async def tell():
        run = Run(Journal("r", "main", Record(), Secrets(KNOWN.values())), CheckpointSubscriber(frozenset()))
        run.tell(run, (cls, about), Origin("", ALL))

    with EventRecorder() as heard:
        asyncio.run(tell())
    [event] = heard
    shown = f"{event!r}\n{vars(event)}\n{event.model_dump()}"
    for name, secret in KNOWN.items():
        assert secret not in shown, name
    assert type(event.source_name) is str
    assert ("canary" in repr(about)) == (MASK in shown)


class Model(BaseLLM):
    """Answers with the secrets, after a call of the tool with them, one that fails, and two that are refused."""

    def __init__(self):
        super().__init__("stub")
        self.api_key = KEY

    async def acall(self, messages, *, on_chunk=None):
        said = str(messages)
        if on_chunk:
            await on_chunk(f"piece {ALL}")
        if "plan" in said and "steps" in said:
            return json.dumps({"steps": [f"use {ALL}"]})
        if '"valid"' in said:
            return json.dumps({"valid": True, "feedback": ALL})
        if any(one["role"] == "tool" for one in messages):
            return f"answer {ALL}"
        calls = [
            ("look", {"where": ALL}),
            ("look", {"where": f"nowhere {ALL}"}),
            ("lok", {"x": ALL}),
            ("look", {"y": ALL}),
        ]
        return LLMReply(tool_calls=tuple(ToolCall(*call) for call in calls))


@tool
def look(where: str) -> str:
    """Look at env-canary-4444444444."""
    report(f"looking {ALL}", done=1, total=2)
    if where.startswith("nowhere"):
        raise LookupError(f"lost {ALL}")
    return f"seen {ALL}"


def turned_down_once():
    left = [f"not {ALL}"]
    return lambda output: (False, left.pop()) if left else (True, f"better {ALL}")


def clerk(**settings):
    about = {"role": f"Clerk {ALL}", "goal": f"goal {ALL}", "backstory": f"story {ALL}", "verbose": True}
    return Agent(**about, llm=Model(), tools=[look], **settings)


def crew(**settings):
    who = clerk()
    about = {"description": f"Do {{x}} {ALL}", "expected_output": f"one {ALL}", "agent": who}
    first = Task(**about, guardrails=[turned_down_once(), f"holds {ALL}"], output_file="out/first.txt")
    return Crew(tasks=[first, Task(**about)], verbose=True, **settings)


class Report(Flow[dict[str, Any]]):
    verbose = True

    @start()
    def begin(self):
        self.state["token"] = {ALL: [ALL]}
        return self.ask(f"Which {ALL}?", name="which", metadata={"about": ALL})

    @listen(begin)
    def work(self, answer):
        return crew().kickoff({"x": f"{answer} {ALL}", "token": SecretStr(INPUT)})

    @human_feedback(f"Is {ALL} fine?", metadata={"about": ALL})
    @listen(work)
    def show(self, made):
        return {"made": made.raw, "note": Note(f"see {ALL}"), "bytes": ALL.encode()}

    @listen(show)
    def end(self, feedback):
        raise RuntimeError(f"ended {ALL}")


@step(type=f"kind {ALL}", failure_policy=FailurePolicy(default=replan(f"mind {ALL}", max_replans=1)))
def fails(text):
    raise OSError(f"failed {text} {ALL}")


def of_crew(config):
    kept = CheckpointConfig(location=config.location)  # the crew knows the input from the kickoff alone
    return crew(checkpoint=kept, output_log_file="log.json").stream({"x": ALL, "token": SecretStr(INPUT)}, run_id="r")


def of_agent(config):
    return clerk(checkpoint=config).stream(f"tell {ALL}", run_id="r")


def of_class_flow(config):
    answers = {"method:begin/human:which": f"it is {ALL}", "method:show@work/human:show": f"yes {ALL}"}
    made = type("Report", (Report,), {"checkpoint": config})
    return made().stream(inputs={"note": ALL}, run_id="r", answers=answers)


def of_flow(config):
    @flow(checkpoint=CheckpointConfig(location=config.location, redact=[KEY]))
    def told(text, token: SecretStr):
        with contextlib.suppress(Exception):
            fails(text)
        said = ask(f"Say {ALL}", name="say")
        return {ALL: said, "made": crew(output_log_file="log.txt").kickoff({"x": ALL}).raw}

    return told.stream(ALL, SecretStr(INPUT), run_id="r", answers={"human:say": f"said {ALL}"})


@pytest.mark.parametrize("location", [".checkpoints", ".checkpoints.db"])
@pytest.mark.parametrize("kicked_off", [of_crew, of_agent, of_class_flow, of_flow])
def test_whoever_watches_a_run_or_reads_its_record_sees_no_secret(monkeypatch, caplog, capfd, kicked_off, location):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SOME_TOKEN", ENVIRONMENT)
    said = list[str]()
    event_bus.on(BaseEvent, lambda source, event: said.append(f"handler: {event!r} {vars(event)}"))
    stream = kicked_off(CheckpointConfig(location=location, redact=[INPUT, KEY]))
    try:
        for event in stream:
            said.append(f"stream: {event.model_dump_json(serialize_as_any=True, fallback=repr)}")
    except Exception as error:  # the flow of methods ends with one
        said += traceback.format_exception(error)
    with History(location) as history:
        history.export("r", "exported.json")
        run = history.run("r")
        said += [history.as_html("r"), str(history.diff("r", "r")), f"{run!r} {run.steps}"]
        if kicked_off is of_class_flow:
            Report.plot("graph.html")
            Report().plot("happened.html", run_id=run)
    for words in (("show", "r"), ("show", "r", "--json"), ("tail", "r", "--all"), ("tail", "r", "--all", "--json")):
        told = CliRunner().invoke(main, ["checkpoint", *words, "--location", location])
        said.append(f"crewlite {' '.join(words)}: {told.output}")
    said += [f"{path}: {path.read_bytes().decode('latin-1')}" for path in Path().rglob("*") if path.is_file()]
    said += [f"log: {caplog.text}", *(f"terminal: {one}" for one in capfd.readouterr())]
    assert sum(MASK in one for one in said) > 10
    for name, secret in KNOWN.items():
        assert [one[max(0, at - 200) : at + 40] for one in said if (at := one.find(secret)) >= 0] == [], name


def test_the_command_prints_no_secret(monkeypatch, tmp_path):
    monkeypatch.setenv("SOME_TOKEN", ENVIRONMENT)
    (tmp_path / "desk.py").write_text(
        "from tests.crew.test_secrets_everywhere import ENVIRONMENT, Agent, Crew, Model, Task, look\n"
        "who = Agent(role=ENVIRONMENT, goal=ENVIRONMENT, llm=Model(), tools=[look])\n"
        "crew = Crew(tasks=[Task(description='{x} ' + ENVIRONMENT, expected_output=ENVIRONMENT, agent=who)])\n"
    )
    for more in ((), ("--json",)):
        done = CliRunner().invoke(main, ["run", "desk.py:crew", "--input", f"x={ENVIRONMENT}", *more])
        assert done.exit_code == 0
        assert "answer [secret]" in done.output
        assert ENVIRONMENT not in done.output


def test_a_run_whose_names_hold_a_secret_goes_on(monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", ENVIRONMENT)
    llm = ScriptedLLM([OSError("cut"), "done"])
    who = Agent(role=f"Clerk {ENVIRONMENT}", goal="g", llm=llm, checkpoint=True)
    with pytest.raises(OSError, match="cut"):
        who.kickoff("go", run_id="r")
    assert who.kickoff("go", run_id="r").raw == "done"
    other = Agent(role=f"Other {ENVIRONMENT}", goal="g", llm=llm, checkpoint=True)
    with pytest.raises(RunMismatch) as refused:
        other.kickoff("go", run_id="r")
    assert "this is agent 'Other [secret]'" in str(refused.value)


def test_a_kickoff_inside_a_run_makes_its_secret_inputs_known(monkeypatch):
    llm = ScriptedLLM([f"I was told {INPUT}"])
    who = Agent(role="Clerk", goal="g", llm=llm)
    inner = Crew(tasks=[Task(description="d", expected_output="o", agent=who)])

    @flow(checkpoint=True)
    def outer():
        return inner.kickoff({"token": SecretStr(INPUT)}).raw

    assert outer.kickoff() == "I was told [secret]"


def test_the_program_goes_on_with_its_own_values(monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", ENVIRONMENT)
    llm, heard = ScriptedLLM(["done"]), []
    task = Task(description=f"Do {ENVIRONMENT}", expected_output="o", agent=Agent(role="W", goal="g", llm=llm))
    with event_bus.on(LLMCallStartedEvent, lambda source, event: heard.append(event.messages)):
        result = Crew(tasks=[task]).kickoff()
    assert "Do [secret]" in heard[0][-1]["content"]
    assert f"Do {ENVIRONMENT}" in llm.calls[0][-1]["content"]
    assert result.tasks_output[0].description == f"Do {ENVIRONMENT}"
