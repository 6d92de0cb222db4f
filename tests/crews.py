"""A crew for each thing that crews can do, all of them small and the same at every kickoff.

Each maker takes the `checkpoint=` of the crew. Its models answer from what they are shown alone, so a kickoff that is
interrupted and resumed comes to the result of one that is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from crewlite import Agent, ConditionalTask, Crew, Process, Task, TaskOutput, ToolCall
from crewlite.errors import ContextOverflow
from crewlite.testing import ScriptedLLM
from tests.parts import Fact, look

INPUTS = {"topic": "tides"}


def _heard(messages: Any) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


def _first_line(messages: Any) -> str:
    return str(messages[1]["content"]).partition("\n")[0]


def echo(messages: Any) -> str:
    return f"done: {_first_line(messages)}"


def research(messages: Any) -> Any:
    """Look at two places at once, then answer."""
    return " and ".join(_heard(messages)) or [ToolCall("look", {"where": "here"}), ToolCall("look", {"where": "there"})]


def lead(messages: Any) -> Any:
    """Delegate, ask, then answer."""
    heard, wish = _heard(messages), {"context": "c", "coworker": "Researcher"}
    if not heard:
        return ToolCall("Delegate work to coworker", {"task": _first_line(messages), **wish})
    if len(heard) == 1:
        return ToolCall("Ask question to coworker", {"question": "why?", **wish})
    return f"checked: {heard}"


def task(name: str, reply: Callable[..., Any] | None = echo, **fields: Any) -> dict[str, Any]:
    """The fields of a task; `reply` is its agent's model, None for a task without an agent."""
    own = {"agent": Agent(role=f"Agent of {name}", goal="g", llm=ScriptedLLM(reply), tools=[look])} if reply else {}
    return {"name": name, "description": f"About {{topic}}: {name}", "expected_output": "x", **own, **fields}


def sequential(**fields: Any) -> Crew:
    """Three tasks, each of which builds on those before it; two use tools."""
    return Crew(tasks=[Task(**task("a", research)), Task(**task("b")), Task(**task("c", research))], **fields)


def structured(**fields: Any) -> Crew:
    """Answers of a shape, the first of which does not fit."""

    def reply(messages: Any) -> str:
        return '{"word": "ebb"}' if messages[-1]["content"] != messages[1]["content"] else "ebb"

    return Crew(
        tasks=[Task(**task("a", reply, output_pydantic=Fact)), Task(**task("b", reply, output_json=Fact))], **fields
    )


def side_by_side(**fields: Any) -> Crew:
    """Two async tasks, and one that waits for both."""
    both = [Task(**task(name, research, async_execution=True)) for name in ("a", "b")]
    return Crew(tasks=[*both, Task(**task("c"))], **fields)


def conditional(**fields: Any) -> Crew:
    """One task that is skipped, and one that is not."""

    def says_done(output: TaskOutput) -> bool:
        return "done" in output.raw

    def says_nothing(output: TaskOutput) -> bool:
        return not output.raw

    made = [
        Task(**task("a")),
        ConditionalTask(**task("b"), condition=says_nothing),
        ConditionalTask(**task("c"), condition=says_done),
    ]
    return Crew(tasks=made, **fields)


def delegating(**fields: Any) -> Crew:
    """An agent that has another one work for it, and asks it."""
    boss = Agent(role="Lead", goal="g", llm=ScriptedLLM(lead), allow_delegation=True)
    helper = Agent(role="Researcher", goal="g", llm=ScriptedLLM(research), tools=[look])
    return Crew(agents=[boss, helper], tasks=[Task(**task("a", None, agent=boss)), Task(**task("b"))], **fields)


def hierarchical(**fields: Any) -> Crew:
    """A manager that has each task done."""
    helper = Agent(role="Researcher", goal="g", llm=ScriptedLLM(research), tools=[look])
    made = [Task(**task(name, None)) for name in ("a", "b")]
    return Crew(agents=[helper], tasks=made, process=Process.hierarchical, manager_llm=ScriptedLLM(lead), **fields)


def planned(**fields: Any) -> Crew:
    """A plan before the work."""
    plan = json.dumps({"plans": [{"task": 1, "plan": "look"}, {"task": 2, "plan": "think"}]})
    made = [Task(**task("a", research)), Task(**task("b"))]
    return Crew(tasks=made, planning=True, planning_llm=ScriptedLLM(lambda messages: plan), **fields)


