"""A fork of an agent's run may be asked something else: a further question, another conversation, or nothing."""

from __future__ import annotations

import pytest

from crewlite import Agent, ToolCall, tool
from crewlite.errors import ConfigError, InputsChanged
from crewlite.testing import ScriptedLLM
from tests.parts import history, look


def agent(stored, *script, **fields):
    return Agent(role="Clerk", goal="answer", llm=ScriptedLLM(script), checkpoint=stored(on_events=True), **fields)


def test_an_agents_fork_may_be_asked_a_new_question(stored):
    agent(stored, "to tides").kickoff("What?", run_id="r")
    forked = agent(stored, "to moons", "to winds").fork(stored(restore_from="r"), branch="f")
    assert forked.kickoff("And then?").raw == "to moons"
    assert forked.kickoff().raw == "to moons"
    assert forked.kickoff("And then?").raw == "to moons"
    assert forked.kickoff("What else?").raw == "to winds"
    assert forked.kickoff("And then?").raw == "to moons"
    assert agent(stored).kickoff(run_id="r").raw == "to tides"


def test_a_further_instruction_to_an_agents_fork_is_added_to_the_conversation(stored):
    first = agent(stored, ToolCall("look", {"where": "sea"}), "to tides", tools=[look])
    first.kickoff("What?", run_id="r")
    llm = ScriptedLLM(["to moons", "to winds"])
    forked = first.model_copy(update={"llm": llm}).fork(stored(restore_from="r"), branch="f")
    assert forked.kickoff("And then?").raw == "to moons"
    assert [(said["role"], said["content"]) for said in llm.calls[0][1:]] == [
        ("user", "What?"),
        ("assistant", ""),
        ("tool", "saw sea"),
        ("assistant", "to tides"),
        ("user", "And then?"),
    ]
    assert forked.kickoff("And then?").raw == "to moons", "said again, it is not said twice"
    further = forked.fork(stored(restore_from="r/f"), branch="g")
    assert further.kickoff("And at last?").raw == "to winds"
    assert [said["content"] for said in llm.calls[1][1:]] == [
        "What?",
        "",
        "saw sea",
        "to tides",
        "And then?",
        "to moons",
        "And at last?",
    ]


def test_a_further_instruction_to_a_fork_in_the_middle_of_a_turn_leaves_that_turn_out(stored):
    llm = ScriptedLLM([ToolCall("look", {"where": "here"}), "looked", "without looking"])
    names_replies = stored(on_events=["llm_call_completed"])
    who = Agent(role="Clerk", goal="answer", llm=llm, tools=[look], checkpoint=names_replies)
    who.kickoff("What?", run_id="r")
    with history(stored()) as found:
        [asks, _] = found.run("r").checkpoints()
    assert who.fork(stored(restore_from=asks.id), branch="f").kickoff("Do not look.").raw == "without looking"
    assert [said["content"] for said in llm.calls[2][1:]] == ["What?", "Do not look."]


def test_the_inputs_of_an_agents_fork_replace_its_conversation(stored):
    who = agent(stored, "to tides", "to moons")
    who.kickoff("What?", run_id="r")
    who.fork(stored(restore_from="r"), inputs={"messages": "Which?"}).kickoff()
    assert [said["content"] for said in who.llm.calls[1][1:]] == ["Which?"]


def test_an_agent_that_is_asked_something_else_before_it_has_answered_names_the_ways_out(stored):
    with pytest.raises(OSError, match="cut"):
        agent(stored, OSError("cut")).kickoff("What?", run_id="r")
    with pytest.raises(InputsChanged, match=r"agent\.fork\('r'\)\.kickoff\('\.\.\.'\)"):
        agent(stored).kickoff("And then?", run_id="r")


def test_an_agents_fork_without_a_question_answers_as_recorded(stored):
    agent(stored, "to tides").kickoff("What?", run_id="r")
    assert agent(stored).fork(stored(restore_from="r")).kickoff().raw == "to tides"
    rebuilt = Agent.fork(stored(restore_from="r"), branch="f", bind={"llm": ScriptedLLM(["anew"])})
    assert rebuilt.kickoff("Once more?").raw == "anew"


def test_an_agents_fork_goes_on_in_the_middle_of_its_tools(stored):
    seen = []

    @tool
    def look(where: str) -> str:
        """Look."""
        seen.append(where)
        return f"saw {where}"

    def clerk(*script):
        llm = ScriptedLLM(script)
        return Agent(
            role="Clerk", goal="g", llm=llm, tools=[look], checkpoint=stored(on_events=["tool_usage_finished"])
        )

    clerk(ToolCall("look", {"where": "here"}), "first").kickoff("What?", run_id="r")
    assert clerk("second").fork(stored(restore_from="main@tool:look"), branch="f").kickoff().raw == "second"
    assert seen == ["here"]
    other = clerk(ToolCall("look", {"where": "there"}), "third").fork(stored(restore_from="main@tool:look"), branch="g")
    assert other.kickoff("Where else?").raw == "third"
    assert seen == ["here", "there"]


def test_a_mistyped_input_of_a_lone_agents_fork_names_the_one_that_was_meant(stored):
    who = agent(stored, "to tides")
    who.kickoff("What?", run_id="r")
    for fork in (who.fork, history(stored()).fork):
        with pytest.raises(ConfigError, match="did you mean 'messages'"):
            fork("r", inputs={"message": "x"})
