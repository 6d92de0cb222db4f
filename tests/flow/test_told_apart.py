"""Code beside a step's own that asks the same question: it is told apart, alike, or refused."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from pydantic import SecretStr

from crewlite import LLM, Agent, Crew, Task
from crewlite.errors import ConfigError, Suspended
from crewlite.flow import Flow, ask, bound, flow, keyed, start, step
from crewlite.testing import ScriptedLLM


def judge(model):
    return Agent(role="Judge", goal="judge", llm=ScriptedLLM(lambda messages: f"I am {model}", model=model))


class Panel:
    def __init__(self, model):
        self.agent = judge(model)

    async def ask(self, question):
        return (await self.agent.akickoff(question)).raw


async def of_agent(agent):
    return (await agent.akickoff("Who are you?")).raw


async def of_crew(agent):
    task = Task(description="Say who you are", expected_output="a name", agent=agent)
    return (await Crew(tasks=[task]).akickoff()).raw


async def of_panel(agent):
    return await Panel(agent.llm.model).ask("Who are you?")


def closure(agent):
    async def run():
        return (await agent.akickoff("Who are you?")).raw

    return run()


async def in_threads(agent):
    pool = ThreadPoolExecutor(1)
    work = bound(lambda asked: asked.kickoff("Who are you?").raw)
    return await asyncio.wrap_future(pool.submit(work, agent))


@pytest.mark.parametrize("ask_one", [of_agent, of_crew, of_panel, closure, in_threads])
def test_code_that_differs_only_in_what_no_resume_can_tell_apart_is_refused(stored, ask_one):
    @flow(checkpoint=stored())
    async def panel(models):
        return await asyncio.gather(*(ask_one(judge(model)) for model in models))

    assert panel.kickoff(["small"]) == ["I am small"]
    with pytest.raises(ConfigError, match=r"requested twice side by side .* `with keyed\(name\):`"):
        panel.kickoff(["small", "large"])


@step
async def asks_agent(agent):
    return (await agent.akickoff("Who are you?")).raw


@step
def asks_agents(agents, question):
    return agents["first"].kickoff(question).raw


@step
def calls(function):
    return function()


class Given(Flow):
    @start()
    async def begin(self, agent):
        return await of_agent(agent)


class Holds(Flow):
    def __init__(self, agent):
        super().__init__()
        self.agent = agent

    @start()
    async def begin(self):
        return await of_agent(self.agent)


async def in_step(agent):
    return await asks_agent(agent)


async def in_submitted_step(agent):
    return await asks_agents.submit({"first": agent}, "Who are you?")


async def in_closure(agent):
    return await calls.submit(lambda: agent.kickoff("Who are you?").raw)


async def in_class_flow(agent):
    return await Given().akickoff(inputs={"agent": agent})


async def in_flow_that_holds_it(agent):
    return await Holds(agent).akickoff()


async def in_inputs_of_crew(agent):
    task = Task(description="Say that you are {who}", expected_output="a name", agent=judge("small"))
    prepare = lambda inputs: {"who": inputs["agent"].llm.model}  # noqa: E731 - callbacks made alike
    crew = Crew(tasks=[task], before_kickoff_callbacks=[prepare])
    return (await crew.akickoff(inputs={"agent": agent})).raw


given_an_agent = [in_step, in_submitted_step, in_closure, in_class_flow, in_flow_that_holds_it, in_inputs_of_crew]


@pytest.mark.parametrize("ask_one", given_an_agent)
def test_steps_that_are_given_objects_which_cannot_be_recorded_are_refused_unless_these_are_alike(stored, ask_one):
    one = judge("small")

    @flow(checkpoint=stored())
    async def panel(models):
        agents = [one if model == "one" else judge(model) for model in models]
        return await asyncio.gather(*(ask_one(agent) for agent in agents))

    assert panel.kickoff(["one", "one", "small"]) == ["I am small"] * 3
    with pytest.raises(ConfigError, match=r"requested twice side by side .* `with keyed\(name\):`"):
        panel.kickoff(["small", "large"])


def test_steps_that_are_given_objects_are_refused_unless_these_are_the_same(stored):
    class Client:
        pass

    @step
    async def fetch(client, page):
        return page

    async def fetched(client, page):
        return await fetch(client, page)

    @flow(checkpoint=stored())
    async def crawl(pages, clients):
        made = [Client() for _ in range(clients)]
        return await asyncio.gather(*(fetched(made[n % clients], page) for n, page in enumerate(pages)))

    assert crawl.kickoff([1, 1, 2], 1) == [1, 1, 2]
    assert crawl.kickoff([1, 2], 2) == [1, 2]
    with pytest.raises(ConfigError, match=r"requested twice side by side .* \(an argument\)"):
        crawl.kickoff([1, 1], 2)


def test_the_same_question_is_asked_as_often_as_one_likes_by_code_that_is_alike(stored):
    one, found = judge("small"), []

    async def ask_and_note(agent):
        found.append((await agent.akickoff("Who are you?")).raw)

    @flow(checkpoint=stored())
    async def sample():
        await asyncio.gather(ask_and_note(one), ask_and_note(one), ask_and_note(one.model_copy()))
        await asyncio.gather(*(Agent(role="R", goal="g", llm=LLM(model="offline")).akickoff("hi") for _ in "ab"))
        await asyncio.gather(*(of_crew(judge("small")) for _ in "ab"))
        return len(found)

    assert sample.kickoff() == 3


def test_a_key_tells_code_apart_that_differs_in_what_cannot_be_recorded(stored):
    async def named(model):
        with keyed(model):
            return await of_agent(judge(model))

    @flow(checkpoint=stored())
    async def panel():
        return await asyncio.gather(named("small"), named("large"))

    assert panel.kickoff() == ["I am small", "I am large"]


def test_code_whose_argument_changes_before_it_asks_is_told_apart_by_whom_it_asks(stored):
    async def one(job):
        model = job.pop("model")
        await asyncio.sleep(0)
        return await of_agent(judge(model))

    @flow(checkpoint=stored())
    async def panel():
        return await asyncio.gather(one({"model": "small"}), one({"model": "large"}))

    with pytest.raises(ConfigError, match=r"requested twice side by side .* \(Agent\)"):
        panel.kickoff()


@pytest.mark.parametrize("lines", [[["small", "large"], ["small"]], [["small"], ["small", "large"]]])
def test_code_that_asks_several_agents_the_same_beside_others_is_refused(stored, lines):
    async def one(agents):
        return [await of_agent(agent) for agent in agents]

    @flow(checkpoint=stored())
    async def panel(lines):
        return await asyncio.gather(*(one([judge(model) for model in line]) for line in lines))

    assert panel.kickoff([["small", "small"], ["small"]]) == [["I am small"] * 2, ["I am small"]]
    with pytest.raises(ConfigError, match=r"requested twice side by side .* \(Agent\)"):
        panel.kickoff(lines)


@pytest.mark.parametrize(
    "differs", [{"extra": {"user": 2}}, {"fallbacks": (ScriptedLLM(["b"]),)}, {"key": SecretStr("b")}]
)
def test_models_that_differ_in_any_setting_are_told_apart(stored, differs):
    class Model(ScriptedLLM):
        def __init__(self, *, extra=None, fallbacks=(), key=None):
            super().__init__(lambda messages: "done")
            self.extra, self.fallbacks, self.key = extra or {"user": 1}, fallbacks, key

    settings = [{}, {}]

    @flow(checkpoint=stored())
    async def panel():
        made = (Agent(role="Judge", goal="Judge", backstory="Old", llm=Model(**one)) for one in settings)
        return await asyncio.gather(*map(of_agent, made))

    assert panel.kickoff() == ["done"] * 2
    settings[1] = differs
    with pytest.raises(ConfigError, match=r"requested twice side by side .* \(Agent\)"):
        panel.kickoff()


@pytest.mark.parametrize("script", [lambda text: lambda messages: text, lambda text: [text]])
def test_scripted_models_with_other_lines_are_told_apart_as_other_models_are(stored, script):
    lines = ["a", "a"]

    @flow(checkpoint=stored())
    async def panel():
        made = (Agent(role="Judge", goal="Judge", backstory="Old", llm=ScriptedLLM(script(line))) for line in lines)
        return await asyncio.gather(*map(of_agent, made))

    assert panel.kickoff() == lines
    lines[1] = "b"
    with pytest.raises(ConfigError, match=r"requested twice side by side .* \(Agent\)"):
        panel.kickoff()


def test_one_coroutine_may_ask_several_agents_the_same(stored):
    async def both(question):
        return [(await judge(model).akickoff(question)).raw for model in ("small", "large")]

    @flow(checkpoint=stored())
    async def panel():
        return await asyncio.gather(both("Who?"), both("And who?"))

    assert panel.kickoff(run_id="one") == [["I am small", "I am large"]] * 2


def test_functions_that_hold_themselves_and_are_made_anew_are_alike(stored):
    @step
    async def call(work, depth):
        return work(depth)

    async def one():
        def deeper(depth):
            return depth and deeper(depth - 1)

        return await call(deeper, 3)

    @flow(checkpoint=stored())
    async def both():
        return await asyncio.gather(one(), one())

    assert both.kickoff() == [0, 0]


@pytest.mark.parametrize("threads", [False, True], ids=["coroutines", "threads"])
def test_helpers_that_ask_alike_side_by_side_keep_what_is_theirs(on_disk, threads):
    order, numbers, charged = ["alice", "bob"], iter(range(9)), []

    @step
    def number():
        return next(numbers)

    @step
    def charge(who, key):
        charged.append((who, key))
        return who, key

    async def one(who):
        while order[0] != who:
            await asyncio.sleep(0.001)
        key = await number.submit()
        order.append(order.pop(0))
        return await charge.submit(who, key)

    def one_in_a_thread(who):
        while order[0] != who:
            threading.Event().wait(0.001)
        key = number()
        order.append(order.pop(0))
        return charge(who, key)

    if threads:

        @flow(checkpoint=on_disk())
        def shop():
            with ThreadPoolExecutor(2) as pool:
                found = list(pool.map(bound(one_in_a_thread), ["alice", "bob"]))
            return found, ask("Ship?", name="ship")
    else:

        @flow(checkpoint=on_disk())
        async def shop():
            found = await asyncio.gather(one("alice"), one("bob"))
            return found, await ask("Ship?", name="ship")

    with pytest.raises(Suspended):
        shop.kickoff(run_id="one")
    order.reverse()
    found, _ = shop.kickoff(run_id="one", answers={"human:ship": "yes"})
    assert sorted(charged) == sorted([tuple(each) for each in found]) == [("alice", 0), ("bob", 1)]
