"""A run goes on whichever verb began it: its steps have the same addresses on the background loop as on a user's."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor

import pytest

from crewlite import Agent, Crew, Task
from crewlite.flow import Flow, bound, start, step
from crewlite.testing import ScriptedLLM


class Office:
    """A crew whose model answers with what it is asked about; asked for `bad`, it fails."""

    def __init__(self, bad=None):
        self.asked = []

        def answer(messages):
            topic = messages[-1]["content"].partition("about ")[2].partition(".")[0]
            self.asked.append(topic)
            return ValueError("bad") if topic == bad else f"On {topic}"

        agent = Agent(role="Writer", goal="write", llm=ScriptedLLM(answer))
        self.crew = Crew(tasks=[Task(description="Write about {topic}.", expected_output="text", agent=agent)])

    def write(self, topic):
        return self.crew.kickoff({"topic": topic}).raw


@step
async def doubled(number):
    return 2 * number


async def in_turn(office):
    return [office.crew.kickoff({"topic": topic}).raw for topic in ("a", "b")]


async def in_tasks(office):
    async def one(topic):
        await asyncio.sleep(0)
        return office.crew.kickoff({"topic": topic}).raw

    return await asyncio.gather(one("a"), one("b"))


async def awaited_beside_one_that_blocks(office):
    first = office.crew.kickoff({"topic": "a"}).raw
    return [first, (await office.crew.akickoff({"topic": "b"})).raw, *await asyncio.gather(doubled(1), doubled(2))]


async def in_threads_of_asyncio(office):
    return [await asyncio.to_thread(office.write, topic) for topic in ("a", "b")]


def in_a_pool(office):
    with ThreadPoolExecutor(1) as pool:
        return list(pool.map(bound(office.write), ["a", "b"]))


WAYS = [in_turn, in_tasks, awaited_beside_one_that_blocks, in_threads_of_asyncio, in_a_pool]


def flow_of(way, office, config):
    class Write(Flow):
        checkpoint = config

        if inspect.iscoroutinefunction(way):

            async def go(self):
                return await way(office)

            if way is not in_threads_of_asyncio:
                go.__wrapped__ = way  # its code is that of the method
            go = start()(go)

        else:

            @start()
            def go(self):
                return way(office)

    return Write()


@pytest.mark.parametrize("first", ["kickoff", "akickoff"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_run_that_one_verb_began_goes_on_with_the_other(memory, way, first):
    config, broken, whole = memory(), Office(bad="b"), Office()

    def kickoff(office, verb):
        made = flow_of(way, office, config)
        return made.kickoff(run_id="w") if verb == "kickoff" else asyncio.run(made.akickoff(run_id="w"))

    with pytest.raises(ValueError, match="bad"):
        kickoff(broken, first)
    result = kickoff(whole, "akickoff" if first == "kickoff" else "kickoff")
    assert result[:2] == ["On a", "On b"]
    assert (broken.asked, whole.asked) == (["a", "b"], ["b"])


def test_coroutines_that_ask_the_same_keep_their_answers_whichever_asks_first(memory):
    config, answers = memory(), iter(["one", "two", "three"])
    agent = Agent(role="Writer", goal="write", llm=ScriptedLLM(lambda messages: next(answers)))
    crew = Crew(tasks=[Task(description="Write a title.", expected_output="text", agent=agent)])

    def kickoff(first, *, fails):
        class Write(Flow):
            checkpoint = config

            @start()
            async def go(self):
                async def title(number):
                    await asyncio.sleep(0 if number == first else 0.05)
                    return crew.kickoff().raw

                titles = await asyncio.gather(title(1), title(2))
                if fails:
                    raise ValueError("fails")
                return titles

        return Write().kickoff(run_id="w")

    with pytest.raises(ValueError, match="fails"):
        kickoff(2, fails=True)
    assert kickoff(1, fails=False) == ["two", "one"]
