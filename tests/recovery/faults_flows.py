"""Places where something may fail: small flows, one part of which goes as a fault script says."""

from __future__ import annotations

import asyncio

from crewlite import Crew, Flow, listen, router, start
from crewlite.flow import flow, record_step, recoverable, recovery_hint, step

from .faults_places import looking, looks, pilot, task


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


def _two_methods(place, second):
    class Work(Flow):
        failure_policy = place.policy

        @start()
        def fetch(self):
            place.calls["step"] += 1
            return "done"

        @listen(fetch)
        def look(self):
            return second()

    return Work().kickoff


def crew_in_a_method(place):
    crew = Crew(tasks=[task(pilot(place.llm(fails=True)))])

    def look():
        place.calls["step"] += 1
        return crew.kickoff().raw

    return _two_methods(place, look)


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


def step_once(place):
    def check(text):
        return text

    return _flow(place, step(effect="once")(place.part("step", check, fails=True)))


def steps_beside_each_other(place):
    async def check(text):
        return text

    async def other():
        place.calls["step"] += 1

    checked, beside = step(place.part("step", check, fails=True)), step(other)

    @flow(name="f", failure_policy=place.policy)
    async def work():
        text, _ = await asyncio.gather(checked("done"), beside())
        return text

    return work.kickoff


def claim_in_a_recoverable(place):
    agent = pilot(place.llm(fails=True))

    def verify(text):
        assert "guess" not in text, "it claims a time, but no table shows one"
        return text

    return _recoverable(place, lambda text, hint: agent.kickoff(f"{text} {hint}").raw, verify)


def claim_in_a_method(place):
    agent = pilot(place.llm(fails=True))

    def look():
        text = agent.kickoff(f"When is high water? {recovery_hint()}").raw
        if "guess" in text:
            raise ValueError("made up: no table shows it")
        return text

    return _two_methods(place, look)
