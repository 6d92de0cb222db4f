"""The tools that an agent may call are named by the agent. Nothing widens that: neither tasks nor coworkers nor models."""

from __future__ import annotations

import pytest

from crewlite import Agent, Crew, History, Task, ToolCall, tool
from crewlite.errors import ConfigError
from crewlite.events import AgentExecutionStartedEvent, ToolSelectionErrorEvent, ToolUsageStartedEvent
from crewlite.testing import EventRecorder, ScriptedLLM

DELEGATE = "Delegate work to coworker"
USED: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_used():
    USED.clear()


@tool
def look(where: str) -> str:
    """Look somewhere."""
    USED.append(f"look {where}")
    return f"saw {where}"


@tool("Wipe the disk!")
def wipe() -> str:
    """Wipe it."""
    USED.append("wipe")
    return "wiped"


def calling(*calls):
    """A model that calls these tools one by one, and answers with all that it was told. `offered` are their names."""
    offered = []

    def reply(messages, tools=()):
        offered[:] = [one["function"]["name"] for one in tools]
        told = [message["content"] for message in messages if message["role"] == "tool"]
        return calls[len(told)] if len(told) < len(calls) else " | ".join(told)

    llm = ScriptedLLM(reply)
    llm.offered = offered
    return llm


def test_a_forbidden_call_is_refused_and_told_wherever_the_tool_comes_from(on_disk):
    calls = [ToolCall("Wipe_the_disk"), ToolCall("Wipe the disk!"), ToolCall("sink"), ToolCall("look", {"where": "in"})]
    llm = calling(*calls)
    who = Agent(role="Scout", goal="look", llm=llm, tools=[look], allowed_tools=["look"])
    task = Task(name="t", description="d", expected_output="x", agent=who, tools=[wipe])
    with EventRecorder() as heard:
        result = Crew(tasks=[task], checkpoint=on_disk()).kickoff(run_id="r")
    refused = "You are not allowed to call {!r}. Tools you can use: look."
    told = [refused.format(call.name) for call in calls[:3]]
    assert result.raw == " | ".join([*told, "saw in"])
    assert USED == ["look in"]
    assert llm.offered == ["look"]
    assert [event.error for event in heard.of(ToolSelectionErrorEvent)] == told
    [begun] = heard.of(AgentExecutionStartedEvent)
    assert (begun.tools, begun.task_name) == (("look",), "t")
    assert not History(on_disk().location).run("r").definition["agents"][0].get("live", {}).get("allowed_tools")
    assert Crew.from_checkpoint(
        on_disk(restore_from="r"), bind={"llm": llm, "look": look, "Wipe the disk!": wipe}
    ).agents[0].allowed_tools == ("look",)


def test_a_coworker_has_its_own_tools_and_its_own_list_alone():
    wish = {"task": "wipe it", "context": "", "coworker": "Scout"}
    boss_llm, scout_llm = calling(ToolCall(DELEGATE, wish)), calling(ToolCall("Wipe the disk!"), ToolCall("look"))
    boss = Agent(
        role="Boss", goal="g", llm=boss_llm, tools=[wipe, look], allowed_tools=[wipe, look], allow_delegation=True
    )
    scout = Agent(role="Scout", goal="look", llm=scout_llm, tools=[look, wipe], allowed_tools=[])
    task = Task(description="d", expected_output="x", agent=boss, tools=[wipe])
    with EventRecorder() as heard:
        result = Crew(agents=[boss, scout], tasks=[task]).kickoff()
    assert result.raw.count("You are not allowed to call") == 2
    assert scout_llm.offered == []
    assert "Delegate_work_to_coworker" in boss_llm.offered, "coworkers are reached by allow_delegation"
    assert not USED
    assert [event.tool_name for event in heard.of(ToolUsageStartedEvent)] == [DELEGATE]


def test_a_list_that_is_tightened_holds_for_what_is_not_begun(on_disk):
    class Stop(Exception):
        pass

    def crew(script, allowed):
        who = Agent(role="Scout", goal="look", llm=ScriptedLLM(script), tools=[look], allowed_tools=allowed)
        return Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=who)], checkpoint=on_disk())

    with pytest.raises(Stop):
        crew([ToolCall("look", {"where": "in"}), Stop()], None).kickoff(run_id="r")
    again = crew([ToolCall("look", {"where": "out"}), "done"], [])
    assert again.kickoff(run_id="r").raw == "done"
    assert USED == ["look in"]
    assert "not allowed" in again.people()[0].llm.calls[-1][-1]["content"]


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"allowed_tools": "look"}, "allowed_tools is 'look'; wanted a list of names"),
        ({"allowed_tools": 3}, "allowed_tools is 3; wanted a list of names"),
        ({"allowed_tools": [3]}, r"allowed_tools\[0\] is an int"),
        ({"tools": 3}, "tools is 3; wanted a list"),
        ({"max_cost_usd": "x"}, "max_cost_usd is a str; wanted a number"),
    ],
)
def test_what_is_no_list_of_tools_and_no_number_is_refused(fields, match):
    with pytest.raises(ConfigError, match=f"{match}$|{match}[ ;]"):
        Agent(role="Scout", goal="look", **fields)


def test_a_slip_in_a_name_is_told():
    with pytest.raises(ConfigError, match="did you mean 'look'"):
        Agent(role="Scout", goal="look", tools=[look], allowed_tools=["lok"])
