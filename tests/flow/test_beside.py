"""Code that asks for steps from several tasks or threads at once: which comes first is chance, and a resume bears it."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import SecretStr

import crewlite
from crewlite import LLM, Agent, BaseLLM, CheckpointConfig, Crew, History, Task, ToolCall, durable
from crewlite.errors import ConfigError, NonDeterminism, Suspended
from crewlite.flow import Flow, ask, bound, flow, keyed, start, step
from crewlite.state import InMemoryProvider, SqliteProvider
from crewlite.testing import ScriptedLLM
from crewlite.tools import tool
from tests.cuts import RUN, cut, entries_of


class World:
    """Which step ran how often, and how long each takes in this life."""

    def __init__(self, seed):
        self.runs = Counter()
        self.chance = random.Random(seed)

    async def work(self):
        self.runs[durable.scope().address] += 1
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)


world = World(0)


@step
async def leaf(value):
    await world.work()
    return value


@step
async def both(values):
    await world.work()
    return await asyncio.gather(*[line([value, value]) for value in values])


async def line(values):
    """Plain code that a flow runs side by side with more of its kind."""
    return [await (both(value) if isinstance(value, list) else leaf(value)) for value in values]


def side_by_side(setting):
    @flow(name="beside", checkpoint=setting)
    async def side_by_side(lines):
        first = await leaf(0)
        return first, await asyncio.gather(*[line(values) for values in lines]), await leaf(0)

    return side_by_side


numbers = st.integers(0, 3)
lines = st.lists(st.lists(numbers | st.lists(numbers, max_size=2), max_size=4), max_size=3)


@given(lines=lines, seeds=st.tuples(st.integers(), st.integers()))
@settings(max_examples=40, deadline=None)
def test_lines_of_steps_that_are_cut_after_any_commit_end_the_same_whichever_is_faster(lines, seeds):
    global world
    whole = CheckpointConfig(location="x", provider=InMemoryProvider())
    world = World(seeds[0])
    result = side_by_side(whole).kickoff(lines, run_id=RUN)
    runs, entries = world.runs, entries_of(whole)
    assert set(runs.values()) <= {1}
    for at in range(1, len(entries)):
        recorded = {step["address"] for entry in entries[:at] for step in entry.commit.get("steps", ())}
        world = World(seeds[1] + at)
        assert side_by_side(cut(entries, at)).kickoff(run_id=RUN) == result
        assert not recorded & world.runs.keys(), "a recorded step ran again"
        assert recorded | world.runs.keys() >= runs.keys(), "a step changed its place"


def test_what_is_in_doubt_keeps_its_key_whichever_line_comes_first(config):
    keys, hurry = {}, ["a"]

    @step
    async def pay(who):
        keys.setdefault(who, set()).add(crewlite.idempotency_key())
        raise KeyError(who)

    async def pays(who):
        await asyncio.sleep(0 if who in hurry else 0.01)
        return await pay(who)

    @flow(checkpoint=config())
    async def payday():
        await asyncio.gather(pays("a"), pays("b"), return_exceptions=True)
        raise KeyError

    for hurry[:] in (["a"], ["b"]):
        with pytest.raises(KeyError):
            payday.kickoff(run_id="one")
    assert [len(found) for found in keys.values()] == [1, 1]
    assert keys["a"] != keys["b"]


def test_a_step_of_a_line_that_is_not_asked_for_any_more_is_an_error(config):
    word = ["a"]

    async def says():
        return await leaf(word[0])

    @flow(checkpoint=config())
    async def talk():
        found = await asyncio.gather(says())
        if word == ["a"]:
            raise KeyError
        return found

    with pytest.raises(KeyError):
        talk.kickoff(run_id="one")
    word[:] = ["b"]
    with pytest.raises(
        NonDeterminism, match=r"expected step:leaf#.* known by its question and by the coroutine .* `with k"
    ):
        talk.kickoff(run_id="one")


def test_when_one_line_fails_the_others_end_and_are_recorded(config):
    ran, broken = [], [True]

    @step
    async def work(n):
        await asyncio.sleep(0.02)
        ran.append(n)
        return n

    async def fails():
        await asyncio.sleep(0.01)
        if broken:
            raise KeyError
        return "well"

    async def goes_on():
        return [await work(n) for n in range(3)]

    @flow(checkpoint=config())
    async def pipeline():
        return await asyncio.gather(goes_on(), fails())

    with pytest.raises(KeyError):
        pipeline.kickoff(run_id="one")
    assert ran == [0, 1, 2]
    broken.clear()
    assert pipeline.kickoff(run_id="one") == [[0, 1, 2], "well"]
    assert ran == [0, 1, 2]


def test_when_one_of_gathered_steps_fails_the_others_end_and_are_recorded(config):
    ran, broken = [], [True]

    @step
    async def work(n):
        await asyncio.sleep(0.02)
        ran.append(n)
        return n

    @step
    async def fails():
        if broken:
            raise KeyError
        return "well"

    @flow(checkpoint=config())
    async def pipeline():
        return await asyncio.gather(work(1), fails(), work(2))

    with pytest.raises(KeyError):
        pipeline.kickoff(run_id="one")
    broken.clear()
    assert pipeline.kickoff(run_id="one") == [1, "well", 2]
    assert ran == [1, 2]


async def gathered(*steps):
    return await asyncio.gather(*steps)


async def grouped(*steps):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in steps]
    return [task.result() for task in tasks]


@pytest.mark.parametrize("delay", [0, 0.02])
@pytest.mark.parametrize("beside", [gathered, grouped])
def test_when_several_steps_side_by_side_fail_all_of_them_are_tried_again(config, beside, delay):
    ran, broken = [], [True]

    @step
    async def work(n):
        await asyncio.sleep(delay * n)
        ran.append(n)
        if broken:
            raise KeyError(n)
        return n

    async def line(n):
        return await work(n)

    @flow(checkpoint=config())
    async def pipeline():
        return await beside(*map(line, range(3)))

    with pytest.raises((KeyError, ExceptionGroup)):
        pipeline.kickoff(run_id="one")
    begun = [*ran]
    assert begun == [0, 1, 2] or (beside is grouped and begun[0] == 0)  # which cancels the others
    broken.clear()
    assert pipeline.kickoff(run_id="one") == [0, 1, 2]
    assert ran == [*begun, 0, 1, 2]


def test_a_flow_ends_when_the_steps_that_nobody_awaited_have_ended(config):
    tasks = []

    @step
    async def work():
        await asyncio.sleep(0.02)

    @flow(checkpoint=config())
    async def pipeline():
        tasks.append(asyncio.ensure_future(work()))
        await asyncio.sleep(0)

    pipeline.kickoff(run_id="one")
    with History(config().location, config().provider) as history:
        assert [found.address for found in history.run("one").steps] == ["step:work", ""]


def test_questions_of_lines_are_told_apart_whichever_comes_first(on_disk):
    order = ["a", "b"]

    async def asks(name):
        await asyncio.sleep(0.01 * order.index(name))
        return await ask(f"{name}?"), await ask("Sure?", name=f"sure-{name}")

    @flow(checkpoint=on_disk())
    async def quiz():
        return await asyncio.gather(asks("a"), asks("b"), return_exceptions=True)

    with pytest.raises(Suspended) as caught:
        quiz.kickoff(run_id="one")
    answers = {address: question[0].upper() for address, question in caught.value.waiting.items()}
    order.reverse()
    ahead = {"human:sure-a": "yes", "human:sure-b": "no"}
    assert quiz.kickoff(run_id="one", answers=answers | ahead) == [("A", "yes"), ("B", "no")]


def test_a_line_that_is_awaited_with_a_limit_and_steps_that_are_gathered_are_still_in_order(config):
    @flow(checkpoint=config())
    async def plain():
        one = await asyncio.wait_for(leaf(1), 5)
        return [one, *await asyncio.gather(leaf(2), leaf.submit(3))]

    assert plain.kickoff(run_id="one") == [1, 2, 3]
    with History(plain.checkpoint.location, provider=plain.checkpoint.provider) as history:
        assert {view.address for view in history.run("one").steps} >= {"step:leaf", "step:leaf#2", "step:leaf#3"}


# threads of one's own


@pytest.mark.parametrize("form", ["blocking", "async"])
def test_a_pool_of_ones_own_is_part_of_the_run_with_bound(config, form):
    ran, lock, broken = [], threading.Lock(), [True]

    @step
    def fetch(page):
        with lock:
            ran.append(page)
        return page * 10

    def fetched(page):
        return fetch(page) + fetch(page + 1)

    def pooled():
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(bound(fetched), range(0, 12, 2)))
        if broken:
            raise KeyError
        return found

    async def apooled():
        return await asyncio.to_thread(pooled)

    crawl = flow(name="crawl", checkpoint=config())(pooled if form == "blocking" else apooled)
    with pytest.raises(KeyError):
        crawl.kickoff(run_id="one")
    broken.clear()
    assert crawl.kickoff(run_id="one") == [10, 50, 90, 130, 170, 210]
    assert sorted(ran) == list(range(12))


def test_bound_outside_a_run_is_the_function_and_takes_no_coroutine():
    assert bound(len)("four") == 4
    assert crewlite.bound is bound

    async def waits():
        return 1

    with pytest.raises(ConfigError, match="A coroutine needs no"):
        bound(waits)


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
def test_code_that_differs_only_in_what_no_resume_can_tell_apart_is_refused(config, ask_one):
    @flow(checkpoint=config())
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
def test_steps_that_are_given_objects_which_cannot_be_recorded_are_refused_unless_these_are_alike(config, ask_one):
    one = judge("small")

    @flow(checkpoint=config())
    async def panel(models):
        agents = [one if model == "one" else judge(model) for model in models]
        return await asyncio.gather(*(ask_one(agent) for agent in agents))

    assert panel.kickoff(["one", "one", "small"]) == ["I am small"] * 3
    with pytest.raises(ConfigError, match=r"requested twice side by side .* `with keyed\(name\):`"):
        panel.kickoff(["small", "large"])


def test_steps_that_are_given_objects_are_refused_unless_these_are_the_same(config):
    class Client:
        pass

    @step
    async def fetch(client, page):
        return page

    async def fetched(client, page):
        return await fetch(client, page)

    @flow(checkpoint=config())
    async def crawl(pages, clients):
        made = [Client() for _ in range(clients)]
        return await asyncio.gather(*(fetched(made[n % clients], page) for n, page in enumerate(pages)))

    assert crawl.kickoff([1, 1, 2], 1) == [1, 1, 2]
    assert crawl.kickoff([1, 2], 2) == [1, 2]
    with pytest.raises(ConfigError, match=r"requested twice side by side .* \(an argument\)"):
        crawl.kickoff([1, 1], 2)


def test_the_same_question_is_asked_as_often_as_one_likes_by_code_that_is_alike(config):
    one, found = judge("small"), []

    async def ask_and_note(agent):
        found.append((await agent.akickoff("Who are you?")).raw)

    @flow(checkpoint=config())
    async def sample():
        await asyncio.gather(ask_and_note(one), ask_and_note(one), ask_and_note(one.model_copy()))
        await asyncio.gather(*(Agent(role="R", goal="g", llm=LLM(model="offline")).akickoff("hi") for _ in "ab"))
        await asyncio.gather(*(of_crew(judge("small")) for _ in "ab"))
        return len(found)

    assert sample.kickoff() == 3


def test_a_key_tells_code_apart_that_differs_in_what_cannot_be_recorded(config):
    async def named(model):
        with keyed(model):
            return await of_agent(judge(model))

    @flow(checkpoint=config())
    async def panel():
        return await asyncio.gather(named("small"), named("large"))

    assert panel.kickoff() == ["I am small", "I am large"]


@given(count=st.integers(1, 4), seeds=st.tuples(st.integers(), st.integers()))
@settings(max_examples=25, deadline=None)
def test_code_that_goes_on_with_whichever_step_is_first_goes_on_so_after_a_cut(count, seeds):
    global world
    whole = CheckpointConfig(location="x", provider=InMemoryProvider())

    def first_come(setting):
        @flow(name="first_come", checkpoint=setting)
        async def first_come():
            return sorted([await leaf(-await one) for one in asyncio.as_completed([leaf(n + 1) for n in range(count)])])

        return first_come

    world = World(seeds[0])
    result = first_come(whole).kickoff(run_id=RUN)
    entries = entries_of(whole)
    for at in range(1, len(entries)):
        recorded = {step["address"] for entry in entries[:at] for step in entry.commit.get("steps", ())}
        world = World(seeds[1] + at)
        assert first_come(cut(entries, at)).kickoff(run_id=RUN) == result
        assert not recorded & world.runs.keys(), "a recorded step ran again"


async def through_other_tasks(asked):
    (result,) = await asyncio.wait_for(asyncio.gather(asked), 60)
    return result


@pytest.mark.parametrize("awaited", [asyncio.shield, through_other_tasks])
def test_code_that_waits_for_whichever_step_ends_first_goes_on_so_after_a_cut(awaited):
    global world
    whole = CheckpointConfig(location="x", provider=InMemoryProvider())
    gates = {}

    @step
    async def gated(number):
        await gates[number].wait()
        return number

    async def through(number):
        return await awaited(gated(number))

    def in_turns(setting):
        @flow(name="in_turns", checkpoint=setting)
        async def in_turns():
            order, came = [3, 1, 4, 2], []
            gates.update((number, asyncio.Event()) for number in order)
            left = {asyncio.create_task(through(number)) for number in order}
            while left:
                gates[order[sum(map(len, came))]].set()
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                came.append([await leaf(-one.result()) for one in done])
            return came

        return in_turns

    world = World(1)
    result = [[-3], [-1], [-4], [-2]]
    assert in_turns(whole).kickoff(run_id=RUN) == result
    entries = entries_of(whole)
    for at in range(1, len(entries)):
        world = World(at)
        assert in_turns(cut(entries, at)).kickoff(run_id=RUN) == result


@pytest.mark.parametrize("form", ["task", "submitted", "sometimes failing", "after a step"])
def test_steps_that_end_at_the_same_time_are_handed_over_alike_after_a_cut(form, tmp_path):
    """While the code awaits another step, results gather: as many when the steps run as when they are recorded."""
    whole = CheckpointConfig(
        location=str(tmp_path / "whole.db"), provider=SqliteProvider()
    )  # commits take a while there

    @step
    async def work(number):
        if form == "sometimes failing" and number % 2:
            raise KeyError(number)
        return number

    @step
    async def follow(batch):
        return batch

    async def asked(number):
        return await (work.submit(number) if form == "submitted" else work(number))

    def in_batches(setting):
        @flow(name="in_batches", checkpoint=setting)
        async def in_batches():
            left, came = {asyncio.create_task(asked(number)) for number in range(5)}, []
            if form == "after a step":
                await work(5)
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                came.append(await follow(sorted(repr(one.exception() or one.result()) for one in done)))
            return came

        return in_batches

    result = in_batches(whole).kickoff(run_id=RUN)
    assert form == "after a step" or len(result[0]) == 1
    entries, followed = entries_of(whole), 0
    for at in range(1, len(entries)):
        followed += any(one["address"].startswith("step:follow") for one in entries[at - 1].commit.get("steps", ()))
        assert in_batches(cut(entries, at)).kickoff(run_id=RUN)[:followed] == result[:followed]
    assert followed == len(result)


def test_code_whose_argument_changes_before_it_asks_is_told_apart_by_whom_it_asks(config):
    async def one(job):
        model = job.pop("model")
        await asyncio.sleep(0)
        return await of_agent(judge(model))

    @flow(checkpoint=config())
    async def panel():
        return await asyncio.gather(one({"model": "small"}), one({"model": "large"}))

    with pytest.raises(ConfigError, match=r"requested twice side by side .* \(Agent\)"):
        panel.kickoff()


@pytest.mark.parametrize("lines", [[["small", "large"], ["small"]], [["small"], ["small", "large"]]])
def test_code_that_asks_several_agents_the_same_beside_others_is_refused(config, lines):
    async def one(agents):
        return [await of_agent(agent) for agent in agents]

    @flow(checkpoint=config())
    async def panel(lines):
        return await asyncio.gather(*(one([judge(model) for model in line]) for line in lines))

    assert panel.kickoff([["small", "small"], ["small"]]) == [["I am small"] * 2, ["I am small"]]
    with pytest.raises(ConfigError, match=r"requested twice side by side .* \(Agent\)"):
        panel.kickoff(lines)


@pytest.mark.parametrize(
    "differs", [{"extra": {"user": 2}}, {"fallbacks": (ScriptedLLM(["b"]),)}, {"key": SecretStr("b")}]
)
def test_models_that_differ_in_any_setting_are_told_apart(config, differs):
    class Model(ScriptedLLM):
        def __init__(self, *, extra=None, fallbacks=(), key=None):
            super().__init__(lambda messages: "done")
            self.extra, self.fallbacks, self.key = extra or {"user": 1}, fallbacks, key

    settings = [{}, {}]

    @flow(checkpoint=config())
    async def panel():
        made = (Agent(role="Judge", goal="Judge", backstory="Old", llm=Model(**one)) for one in settings)
        return await asyncio.gather(*map(of_agent, made))

    assert panel.kickoff() == ["done"] * 2
    settings[1] = differs
    with pytest.raises(ConfigError, match=r"requested twice side by side .* \(Agent\)"):
        panel.kickoff()


class Slow(BaseLLM):
    async def acall(self, messages):
        await asyncio.sleep(0.1)
        return f"I am {self.model}"


@pytest.mark.parametrize("verb", ["ask", "call"])
def test_models_asked_the_same_in_threads_of_the_loop_are_told_apart_only_one_after_another(config, verb):
    asks, fails = [getattr(Slow(model), verb) for model in ("small", "large")], [KeyError("cut")]

    @flow(checkpoint=config())
    async def in_a_row():
        said = [str(await asyncio.to_thread(ask, "Well?")) for ask in asks]
        if fails:
            raise fails.pop()
        return said

    @flow(checkpoint=config())
    async def at_once():
        return await asyncio.gather(*(asyncio.to_thread(ask, "Well?") for ask in asks))

    with pytest.raises(KeyError):
        in_a_row.kickoff(run_id="row")
    assert in_a_row.kickoff(run_id="row") == ["I am small", "I am large"]
    with pytest.raises(ConfigError, match=r"requested twice side by side .* \(Slow\)"):
        at_once.kickoff()
    asks[1] = asks[0]
    assert at_once.kickoff() == ["I am small"] * 2


def test_threads_that_the_code_of_a_flow_gives_its_context_get_their_own_answers_back(config):
    late, paid, fails = ["a"], [], [KeyError("cut")]

    class Counts(Slow):
        async def acall(self, messages):
            paid.append(messages[-1]["content"])
            return await super().acall(messages)

    llm = Counts("small")

    def asks(name):
        if name in late:
            time.sleep(0.03)
        return str(llm.call(name))

    @flow(checkpoint=config())
    def crawl():
        async def all_of_them():
            return await asyncio.gather(*(asyncio.to_thread(asks, name) for name in "abc"))

        found = asyncio.run(all_of_them())
        with ThreadPoolExecutor(3) as pool:
            found += [job.result() for job in [pool.submit(copy_context().run, asks, name) for name in "def"]]
        if fails:
            raise fails.pop()
        return found

    with pytest.raises(KeyError):
        crawl.kickoff(run_id="r")
    late[:] = ["c", "d"]
    assert crawl.kickoff(run_id="r") == ["I am small"] * 6
    assert sorted(paid) == list("abcdef")

    @flow(checkpoint=config())
    def at_once():
        async def both():
            asks = [Slow(model).ask for model in ("small", "large")]
            return await asyncio.gather(*(asyncio.to_thread(ask, "Well?") for ask in asks))

        return asyncio.run(both())

    with pytest.raises(ConfigError, match=r"requested twice side by side .* \(Slow\)"):
        at_once.kickoff()


@pytest.mark.parametrize("script", [lambda text: lambda messages: text, lambda text: [text]])
def test_scripted_models_with_other_lines_are_told_apart_as_other_models_are(config, script):
    lines = ["a", "a"]

    @flow(checkpoint=config())
    async def panel():
        made = (Agent(role="Judge", goal="Judge", backstory="Old", llm=ScriptedLLM(script(line))) for line in lines)
        return await asyncio.gather(*map(of_agent, made))

    assert panel.kickoff() == lines
    lines[1] = "b"
    with pytest.raises(ConfigError, match=r"requested twice side by side .* \(Agent\)"):
        panel.kickoff()


def test_one_coroutine_may_ask_several_agents_the_same(config):
    async def both(question):
        return [(await judge(model).akickoff(question)).raw for model in ("small", "large")]

    @flow(checkpoint=config())
    async def panel():
        return await asyncio.gather(both("Who?"), both("And who?"))

    assert panel.kickoff(run_id="one") == [["I am small", "I am large"]] * 2


def test_a_result_that_cannot_be_recorded_is_handed_over_beside_recorded_ones(config):
    failing = [True]

    @step
    async def opaque():
        return threading.Lock()

    @flow(checkpoint=config())
    async def mixed():
        one, other = await asyncio.gather(line([1]), asyncio.ensure_future(opaque()))
        if failing:
            failing.clear()
            raise KeyError
        return one, type(other).__name__

    with pytest.raises(KeyError):
        mixed.kickoff(run_id="one")
    assert mixed.kickoff(run_id="one") == ([1], "lock")


def test_functions_that_hold_themselves_and_are_made_anew_are_alike(config):
    @step
    async def call(work, depth):
        return work(depth)

    async def one():
        def deeper(depth):
            return depth and deeper(depth - 1)

        return await call(deeper, 3)

    @flow(checkpoint=config())
    async def both():
        return await asyncio.gather(one(), one())

    assert both.kickoff() == [0, 0]


def test_code_may_hold_what_it_likes_if_whom_it_asks_is_alike(config):
    count = 0

    async def one(held):
        nonlocal count
        await asyncio.sleep(0.001 * count)
        count += 1
        return await leaf(0)

    @flow(checkpoint=config())
    async def rounds():
        found = [await asyncio.gather(one(object()), one(object())) for _ in "ab"]
        return found, [await asyncio.create_task(one(threading.Lock())) for _ in "ab"]

    assert rounds.kickoff() == ([[0, 0], [0, 0]], [0, 0])


@pytest.mark.parametrize("verb", ["ask", "call"])
@pytest.mark.parametrize("question", ["{}", "Well?"])
def test_threads_in_a_tool_that_are_given_their_models_get_their_own_answers_back(verb, question):
    models = {name: Slow(name) for name in ("small", "medium", "large")}

    def answers(messages, tools=()):
        return "done" if messages[-1]["role"] == "tool" else ToolCall("survey")

    def crew(setting, late):
        @tool
        def survey() -> str:
            """Ask all of them."""

            def one(job):
                name, llm = job
                if name in late:
                    time.sleep(0.03)
                return str(getattr(llm, verb)(question.format(name)))

            with ThreadPoolExecutor(3) as pool:
                return ", ".join(pool.map(bound(one), models.items()))

        agent = Agent(role="Judge", goal="judge", llm=ScriptedLLM(answers), tools=[survey])
        return Crew(tasks=[Task(description="Survey", expected_output="text", agent=agent)], checkpoint=setting)

    def told(setting):
        with History(setting.location, setting.provider) as history:
            steps = history.run(RUN).steps
        return {step.address: step.value for step in steps if "survey" in step.address and step.status == "finished"}

    whole = CheckpointConfig(location="here", provider=InMemoryProvider())
    crew(whole, ["large"]).kickoff(run_id=RUN)
    entries, expected = entries_of(whole), told(whole)
    assert len(expected) == 4
    for at in range(1, len(entries) + 1):
        again = cut(entries, at)
        crew(again, ["small"]).kickoff(run_id=RUN)
        assert told(again) == expected, f"cut after commit {at}"
