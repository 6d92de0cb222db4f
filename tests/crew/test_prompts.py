"""What a model was asked, put together from the record, is what it was asked."""

import pytest

from crewlite import Agent, History, event_bus
from crewlite.errors import RefError
from crewlite.events import LLMCallStartedEvent
from crewlite.testing import ScriptedLLM
from tests.crews import CREWS, KICKOFFS


def shown(messages):
    return "\n".join(str(message["content"]) for message in messages)


@pytest.mark.parametrize("name", CREWS)
def test_each_part_of_a_prompt_was_said_in_this_order_and_what_is_left_out_is_told(name, memory):
    asked, kept = {}, memory()

    def hear(source, event):
        asked[event.address] = event.messages

    with event_bus.on(LLMCallStartedEvent, hear):
        CREWS[name](checkpoint=kept).kickoff(run_id=name, **KICKOFFS[name])
    with History(kept.location, kept.provider) as history:
        run = history.run(name)
        replies = [step.address for step in run.steps if step.kind == "llm"]
        assert replies
        for address in replies:
            prompt, said, at = run.prompt(address), shown(asked[address]), 0
            assert prompt.parts or prompt.missing
            for part in (part for part in prompt.parts if part.role in ("user", "tool") and part.name != "message"):
                assert part.text in said[at:], (address, part, said, prompt)
                at = said.index(part.text, at)
            if not prompt.missing:
                roles = [part.role for part in prompt.parts if part.role in ("assistant", "tool")]
                told = [message["role"] for message in asked[address] if message["role"] in ("assistant", "tool")]
                assert roles == told, (address, prompt, asked[address])
            print(address, prompt, asked[address], sep="\n")


def test_the_messages_of_an_agent_alone_are_its_prompt(memory):
    kept = memory()
    agent = Agent(
        role="Clerk", goal="answer {this}", backstory="Old.", llm=ScriptedLLM(["Yes.", "No."]), checkpoint=kept
    )
    agent.kickoff("Is it?", run_id="c")
    agent.kickoff("And now?", run_id="c")
    with History(kept.location, kept.provider) as history:
        run = history.run("c")
        first = run.prompt("llm#1")
        assert [(part.name, part.text) for part in first.parts][-1] == ("message", "Is it?") and not first.missing
        later = run.prompt("turn#2/llm#1")
        assert later.parts[-1].text == "And now?" and later.missing == ("the turns before this one",)
        with pytest.raises(RefError, match="names no model call"):
            run.prompt("turn#2")
