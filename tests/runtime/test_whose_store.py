"""Whoever asks for a store first, from the outside in, is the run: what is unrecorded around it does not count."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, event_bus, tool
from crewlite.errors import ConfigError
from crewlite.events import CrewKickoffCompletedEvent
from crewlite.flow import flow, step
from crewlite.state import SqliteProvider
from crewlite.testing import ScriptedLLM


class Inner:
    """A crew, an agent and a flow of one name, kept at `config`, and what their model was paid."""

    def __init__(self, config, says="inner"):
        self.llm = ScriptedLLM(lambda messages: says)
        self.agent = Agent(role="In", goal="be inside", llm=self.llm, checkpoint=config)
        agent = Agent(role="In", goal="be inside", llm=self.llm)
        task = Task(name="in", description="Do", expected_output="text", agent=agent)
        self.crew = Crew(name="in", tasks=[task], checkpoint=config)

        @step
        def paid() -> str:
            return agent.kickoff("Do").raw

        @flow(checkpoint=config, name="in")
        def inner() -> str:
            return paid()

        self.flow = inner

    def kickoff(self, kind, **more):
        if kind == "agent":
            return self.agent.kickoff("Do", **more).raw
        return self.crew.kickoff(**more).raw if kind == "crew" else self.flow.kickoff(**more)


KINDS = ["crew", "agent", "flow"]


def outer_crew(call, config=None, *, callback=False):
    """A crew whose tool, or whose task's callback, makes the call."""

    @tool
    def work() -> str:
        """Work."""
        return call()

    def reply(messages):
        heard = [message["content"] for message in messages if message["role"] == "tool"]
        return heard[-1] if heard or callback else ToolCall("work", {})

    said = []
    agent = Agent(
        role="Out", goal="be outside", llm=ScriptedLLM(lambda m: reply(m) if not callback else "out"), tools=[work]
    )
    task = Task(
        name="out",
        description="Work",
        expected_output="text",
        agent=agent,
        callback=(lambda output: said.append(call())) if callback else None,
    )
    crew = Crew(name="out", tasks=[task], checkpoint=config)

    def kickoff():
        result = crew.kickoff()
        return (said[-1] if callback else result.raw), result.token_usage

    return kickoff


def outer_flow(call, config=None):
    @flow(checkpoint=config)
    def out() -> str:
        return call()

    return lambda: (out.kickoff(), None)


OUTERS = {
    "flow": outer_flow,
    "tool": outer_crew,
    "callback": lambda call, config=None: outer_crew(call, config, callback=True),
}


@pytest.mark.parametrize("outer", OUTERS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_asks_for_a_store_inside_what_has_none_is_a_run_of_its_own(on_disk, kind, outer):
    inner = Inner(on_disk())
    kickoff = OUTERS[outer](lambda: inner.kickoff(kind, run_id="mine"))
    found, usage = kickoff()
    assert found == "inner"
    with History(on_disk().location) as history:
        mine = history.run("mine")
        assert (mine.status, len(history.runs())) == ("finished", 1)
        assert usage is None or usage.total_tokens > mine.usage.total_tokens > 0
        assert history.doctor() == []
    paid = len(inner.llm.calls)
    assert kickoff()[0] == "inner"
    assert len(inner.llm.calls) == paid


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_its_own_without_a_name_is_a_new_one_each_time(on_disk, kind):
    inner = Inner(on_disk())
    kickoff = OUTERS["flow"](lambda: inner.kickoff(kind))
    assert [kickoff()[0], kickoff()[0]] == ["inner", "inner"]
    with History(on_disk().location) as history:
        assert [run.status for run in history.runs()] == ["finished"] * 2


def test_its_events_tell_of_its_own_run_and_are_heard_once(on_disk):
    inner, heard = Inner(on_disk()), []
    event_bus.on(CrewKickoffCompletedEvent, lambda source, event: heard.append(event.run_id))
    OUTERS["flow"](lambda: inner.kickoff("crew", run_id="mine"))()
    assert heard == ["mine"]


def test_a_run_of_its_own_that_failed_is_gone_on_with_by_its_own_name(on_disk):
    replies = [RuntimeError("no"), "then"]
    agent = Agent(role="In", goal="be inside", llm=ScriptedLLM(replies), checkpoint=on_disk())

    @flow
    def out() -> str:
        return agent.kickoff("Do", run_id="mine").raw

    with pytest.raises(RuntimeError):
        out.kickoff()
    assert out.kickoff() == "then"
    with History(on_disk().location) as history:
        assert [run.run_id for run in history.runs()] == ["mine"]


@pytest.mark.parametrize("outer", OUTERS)
@pytest.mark.parametrize("kind", KINDS)
def test_another_store_inside_a_recorded_run_is_the_same_error_everywhere(on_disk, tmp_path, kind, outer):
    inner = Inner(CheckpointConfig(location=str(tmp_path / "elsewhere")))
    with pytest.raises(ConfigError, match="A run has one store"):
        OUTERS[outer](lambda: inner.kickoff(kind), on_disk())()
    assert not (tmp_path / "elsewhere").exists()
    assert not inner.llm.calls


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        ({"durability": "async"}, "sets durability='async', but the run has durability='sync'"),
        ({"provider": SqliteProvider()}, "sets provider=SqliteProvider(), but the run has provider=None"),
        ({"location": "./x"}, "sets location='./x', but the run has location='./.checkpoints'"),
        ({"on_drift": "rerun"}, "sets on_drift='rerun', but the run has on_drift=None"),
        ({"on_save_error": "raise"}, "sets on_save_error='raise', but the run has on_save_error='warn'"),
    ],
)
@pytest.mark.parametrize("kind", [*KINDS, "task"])
def test_what_an_inner_definition_cannot_set_is_an_error_that_names_it(inner, said, kind):
    if kind == "task":
        agent = Agent(role="In", goal="g", llm=ScriptedLLM([]), checkpoint=CheckpointConfig(**inner))
        task = Task(description="Do", expected_output="text", agent=agent)
        kickoff = Crew(tasks=[task], checkpoint=True).kickoff
    else:
        kickoff = OUTERS["flow"](lambda: Inner(CheckpointConfig(**inner)).kickoff(kind), CheckpointConfig())
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        kickoff()
    assert f"set {next(iter(inner))} on the outermost definition only" in str(caught.value)


@pytest.mark.parametrize("outer", OUTERS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_an_inner_definition_redacts_is_secret_in_the_whole_run(on_disk, kind, outer):
    inner = Inner(on_disk(redact=["Bluebird"]), "project Bluebird")
    assert OUTERS[outer](lambda: inner.kickoff(kind), on_disk())()[0] == "project [secret]"
    kept = [path for path in Path().rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if b"Bluebird" in path.read_bytes()]


@pytest.mark.parametrize("kind", KINDS)
def test_the_secrets_in_the_fields_of_an_inner_definition_are_secret_in_the_whole_run(on_disk, kind):
    inner = Inner(None, "sk-canary-1111111111")
    inner.llm.api_key = "sk-canary-1111111111"
    assert OUTERS["flow"](lambda: inner.kickoff(kind), on_disk())()[0] == "[secret]"


@pytest.mark.parametrize("outer", OUTERS)
@pytest.mark.parametrize("kind", KINDS)
def test_inside_a_recorded_run_whoever_wants_the_same_store_is_a_part_of_it(on_disk, kind, outer):
    inner = Inner(on_disk())
    assert OUTERS[outer](lambda: inner.kickoff(kind), on_disk())()[0] == "inner"
    with History(on_disk().location) as history:
        assert len(history.runs()) == 1
