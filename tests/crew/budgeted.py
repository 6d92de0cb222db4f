"""What the tests of budgets share: a crew with them, and a model whose replies use 100 tokens and a cent each."""

from __future__ import annotations

from crewlite import Agent, Crew, LLMReply, Task, ToolCall, Usage
from crewlite.testing import ScriptedLLM
from tests.parts import look

EACH = Usage(prompt_tokens=60, completion_tokens=40, cost=0.01, requests=1)


def looking(times, answer="done", **usage):
    """A model that looks so often before it answers. Each reply uses 100 tokens and a cent."""
    paid = Usage(**usage) if usage else EACH

    def reply(messages):
        seen = sum(message["role"] == "tool" for message in messages)
        calls = (ToolCall("look", {"where": str(seen)}, f"c{seen}"),) if seen < times else ()
        return LLMReply(text="" if calls else answer, tool_calls=calls, usage=paid)

    return ScriptedLLM(reply)


def crew_of(llm, *, crew=None, task=None, agent=None, **more):
    who = Agent(role="Scout", goal="look", llm=llm, tools=[look], **(agent or {}))
    work = Task(name="scout", description="Look around", expected_output="x", agent=who, **(task or {}))
    return Crew(tasks=[work], name="desk", **(crew or {}), **more)


OWNERS = {"crew": "crew 'desk'", "task": "task 'scout'", "agent": "agent 'Scout'"}
