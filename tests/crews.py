"""A crew for each thing that crews can do, all of them small and the same at every kickoff.

Each maker takes the `checkpoint=` of the crew. Its models answer from what they are shown alone, so a kickoff that is
interrupted and resumed comes to the result of one that is not. `KICKOFFS` has what they are
kicked off with.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crewlite import Agent, ConditionalTask, Crew, Knowledge, Process, Task, TaskOutput, ToolCall, tool
from crewlite.errors import ContextOverflow, LLMRejected
from crewlite.knowledge import FileKnowledgeSource, KnowledgeConfig, StringKnowledgeSource
from crewlite.project import CrewBase, after_kickoff, agent as agent_of, before_kickoff, crew, task as task_of
from crewlite.recovery import DEFAULT
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

    shapes = {"a": "output_pydantic", "b": "output_json", "c": "response_model"}
    return Crew(tasks=[Task(**task(name, reply, **{shape: Fact})) for name, shape in shapes.items()], **fields)


def side_by_side(**fields: Any) -> Crew:
    """Three async tasks, two of which may be at work at once, and one that waits for the first and the last."""
    beside = [Task(**task(name, research, async_execution=True)) for name in ("a", "b", "c")]
    return Crew(tasks=[*beside, Task(**task("d", context=[beside[0], beside[2]]))], max_concurrency=2, **fields)


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


def managed(**fields: Any) -> Crew:
    """A manager of one's own."""
    boss = Agent(role="Boss", goal="g", llm=ScriptedLLM(lead))
    helper = Agent(role="Researcher", goal="g", llm=ScriptedLLM(research), tools=[look])
    made = [Task(**task("a", None, agent=helper)), Task(**task("b", None))]
    return Crew(agents=[helper], tasks=made, process=Process.hierarchical, manager_agent=boss, **fields)


def planned(**fields: Any) -> Crew:
    """A plan before the work."""
    plan = json.dumps({"plans": [{"task": 1, "plan": "look"}, {"task": 2, "plan": "think"}]})
    made = [Task(**task("a", research)), Task(**task("b", None, agent=Agent(role="Modelless", goal="g")))]
    models = {"llm": ScriptedLLM(echo), "planning_llm": ScriptedLLM(lambda messages: plan)}
    return Crew(tasks=made, planning=True, **models, **fields)


def called_back(**fields: Any) -> Crew:
    """Every callback there is, blocking or not."""

    async def prepare(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"topic": inputs["topic"].upper()}

    def finish(result: Any) -> None:
        result.raw += "!"

    async def hear(said: object) -> None:
        """Nothing to do: that it is called is what is recorded."""

    def hear_too(said: object) -> None:
        """Likewise."""

    own = Agent(role="Heard", goal="g", llm=ScriptedLLM(research), tools=[look], step_callback=hear_too)
    return Crew(
        tasks=[Task(**task("a", None, agent=own, callback=hear_too)), Task(**task("b"))],
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
    own = Agent(role="Guarded", goal="g", llm=ScriptedLLM(reply), guardrail=is_loud, guardrail_max_retries=2)
    made = [
        Task(**task("a", reply, guardrails=chain, guardrail_max_retries=2)),
        Task(**task("b", None, agent=own)),
        Task(**task("c", reply, guardrail="It is long")),
    ]
    return Crew(tasks=made, **fields)


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount}"


def approved(**fields: Any) -> Crew:
    """Calls that a person allows, forbids, changes or answers."""
    said = [Task(**task(name, None, agent=_payer(name))) for name in ("a", "b", "c", "d")]
    return Crew(tasks=said, **fields)


def _payer(name: str) -> Agent:
    """An agent that wants to pay once, and says what came of it."""
    llm = ScriptedLLM(lambda messages: (_heard(messages) or [ToolCall("pay", {"amount": 9})])[0])
    return Agent(role=f"Payer {name}", goal="g", llm=llm, tools=[pay])


def approving(**fields: Any) -> Crew:
    """Calls that nobody is asked about."""
    return Crew(tasks=[Task(**task("a", None, agent=_payer("a")))], **fields)


def reviewed(**fields: Any) -> Crew:
    """An answer of which a person wishes something twice."""

    def reply(messages: Any) -> str:
        return f"answer {sum(message['role'] == 'user' for message in messages)}"

    return Crew(tasks=[Task(**task("a", reply, human_input=True)), Task(**task("b"))], **fields)