def called_back(**fields: Any) -> Crew:
    """Every callback there is."""

    def prepare(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"topic": inputs["topic"].upper()}

    def finish(result: Any) -> None:
        result.raw += "!"

    def hear(said: object) -> None:
        """Nothing to do: that it is called is what is recorded."""

    return Crew(
        tasks=[Task(**task("a", research, callback=hear)), Task(**task("b"))],
        before_kickoff_callbacks=[prepare],
        after_kickoff_callbacks=[finish],
        task_callback=hear,
        step_callback=hear,
        **fields,
    )


def guarded(**fields: Any) -> Crew:
    """Answers that a function and a model turn down once each; a value of the function replaces what it is given."""

    def reply(messages: Any) -> str:
        if str(messages[0]["content"]).startswith("You check an answer"):
            return json.dumps({"valid": "longer" in messages[0]["content"], "feedback": "say more"})
        refused = sum("not accepted" in str(message["content"]) for message in messages)
        return ("short", "loud", "longer")[refused]

    def is_loud(output: TaskOutput) -> tuple[bool, str]:
        return (False, "louder") if output.raw == "short" else (True, output.raw.rstrip("!") + "!")

    chain = [is_loud, "It is long"]
    return Crew(tasks=[Task(**task("a", reply, guardrails=chain)), Task(**task("b"))], **fields)


def used_up(**fields: Any) -> Crew:
    """An agent that would use tools for ever, and is asked for its final answer."""

    def reply(messages: Any, tools: Any = ()) -> Any:
        return ToolCall("look", {"where": str(len(messages))}) if tools else f"saw {len(_heard(messages))}"

    agent = Agent(role="Restless", goal="g", llm=ScriptedLLM(reply), tools=[look], max_iter=2)
    return Crew(tasks=[Task(**task("a", None, agent=agent)), Task(**task("b"))], **fields)


def limited(**fields: Any) -> Crew:
    """Budgets that are not reached, and a tool that is not allowed."""
    agent = Agent(
        role="Limited",
        goal="g",
        llm=ScriptedLLM(research),
        tools=[look],
        allowed_tools=[],
        max_rpm=1000,
        max_tokens=10**6,
    )

    def reply(messages: Any) -> Any:
        return f"heard {_heard(messages)}" if _heard(messages) else research(messages)

    agent = agent.with_(llm=ScriptedLLM(reply))
    return Crew(tasks=[Task(**task("a", None, agent=agent, max_execution_time=60))], max_tokens=10**6, **fields)


def filed(**fields: Any) -> Crew:
    """An answer that is written to a file."""
    return Crew(tasks=[Task(**task("a", output_file="{topic}.md")), Task(**task("b"))], **fields)


def reasoned(**fields: Any) -> Crew:
    """Agents that plan: one before its work, the other also step by step, with a new plan in the middle."""

    def reply(messages: Any) -> Any:
        last = str(messages[-1]["content"])
        if "First make a plan" in last:
            again = "leads nowhere" in last
            return json.dumps({"steps": ["end"] if again else ["look", "get lost"], "ready": True})
        if "Look at the step" in last:
            return json.dumps({"needs_full_replan": "get lost" in last, "replan_reason": "lost"})
        if "Carry out this step alone" in last and "look" in last:
            return ToolCall("look", {"where": "here"})
        return f"done after {len(_heard(messages))}"

    def agent(**how: Any) -> Agent:
        return Agent(role=f"Planner {sorted(how)}", goal="g", llm=ScriptedLLM(reply), tools=[look], **how)

    made = [
        Task(**task("a", None, agent=agent(reasoning=True))),
        Task(**task("b", None, agent=agent(planning=True, inject_date=True))),
    ]
    return Crew(tasks=made, **fields)


def summarised(**fields: Any) -> Crew:
    """A conversation that does not fit any more, and a failed call that is made again."""

    def reply(messages: Any) -> Any:
        if "has become too long" in str(messages[0]["content"]):
            return "saw here"
        if len(_heard(messages)) == 2:
            return ContextOverflow("small", 400, "too long")
        if "This is a summary" in str(messages):
            return "done with a summary"
        return ToolCall("look", {"where": str(len(messages))})

    agent = Agent(role="Long", goal="g", llm=ScriptedLLM(reply), tools=[look])
    return Crew(tasks=[Task(**task("a", None, agent=agent)), Task(**task("b"))], **fields)


CREWS: dict[str, Callable[..., Crew]] = {
    made.__name__: made
    for made in (
        sequential,
        structured,
        side_by_side,
        conditional,
        delegating,
        hierarchical,
        planned,
        called_back,
        guarded,
        used_up,
        limited,
        filed,
        reasoned,
        summarised,
    )
}
