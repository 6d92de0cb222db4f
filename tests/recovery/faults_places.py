"""Places where something may fail: small crews, one part of which goes as a fault script says."""

from __future__ import annotations

import json

from crewlite import Agent, Crew, LLMGuardrail, Process, Task, ToolCall, tool

from .faults_script import Hour


def pilot(llm, **fields):
    return Agent(role="Pilot", goal="answer", llm=llm, **fields)


def task(agent, name="t", **fields):
    return Task(name=name, description=f"{name}: when is high water?", expected_output="A time", agent=agent, **fields)


_ASKS = 3  # times that a model asks for a tool that fails


def looks(messages):
    """Call the tool, again if it has failed, and answer once it has said what it sees."""
    heard = [message["content"] for message in messages if message["role"] == "tool"]
    if heard and "fog" in heard[-1]:
        return "done"
    return "no answer" if len(heard) == _ASKS else ToolCall("look", {"port": "Brest"})


def after_tool(messages):
    return messages[-1]["role"] == "tool"


def looking(place, effect="none", **fields):
    """A tool; the script is for it if `fails`."""

    def look(port: str) -> str:
        """Look at a port."""
        return "fog"

    return tool(effect=effect)(place.part("tool", look, **fields))


def model_of_a_task(place):
    good = pilot(place.llm())
    tasks = [task(good, "first"), task(pilot(place.llm(fails=True)), "second"), task(good, "third")]
    return Crew(tasks=tasks, failure_policy=place.policy).kickoff


def model_after_a_tool(place):
    agent = pilot(place.llm(looks, fails=True, only=after_tool), tools=[looking(place)])
    return Crew(tasks=[task(agent)], failure_policy=place.policy).kickoff


def model_beside_others(place):
    tasks = [task(pilot(place.llm(fails=name == "b")), name, async_execution=name != "c") for name in "abc"]
    return Crew(tasks=tasks, failure_policy=place.policy).kickoff


def model_with_a_spare(place):
    llm = place.llm(fails=True, model="first")
    llm.fallbacks = (place.llm(model="spare"),)
    return Crew(tasks=[task(pilot(llm))], failure_policy=place.policy).kickoff


def model_that_calls_tools(place):
    agent = pilot(place.llm(looks, fails=True), tools=[looking(place)])
    return Crew(tasks=[task(agent)], failure_policy=place.policy).kickoff


def model_with_few_turns(place):
    agent = pilot(place.llm(fails=True), tools=[looking(place)], max_iter=2)
    return Crew(tasks=[task(agent)], failure_policy=place.policy).kickoff


def model_on_a_budget(place):
    agent = pilot(place.llm(fails=True), tools=[looking(place)])
    return Crew(tasks=[task(agent)], failure_policy=place.policy, max_iter=2).kickoff


def model_without_summaries(place):
    agent = pilot(place.llm(looks, fails=True, only=after_tool), tools=[looking(place)], respect_context_window=False)
    return Crew(tasks=[task(agent)], failure_policy=place.policy).kickoff


def agent_alone(place):
    agent = pilot(place.llm(fails=True), failure_policy=place.policy)
    return lambda: agent.kickoff("When is high water?")


def tool_of_a_task(place):
    agent = pilot(place.llm(looks), tools=[looking(place, fails=True)])
    return Crew(tasks=[task(agent)], failure_policy=place.policy).kickoff


def async_tool(place):
    async def look(port: str) -> str:
        """Look at a port."""
        return "fog"

    agent = pilot(place.llm(looks), tools=[tool(place.part("tool", look, fails=True))])
    return Crew(tasks=[task(agent)], failure_policy=place.policy).kickoff


def tool_once(place):
    agent = pilot(place.llm(looks), tools=[looking(place, effect="once", fails=True)])
    return Crew(tasks=[task(agent)], failure_policy=place.policy).kickoff


def _sure(output):
    return ("guess" not in output.raw, "it only guesses" if "guess" in output.raw else output.raw)


def guardrail(place):
    checked = task(pilot(place.llm(fails=True)), guardrail=_sure)
    return Crew(tasks=[checked], failure_policy=place.policy).kickoff


def guardrail_without_retries(place):
    checked = task(pilot(place.llm(fails=True)), "second", guardrail=_sure, guardrail_max_retries=0)
    return Crew(tasks=[task(pilot(place.llm()), "first"), checked], failure_policy=place.policy).kickoff