def used_up(**fields: Any) -> Crew:
    """An agent that would use tools for ever, and is asked for its final answer."""

    def reply(messages: Any, tools: Any = ()) -> Any:
        return ToolCall("look", {"where": str(len(messages))}) if tools else f"saw {len(_heard(messages))}"

    agent = Agent(role="Restless", goal="g", llm=ScriptedLLM(reply), tools=[look], max_iter=2)
    return Crew(tasks=[Task(**task("a", None, agent=agent)), Task(**task("b"))], **fields)


def limited(**fields: Any) -> Crew:
    """Budgets that are not reached, and a tool that is not allowed."""
    limits = {"max_rpm": 1000, "max_tokens": 10**6, "max_cost_usd": 10.0, "max_execution_time": 60.0}

    def reply(messages: Any) -> Any:
        return f"heard {_heard(messages)}" if _heard(messages) else research(messages)

    agent = Agent(role="Limited", goal="g", llm=ScriptedLLM(reply), tools=[look], allowed_tools=[], **limits)
    return Crew(tasks=[Task(**task("a", None, agent=agent, max_iter=9, **limits))], max_iter=9, **limits, **fields)


def filed(**fields: Any) -> Crew:
    """Files that the models are shown, and answers that are written to files."""

    def reply(messages: Any) -> str:
        return f"shown: {str(messages[1]['content'])[-60:]}"

    Path("shown.txt").write_text("High water at noon.")
    shown = {"input_files": {"it": "shown.txt"}, "markdown": True}
    made = [
        Task(**task("a", reply, output_file="{topic}.md", create_directory=False, tools=[look], **shown)),
        Task(**task("b", output_file="out/b.md")),
    ]
    return Crew(tasks=made, **fields)


def informed(**fields: Any) -> Crew:
    """Agents that know texts, and one that asks a coworker who knows more."""

    def reply(messages: Any) -> str:
        return f"shown: {str(messages[-1]['content'])[-80:]}"

    Path("handbook.md").write_text("\n".join(f"Rule {n}: the fee of {n} euros." for n in range(50)))
    book = FileKnowledgeSource(file_paths="handbook.md", chunk_size=60, chunk_overlap=5)
    one = {"knowledge_config": KnowledgeConfig(results_limit=1)}
    helper = Agent(role="Researcher", goal="g", llm=ScriptedLLM(reply), knowledge_sources=[book], **one)
    note = Knowledge(sources=[StringKnowledgeSource(content="Ask the researcher about fees.")])
    boss = Agent(role="Lead", goal="g", llm=ScriptedLLM(lead), allow_delegation=True, knowledge=note)
    made = [Task(**task("a", None, agent=boss)), Task(**task("fee of 7 euros", None, agent=helper))]
    known = StringKnowledgeSource(content="About tides: high water at noon.")
    own = {"knowledge_sources": [known], "knowledge": note, "knowledge_config": KnowledgeConfig(results_limit=2)}
    return Crew(agents=[boss, helper], tasks=made, **own, **fields)


def reasoned(**fields: Any) -> Crew:
    """Agents that plan: one before its work, the other step by step. It refines its plan, makes another and ends early."""

    def reply(messages: Any) -> Any:
        said = str(messages[-1]["content"])
        steps = sum(str(message["content"]).startswith("Step ") for message in messages)
        if "First make a plan" in said:
            return json.dumps({"steps": ["a", "b", "c"], "ready": "not ready" in said or steps > 0})
        if "Look at the step" in said:
            looks = [{"refined_steps": ["d", "e"]}, {"needs_full_replan": True}, {"goal_already_achieved": True}]
            return json.dumps(looks[steps - 1])
        if messages[-1]["role"] == "user" and "Step " in said:
            return ToolCall("look", {"where": said.splitlines()[0]})
        return f"done after {_heard(messages)}"

    def planner(name: str, **how: Any) -> Agent:
        return Agent(role=name, goal="g", llm=ScriptedLLM(reply), tools=[look], **how)

    high = {"reasoning_effort": "high", "max_attempts": 2}
    made = [
        Task(**task("a", None, agent=planner("Planner", reasoning=True, max_reasoning_attempts=2))),
        Task(**task("b", None, agent=planner("Stepper", planning=True, planning_config=high))),
    ]
    return Crew(tasks=made, **fields)


