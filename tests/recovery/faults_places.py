"""Places where something may fail: small crews and flows, one part of which goes as a fault script says."""

from __future__ import annotations

import inspect
import json

from crewlite import Agent, Crew, Flow, LLMGuardrail, Process, Task, ToolCall, listen, router, start, tool
from crewlite.flow import flow, record_step, recoverable, step

from .faults_script import Hour


def pilot(llm, **fields):
    return Agent(role="Pilot", goal="answer", llm=llm, **fields)


def task(agent, name="t", **fields):
    return Task(name=name, description=f"{name}: when is high water?", expected_output="A time", agent=agent, **fields)


_ASKS = 6  # times that a model asks for a tool that fails


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


def _flow(place, check, **more):
    """A flow of three steps, the second of which is `check`."""

    @step
    def fetch():
        place.calls["step"] += 1
        return "done"

    @step
    def publish(text):
        place.calls["step"] += 1
        return text

    @flow(name="f", failure_policy=place.policy)
    def work():
        return publish(check(fetch()))

    return work.kickoff


def step_of_a_flow(place):
    def check(text):
        return text

    return _flow(place, step(place.part("step", check, fails=True)))


def step_around_a_crew(place):
    crew = Crew(tasks=[task(pilot(place.llm(fails=True)))])

    @step
    def check(text):
        place.calls["step"] += 1
        return crew.kickoff().raw

    return _flow(place, check)


def async_step(place):
    async def check(text):
        return text

    checked = step(place.part("step", check, fails=True))

    @flow(name="f", failure_policy=place.policy)
    async def work():
        return await checked("done")

    return work.kickoff


def crew_in_a_flow(place):
    crew = Crew(tasks=[task(pilot(place.llm()), "first"), task(pilot(place.llm(fails=True)), "second")])
    return _flow(place, lambda text: crew.kickoff().raw)


def tool_in_a_flow(place):
    crew = Crew(tasks=[task(pilot(place.llm(looks), tools=[looking(place, fails=True)]))])
    return _flow(place, lambda text: crew.kickoff().raw)


def flow_in_a_flow(place):
    def check(text):
        return text

    checked = step(place.part("step", check, fails=True))

    @flow(name="inner")
    def inner():
        return checked("done")

    return _flow(place, lambda text: inner())


def method_of_a_flow(place):
    def check(text):
        return text

    checked = place.part("step", check, fails=True)

    class Work(Flow):
        failure_policy = place.policy

        @start()
        def fetch(self):
            place.calls["step"] += 1
            return "done"

        @listen(fetch)
        def check(self, text):
            return checked(text)

        @listen(check)
        def publish(self, text):
            place.calls["step"] += 1
            return text

    return Work().kickoff


def router_of_a_flow(place):
    def where():
        return "on"

    routed = place.part("step", where, fails=True)

    class Work(Flow):
        failure_policy = place.policy

        @start()
        def fetch(self):
            place.calls["step"] += 1

        @router(fetch)
        def decide(self):
            return routed()

        @listen("on")
        def publish(self):
            place.calls["step"] += 1
            return "done"

    return Work().kickoff


def cycle_of_methods(place):
    class Work(Flow):
        failure_policy = place.policy
        max_method_calls = 2

        @start("again")
        def fetch(self):
            place.calls["step"] += 1

        @router(fetch)
        def decide(self):
            place.calls["step"] += 1
            return "again"

    return Work().kickoff


def cycle_in_a_flow(place):
    return _flow(place, lambda text: cycle_of_methods(place)())


def crew_in_a_method(place):
    crew = Crew(tasks=[task(pilot(place.llm(fails=True)))])

    class Work(Flow):
        failure_policy = place.policy

        @start()
        def fetch(self):
            place.calls["step"] += 1
            return "done"

        @listen(fetch)
        def look(self):
            place.calls["step"] += 1
            return crew.kickoff().raw

    return Work().kickoff


def _recoverable(place, process, verify):
    @step
    def fetch():
        place.calls["step"] += 1
        return "done"

    @recoverable(policy=place.policy)
    def analyse(hint: str):
        text = fetch()
        record_step("fetch", tool="fetch", output=text)
        return verify(process(text, hint))

    return analyse.kickoff


def phase_of_a_recoverable(place):
    def process(text, hint):
        return text

    return _recoverable(place, step(place.part("step", process, fails=True)), str)


def body_of_a_recoverable(place):
    def process(text, hint):
        return text

    def verify(text):
        return text

    return _recoverable(place, step(place.part("step", process)), place.part("step", verify, fails=True))


def agent_in_a_recoverable(place):
    agent = pilot(place.llm(fails=True))
    return _recoverable(place, lambda text, hint: agent.kickoff(f"{text} {hint}").raw, str)


PLACES = {
    name.replace("_", " "): build
    for name, build in list(globals().items())
    if inspect.isfunction(build) and list(inspect.signature(build).parameters) == ["place"]
}
