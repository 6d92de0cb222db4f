"""What the tests of tools of crews share: a crew whose agents have tools, one such tool, and what its model was told."""

from __future__ import annotations

from crewlite import Agent, Crew, Task, tool


def crew_of(llm, *tools, checkpoint=None, count=1, agents=1, **fields):
    who = [Agent(role=f"Worker {n}", goal="work", llm=llm, tools=tools) for n in range(agents)]
    tasks = [
        Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=who[n % agents], context=[], **fields)
        for n in range(count)
    ]
    return Crew(tasks=tasks, checkpoint=checkpoint)


def told(llm, call=-1):
    return [message["content"] for message in llm.calls[call] if message["role"] == "tool"]


def told_in(messages):
    return [message for message in messages if message["role"] == "tool"]


def a_tool(calls, **fields):
    @tool("look", **fields)
    def look(where: str = "here") -> str:
        """Look."""
        calls.append(where)
        return f"saw {where}"

    return look


def keep(arguments, result):
    return "saw" in result
