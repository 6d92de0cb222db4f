"""Random agents, and random changes of what they said and heard: a change takes effect, or the kickoff tells of it."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, event_bus, tool
from crewlite.encoding import codec
from crewlite.errors import ChangeUnused
from crewlite.events import BaseEvent, StepReplayedEvent
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN

_SAYS = {"llm": ["answer 1", "said"], "tool": ["heard", "1 in life 0"], "step": ["done"], "task": ["answer 1"]}


def _program(life, setting):
    """A flow of steps, a crew and a lone agent. What its model says follows from the conversation, and from `life`."""

    @tool
    def look(where: int) -> str:
        """Look."""
        return f"{where} in life {life}"

    def says(messages):
        heard = [message["content"] for message in messages[2:] if message["role"] == "tool"]
        chance = random.Random(f"{life[0] if len(heard) % 2 else ''}{codec.digest(heard)}")
        if len(heard) > 3 or chance.random() < 0.3:
            return f"answer {chance.randint(1, 2)}"
        return [ToolCall("look", {"where": chance.randint(1, 2)}) for _ in range(chance.choice([1, 1, 2]))]

    def agent():
        return Agent(role="Scout", goal="g", llm=ScriptedLLM(says), tools=[look])

    @step
    def begins(number):
        return number + life[0]

    @step
    def asks(text):
        return f"{text}: {agent().kickoff(text).raw}"

    @flow(checkpoint=setting)
    def scouts():
        first = begins(1)
        tasks = [Task(name=name, description=f"{name} {first}", expected_output="x", agent=agent()) for name in "ab"]
        crew = Crew(tasks=tasks).kickoff().raw
        return asks(crew), agent().kickoff(f"lone {first}").raw, begins(3)

    return scouts


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
@example(2332)  # a task is asked something else, and its agent makes the edited call as before
@example(3628663)  # a reply is done again and comes to the same, so that later ones are used
@example(5966)  # the same, and the next one is edited
@example(86002)  # a call that an earlier fork had set to run again is not requested any more
def test_a_change_takes_effect_or_is_change_unused(seed):
    chance, life = random.Random(seed), [0]
    program = _program(life, CheckpointConfig(location="here", provider=InMemoryProvider()))
    program.kickoff(run_id=RUN)
    ref = RUN
    for number in range(3):
        with History("here", program.checkpoint.provider) as history:
            can = [one for one in history.run(ref).steps if one.kind in _SAYS]
        edits, rerun = {}, []
        for one in chance.sample(can, min(len(can), chance.randint(1, 3))):
            if any(one.address.startswith(f"{at}/") or at.startswith(f"{one.address}/") for at in (*edits, *rerun)):
                continue
            value = chance.choice(_SAYS[one.kind])
            if one.kind == "llm" and chance.random() < 0.5:
                value = ToolCall("look", {"where": chance.randint(1, 2)})
            if chance.random() < 0.3:
                rerun.append(one.address)
            else:
                edits[one.address] = value
        life[0] = chance.randint(0, 1)
        fork = program.fork(ref, branch=f"b{number}", edits=edits, rerun=rerun)
        ref = f"{RUN}/b{number}"
        used, done = set(), set()

        def note(source, event, used=used, done=done):
            (used if isinstance(event, StepReplayedEvent) else done).add(event.address)

        try:
            with event_bus.scoped():
                event_bus.on(BaseEvent, note)
                fork.kickoff()
        except ChangeUnused as unused:
            assert set(unused.addresses) <= {*edits, *rerun}
            with pytest.raises(ChangeUnused, match="would end in the same way") as again:
                fork.kickoff()
            assert again.value.addresses == unused.addresses
            return
        assert set(edits) <= used
        assert set(rerun) <= done - used
        with History("here", program.checkpoint.provider) as history:
            listed = {one.address: one.edited for one in history.run(ref).steps}
        assert {*edits, *rerun} <= listed.keys()
        assert all(listed[at] for at in edits)
