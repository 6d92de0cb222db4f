"""Two hundred kickoffs of one crew at once: each has its own inputs, outputs, usage, events and text."""

from __future__ import annotations

import asyncio
import random
import re

from crewlite import Agent, Crew, LLMReply, Task, ToolCall, event_bus
from crewlite.events import BaseEvent, CrewKickoffStartedEvent
from crewlite.testing import ScriptedLLM
from crewlite.usage import Usage
from tests.parts import look

COUNT = 200


class Echo(ScriptedLLM):
    """Says what it is asked about, after a while of its own, and uses as many tokens as its number."""

    def __init__(self):
        super().__init__([])
        self.chance = random.Random(7)

    async def acall(self, messages, **context):
        topic = messages[1]["content"].split()[1]
        await asyncio.sleep(self.chance.random() / 50)
        number = int(topic.removeprefix("topic-"))
        usage = Usage(prompt_tokens=number, requests=1)
        if messages[-1]["role"] == "tool":
            return LLMReply(text=f"{topic} {messages[-1]['content']}", usage=usage)
        return LLMReply(tool_calls=(ToolCall("look", {"where": topic}),), usage=usage)


def test_nothing_of_one_leaks_into_another(memory):
    agent = Agent(role="Clerk of {topic}", goal="g", llm=Echo(), tools=[look])
    tasks = [Task(name=name, description="About {topic}", expected_output="x", agent=agent) for name in ("a", "b")]
    crew = Crew(tasks=tasks, checkpoint=memory())
    heard: list[BaseEvent] = []
    event_bus.on(BaseEvent, lambda source, event: heard.append(event))

    async def one(number):
        topic = f"topic-{number}"
        if number % 2:
            return topic, await crew.akickoff({"topic": topic}), None
        stream = crew.stream({"topic": topic})
        pieces = [piece async for piece in stream.atext()]
        return topic, await stream, pieces

    async def main():
        return await asyncio.gather(*(one(number) for number in range(COUNT)))

    runs = {}
    for topic, result, pieces in asyncio.run(main()):
        number = int(topic.removeprefix("topic-"))
        assert [output.raw for output in result.tasks_output] == [f"{topic} saw {topic}"] * 2
        assert [output.agent for output in result.tasks_output] == [f"Clerk of {topic}"] * 2
        assert (result.token_usage.total_tokens, result.token_usage.requests) == (4 * number, 4)
        assert pieces in (None, [f"{topic} saw {topic}"] * 2)
        runs[result.run_id] = topic
    assert len(runs) == COUNT
    by_run = {event.run_id: event.inputs["topic"] for event in heard if isinstance(event, CrewKickoffStartedEvent)}
    assert by_run == runs
    for event in heard:
        others = set(re.findall(r"topic-\d+", event.model_dump_json())) - {runs[event.run_id]}
        assert not others, f"{event.type} of {runs[event.run_id]} tells of {others}"