def summarised(**fields: Any) -> Crew:
    """A conversation that does not fit any more."""

    def reply(messages: Any) -> Any:
        if "has become too long" in str(messages[0]["content"]):
            return "saw here"
        if len(_heard(messages)) == 2:
            return ContextOverflow("small", 400, "too long")
        if "This is a summary" in str(messages):
            return "done with a summary"
        return ToolCall("look", {"where": str(len(messages))})

    agent = Agent(role="Long", goal="g", llm=ScriptedLLM(reply), tools=[look], respect_context_window=True)
    return Crew(tasks=[Task(**task("a", None, agent=agent)), Task(**task("b"))], **fields)


def tried_again(**fields: Any) -> Crew:
    """Work that goes on after a failure, once in each life of the crew."""
    failed = list[bool]()

    def reply(messages: Any) -> Any:
        if not _heard(messages):
            return research(messages)
        if not failed:
            failed.append(True)
            return LLMRejected("small", 400, "no")
        return research(messages)

    agent = Agent(role="Patient", goal="g", llm=ScriptedLLM(reply), tools=[look], max_retry_limit=5)
    policy = {"failure_policy": DEFAULT}
    made = [Task(**task("a", None, agent=agent.with_(**policy), **policy)), Task(**task("b"))]
    return Crew(tasks=made, **policy, **fields)


class Seeing(ScriptedLLM):
    def supports_multimodal(self) -> bool:
        return True


def told(**fields: Any) -> Crew:
    """Agents that are told things in other ways: in templates, without a system message, with the date, in pictures."""

    def reply(messages: Any) -> Any:
        if isinstance(messages[-1]["content"], str) and not _heard(messages) and "{{" not in str(messages):
            picture = {"image_url": "https://example.org/harbour.png"}
            return ToolCall("Add_image_to_content", picture)
        return str(messages[-1]["content"])

    words = {
        "system_template": "{{ .System }}!",
        "prompt_template": "{{ .Prompt }}?",
        "response_template": "A: {{ .Response }}",
    }
    dated = {"inject_date": True, "date_format": "%Y", "use_system_prompt": False, "max_tool_output": 100}
    plainly = ScriptedLLM(lambda messages: "|".join(message["content"] for message in messages))
    made = [
        Task(**task("a", None, agent=Agent(role="Seer", goal="g", llm=Seeing(reply), multimodal=True))),
        Task(**task("b", None, agent=Agent(role="Dated", goal="g", llm=plainly, **words, **dated))),
    ]
    return Crew(tasks=made, **fields)


class Chat:
    """A model in the shape of LangChain's."""

    model_name = "chat"

    def invoke(self, messages: Any, **options: Any) -> str:
        return f"done after {len(messages)} messages"


@CrewBase
class Office:
    agents_config = {"clerk": {"role": "{topic} clerk", "goal": "g", "backstory": "b"}}
    tasks_config = {
        name: {"description": f"About {{topic}}: {name}", "expected_output": "x", "agent": "clerk"}
        for name in ("a", "b")
    }

    @agent_of
    def clerk(self) -> Agent:
        return Agent(config=self.agents_config["clerk"], llm=Chat())

    @task_of
    def a(self) -> Task:
        return Task(config=self.tasks_config["a"])

    @task_of
    def b(self) -> Task:
        return Task(config=self.tasks_config["b"])

    @before_kickoff
    def prepare(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {"topic": inputs["topic"].upper()}

    @after_kickoff
    def finish(self, result: Any) -> str:
        return f"{result.raw}!"

    @crew
    def crew(self) -> Crew:
        return Crew(agents=self.agents, tasks=self.tasks)


def of_a_class(**fields: Any) -> Crew:
    """A crew that is made by a class, whose agents ask a model of another library."""
    made: Crew = Office().crew()
    return made.with_(**fields)


CREWS: dict[str, Callable[..., Crew]] = {
    made.__name__: made
    for made in (
        *(sequential, structured, side_by_side, conditional, delegating, hierarchical, managed, planned, called_back),
        *(guarded, approved, approving, reviewed, used_up, limited, filed, reasoned, summarised, tried_again, told),
        *(informed, of_a_class),
    )
}
KICKOFFS: dict[str, dict[str, Any]] = {name: {"inputs": INPUTS} for name in CREWS}
"""What each of them is kicked off with."""
KICKOFFS["approved"]["answers"] = {
    "task:a/human:pay": True,
    "task:b/human:pay": False,
    "task:c/human:pay": {"arguments": {"amount": 8}},
    "task:d/human:pay": {"answer": "in cash"},
}
KICKOFFS["approving"]["auto_approve"] = True
KICKOFFS["reviewed"]["answers"] = {"task:a/human#1": "shorter", "task:a/human#2": "longer", "task:a/human#3": ""}
