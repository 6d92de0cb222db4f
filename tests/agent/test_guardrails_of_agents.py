"""Guardrails of agents: they hold alone, in a crew and for coworkers, and for each question of a conversation."""

from __future__ import annotations

from crewlite import Agent, Crew, Process, Task, ToolCall
from crewlite.testing import ScriptedLLM
from tests.cuts import lives
from tests.task.guarded import crew_of, long_enough, says


def test_an_agent_killed_after_any_commit_comes_to_the_same_answer_and_asks_nothing_twice():
    def reply(messages):
        said = messages[-1]["content"]
        if "The rule:" in said:
            return says("<answer>\nb" in said, "more")
        return "b" if "not accepted" in said else "a"

    def make(**fields):
        return Agent(role="W", goal="g", llm=ScriptedLLM(reply), guardrail="It is b", **fields)

    for whole, again in lives(make, messages="q"):
        assert (again.raw, again.token_usage) == (whole.raw, whole.token_usage)
        assert whole.raw == "b"


def test_a_guardrail_of_an_agent_holds_alone_in_a_crew_and_for_coworkers():
    heard = []

    def check(output):
        heard.append(type(output).__name__)
        return long_enough(output)

    lone = Agent(role="W", goal="g", llm=ScriptedLLM(["a", "long"]), guardrail=check)
    assert lone.kickoff("q").raw == "long"
    crew = crew_of(["a", "long"], agent={"guardrail": check}, guardrail=lambda output: (True, f"{output.raw}!"))
    assert crew.kickoff().raw == "long!"
    assert heard == ["LiteAgentOutput"] * 2 + ["TaskOutput"] * 2
    delegates = ToolCall("Delegate work to coworker", {"task": "t", "context": "", "coworker": "W"})
    worker = Agent(role="W", goal="g", llm=ScriptedLLM(["a", "b"]), guardrail=check, guardrail_max_retries=1)
    manager = ScriptedLLM([delegates, "no", "I did it myself"])
    task = Task(description="d", expected_output="x", guardrail=long_enough)
    boss = Crew(agents=[worker], tasks=[task], process=Process.hierarchical, manager_llm=manager)
    assert boss.kickoff().raw == "I did it myself"
    assert "GuardrailFailed: agent W: no answer of 2 passes the guardrail 'check'" in manager.calls[1][-1]["content"]


def test_a_lone_agent_that_is_asked_further_knows_what_was_turned_down(memory):
    llm = ScriptedLLM(["a", "long", "more"])
    agent = Agent(
        role="W", goal="g", llm=llm, guardrail=lambda o: (len(o.raw) > 1, "short" if len(o.raw) < 2 else "ok")
    )
    agent = agent.with_(checkpoint=memory())
    assert agent.kickoff("q", run_id="r").raw == "ok"
    agent.fork("r").kickoff("and?")
    said = [message["content"] for message in llm.calls[2][1:]]
    assert [said[0], said[1], said[3], said[4]] == ["q", "a", "ok", "and?"]
    assert "not accepted: short" in said[2]


def test_each_question_of_a_conversation_is_guarded(memory):
    llm = ScriptedLLM(["a", "long", "b", "longer"])
    agent = Agent(role="W", goal="g", llm=llm, guardrail=long_enough, checkpoint=memory())
    assert agent.kickoff("one", run_id="r").raw == "long"
    assert agent.kickoff("two", run_id="r").raw == "longer"
    said = [message["content"] for message in llm.calls[3][1:]]
    assert [said[0], said[1], said[3], said[4], said[5]] == ["one", "a", "long", "two", "b"]
    assert ["'a' is too short" in said[2], "'b' is too short" in said[6]] == [True, True]
