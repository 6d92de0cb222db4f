"""Structured answers are of the caller's class in every life: alone, in crews inside flows, in forks, and rebuilt."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, Field, field_validator

from crewlite import Agent, Crew, Task
from crewlite.errors import BindMissing
from crewlite.flow import flow, step
from crewlite.testing import ScriptedLLM
from tests.parts import Stop


class Tide(BaseModel):
    """A class with what no JSON schema holds: a validator, a method, and a name of its own in JSON."""

    port: str
    metres: float = Field(alias="height")

    @field_validator("port")
    @classmethod
    def _big(cls, value: str) -> str:
        return value.upper()

    def in_feet(self) -> float:
        return round(self.metres / 0.3048, 1)


SAID = '{"port": "brest", "height": 7}'


def crew_of(replies, shape="output_pydantic", **fields):
    who = Agent(role="W", goal="g", llm=ScriptedLLM(replies))
    about = {"expected_output": "x", "agent": who}
    first = Task(name="t", description="d", **{shape: Tide}, **about)
    return Crew(tasks=[first, Task(name="u", description="e", **about)], **fields)


@pytest.mark.parametrize("shape", ["output_pydantic", "response_model"])
def test_a_resumed_run_and_a_fork_give_instances_of_the_class(shape, memory):
    crew = crew_of([SAID, Stop(), "end", "fork", "edited"], shape, checkpoint=memory())
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    for result in (crew.kickoff(run_id="r"), crew.kickoff(run_id="r"), crew.fork("r", rerun=["task:u"]).kickoff()):
        tide = result["t"].pydantic
        assert (type(tide), tide.port, tide.in_feet()) == (Tide, "BREST", 23.0)
    edited = crew.fork("r", edits={"task:t": {"port": "cork", "height": 3}}).kickoff()
    assert edited["t"].pydantic.port == "CORK"


def test_a_rebuilt_crew_has_the_class_that_is_passed(memory):
    crew = crew_of([SAID, Stop()], "response_model", checkpoint=memory())
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    source = memory(restore_from="r")
    with pytest.raises(BindMissing, match="the class 'Tide'"):
        Crew.from_checkpoint(source, bind={"llm": ScriptedLLM([])})
    again = Crew.from_checkpoint(source, bind={"llm": ScriptedLLM(["end"]), "response_model": Tide})
    assert again.kickoff()["t"].pydantic.in_feet() == 23.0


def test_a_crew_and_an_agent_inside_a_flow_give_instances_in_every_life(memory):
    lives = []
    crew, agent = crew_of([SAID, "end"]), Agent(role="A", goal="g", llm=ScriptedLLM([SAID]))

    @step
    def feet(tide: Tide) -> float:
        lives.append(tide)
        if len(lives) == 1:
            raise Stop
        return tide.in_feet()

    @flow(checkpoint=memory())
    def work():
        inner = crew.kickoff()["t"].pydantic
        lone = agent.kickoff("q", response_format=Tide).pydantic
        assert type(inner) is type(lone) is Tide
        return feet(inner) + lone.in_feet()

    with pytest.raises(Stop):
        work.kickoff(run_id="r")
    assert work.kickoff(run_id="r") == 46.0
    assert [type(tide) for tide in lives] == [Tide, Tide]
    assert (len(crew.tasks[0].agent.llm.calls), len(agent.llm.calls)) == (2, 1)