def model_of_a_guardrail(place):
    judge = LLMGuardrail(description="It names a time", llm=place.llm('{"valid": true, "feedback": ""}', fails=True))
    checked = task(pilot(place.llm()), guardrail=judge)
    return Crew(tasks=[checked], failure_policy=place.policy).kickoff


def model_of_a_planner(place):
    plan = json.dumps({"plans": [{"task": 1, "plan": "look"}]})
    planner = place.llm(plan, fails=True)
    tasks = [task(pilot(place.llm()))]
    return Crew(tasks=tasks, planning=True, planning_llm=planner, failure_policy=place.policy).kickoff


def guardrail_itself(place):
    def check(output):
        return True, output.raw

    checked = task(pilot(place.llm()), guardrail=place.part("step", check, fails=True))
    return Crew(tasks=[checked], failure_policy=place.policy).kickoff


def callback_of_a_task(place):
    def note(output):
        return None

    return Crew(
        tasks=[task(pilot(place.llm()), callback=place.part("step", note, fails=True))], failure_policy=place.policy
    ).kickoff


def structured_output(place):
    shaped = task(pilot(place.llm('{"hour": 11}', fails=True)), output_pydantic=Hour)
    return Crew(tasks=[shaped], failure_policy=place.policy).kickoff


def delegates(messages):
    asked = {"task": "look", "context": "", "coworker": "Helper"}
    return "done" if messages[-1]["role"] == "tool" else ToolCall("Delegate work to coworker", asked)


def model_of_a_coworker(place):
    lead = pilot(place.llm(delegates), allow_delegation=True)
    helper = Agent(role="Helper", goal="help", llm=place.llm(fails=True))
    return Crew(agents=[lead, helper], tasks=[task(lead)], failure_policy=place.policy).kickoff


def tool_of_a_coworker(place):
    lead = pilot(place.llm(delegates), allow_delegation=True)
    helper = Agent(role="Helper", goal="help", llm=place.llm(looks), tools=[looking(place, fails=True)])
    return Crew(agents=[lead, helper], tasks=[task(lead)], failure_policy=place.policy).kickoff


def model_of_a_manager(place):
    helper = Agent(role="Helper", goal="help", llm=place.llm())
    work = Task(name="t", description="look", expected_output="A time")
    manager = place.llm(delegates, fails=True)
    return Crew(
        agents=[helper], tasks=[work], process=Process.hierarchical, manager_llm=manager, failure_policy=place.policy
    ).kickoff


def _asked(place):
    """A task with its tool, some of whose model calls go as the script says."""
    return task(pilot(place.llm(looks, fails=True, only=after_tool), tools=[looking(place)]))


def model_of_a_kickoff_for_each(place):
    crew = Crew(tasks=[_asked(place)], failure_policy=place.policy)
    return lambda: crew.kickoff_for_each([{"port": port} for port in ("Brest", "Brixham")])[-1]


def guardrail_of_an_agent(place):
    agent = pilot(place.llm(fails=True), guardrail=_sure, guardrail_max_retries=0, failure_policy=place.policy)
    return lambda: agent.kickoff("When is high water?")


def output_of_an_agent(place):
    agent = pilot(place.llm('{"hour": 11}', fails=True), failure_policy=place.policy)
    return lambda: agent.kickoff("When is high water?", response_format=Hour)


def output_of_a_coworker(place):
    lead = pilot(place.llm(delegates), allow_delegation=True)
    helper = Agent(role="Helper", goal="help", llm=place.llm(fails=True), guardrail=_sure, guardrail_max_retries=0)
    return Crew(agents=[lead, helper], tasks=[task(lead)], failure_policy=place.policy).kickoff


def crew_in_a_tool(place):
    inner = Crew(tasks=[task(pilot(place.llm(fails=True)), "inner")])

    @tool
    def look(port: str) -> str:
        """Look at a port."""
        place.calls["tool"] += 1
        return f"fog, {inner.kickoff().raw}"

    agent = pilot(place.llm(looks), tools=[look])
    return Crew(tasks=[task(agent)], failure_policy=place.policy).kickoff


def callback_before_a_kickoff(place):
    def ready(inputs):
        return inputs

    before = place.part("step", ready, fails=True)
    crew = Crew(tasks=[task(pilot(place.llm()))], before_kickoff_callbacks=[before], failure_policy=place.policy)
    return lambda: crew.kickoff({"port": "Brest"})
