"""Random programs of every kind, life after life, for the law of compactions.

They are the same in each life until a kill; whoever resumes them after that has perhaps changed them.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grove
from hypothesis import Phase, given, seed, settings, strategies as st

from crewlite import Agent, CheckpointConfig, Crew, FailurePolicy, Task, ToolCall, event_bus, tool
from crewlite.errors import InDoubt
from crewlite.events import ToolUsageFinishedEvent
from crewlite.flow import ask, flow, step
from crewlite.recovery import suspend
from crewlite.testing import ScriptedLLM
from tests.class_flows import graphs
from tests.crews import CREWS, KICKOFFS
from tests.flow import random_calls as calls, state_programs as values
from tests.parts import Stop
from tests.recovery import tills


@dataclass
class Program:
    """What is kicked off, life after life: `kickoff(setting, life, **where)`."""

    kickoff: Callable[..., Any]
    answer: Callable[[str], Any] = len


LIVES = 4
"""How many lives a run has before it is compacted."""
RESUMED = (LIVES, LIVES + 1)
"""The lives in which it is resumed then. In the second, the code has changed, if that of the program ever does."""


DRIFTS = ("rerun", "rerun", "keep")


def on_drift(config: CheckpointConfig, number: int, otherwise: str) -> CheckpointConfig:
    """The setting for a life, which says what happens to changed questions once the code has changed."""
    return config.model_copy(update={"on_drift": otherwise}) if number > LIVES else config


def tree(dice: random.Random) -> Program:
    """Steps in steps, failing, tried again, side by side, with questions to people."""
    grown, blocking, drifts = grove.planted(dice), dice.random() < 0.5, dice.choice(DRIFTS)
    other = grove.regrown(grown, dice)

    def kickoff(config, number, **where):
        now = other if number > LIVES else grown

        async def grow():
            return await grove.grow(now)

        made = flow(name="tree", checkpoint=on_drift(config, number, drifts))
        return made((lambda: grove.sprout(now)) if blocking else grow).kickoff(**where)

    return Program(kickoff)


def till(dice: random.Random) -> Program:
    """Calls with effect="once", asked for in another order in each life."""
    made = dice.choice(tills.PROGRAMS)
    amounts = [tuple(dice.choices((1, 2, 3), k=dice.randint(1, 4))) for _ in range(LIVES + 2)]

    def kickoff(config, number, **where):
        config = config.model_copy(update={"on_drift": "rerun"})
        for _ in range(9):
            try:
                return made(tills.Till(*amounts[number], ends=number >= LIVES - 1), config).kickoff(**where)
            except InDoubt as asks:
                where["rerun"] = [*where.get("rerun", ()), asks.address]
        raise AssertionError

    return Program(kickoff)


def refusals(dice: random.Random) -> Program:
    """Calls with effect="once" in steps whose code handles their failures, in other places once the code has changed."""
    plans = [[dice.choices(range(6), k=dice.randint(1, 4)) for _ in range(dice.randint(1, 3))] for _ in range(2)]
    refused, stops = set(dice.sample(range(6), 3)), [dice.randint(1, 12) for _ in range(LIVES)]
    drifts = dice.choice(DRIFTS)

    @step(effect="once")
    def pay(amount):
        if amount in refused:
            raise ValueError(f"{amount} is refused")
        return amount

    def kickoff(config, number, **where):
        left = iter(range(stops[number])) if number < LIVES else itertools.count()

        def pay_all(amounts):
            paid = []
            for amount in amounts:
                if next(left, None) is None:
                    raise Stop
                with contextlib.suppress(ValueError):
                    paid.append(pay(amount))
            return paid

        around, outer = step(name="around")(pay_all), step(name="outer")(lambda amounts: around(amounts))
        verbs = itertools.cycle([around, outer, pay_all])
        whole = flow(
            lambda: [verb(amounts) for amounts, verb in zip(plans[number > LIVES], verbs, strict=False)],
            name="refusals",
            checkpoint=on_drift(config, number, drifts),
        )
        for _ in range(9):
            try:
                return whole.kickoff(**where)
            except InDoubt as asks:
                where["rerun"] = [*where.get("rerun", ()), asks.address]
        raise AssertionError

    return Program(kickoff)


def other_calls(dice: random.Random) -> Program:
    """Calls of a model that come and go between lives, in threads too."""
    worlds = calls.same_steps(dice)

    def kickoff(config, number, **where):
        world = number % 3
        return flow(lambda: calls.take_the_same_steps(worlds[world], world), name="p", checkpoint=config).kickoff(
            **where
        )

    return Program(kickoff)


def a_crew(dice: random.Random) -> Program:
    """One of the crews that can do all that crews can."""
    name = dice.choice(sorted(CREWS))
    budget = dice.choice([None, None, 1, 20])

    def kickoff(config, number, **where):
        more = {} if number >= 2 or budget is None else {"max_tokens": budget}
        given = KICKOFFS[name] if "run_id" in where else {}
        return CREWS[name](checkpoint=config, **more).kickoff(**given, **where)

    return Program(kickoff)


def keep_count(source, event, state):
    state["finished"] = state.get("finished", 0) + 1


def office(dice: random.Random) -> Program:
    """A crew whose model fails, whose tools ask people and pay, whose tasks are reviewed, and that a budget stops."""
    plans = [dice.choices(["look", "pay", "wonder", "talk"], k=dice.randint(0, 3)) for _ in range(3)]
    fails = [dice.choice([None, None, 0, 1, 2, 5]) for _ in range(3)]
    reviewed, policy = dice.random() < 0.3, dice.choice([None, FailurePolicy(default=suspend())])
    texts = [dice.choice(["Do {n} of {topic}", "Do {n}"]) for _ in range(3)]
    changed, budget, counted = dice.random() < 0.3, dice.choice([None, None, None, 1, 60]), dice.random() < 0.3
    other, drifts = dice.randrange(3), dice.choice(DRIFTS)

    @tool
    def look(where: str) -> str:
        """Look somewhere."""
        return f"saw {where}" + " and much besides" * 5

    @tool(effect=dice.choice(["once", "idempotent"]))
    def pay(where: str) -> str:
        """Pay."""
        return f"paid {where}"

    @tool
    def wonder(where: str) -> str:
        """Ask somebody."""
        return str(ask(f"Really {where}?"))

    def kickoff(config, number, **where):
        heard = Counter()

        def reply(messages):
            n = int(messages[1]["content"].split()[1])
            seen = sum(message["role"] == "tool" for message in messages)
            heard[n] += 1
            if number < 3 and heard[n] - 1 == fails[n]:
                raise Stop(f"{n}")
            if seen < len(plans[n]) and plans[n][seen] != "talk":
                return ToolCall(plans[n][seen], {"where": f"{n}.{seen}"})
            return f"answer {n} after {seen}"

        who = Agent(role="Worker", goal="g", llm=ScriptedLLM(reply), tools=[look, pay, wonder], max_retry_limit=0)
        tasks: list[Task] = []
        for n in range(3):
            said = texts[n].replace("{n}", str(n)) + (" again" if changed and number >= 2 and n == 1 else "")
            said += " otherwise" if number > LIVES and n == other else ""
            tasks.append(
                Task(
                    name=f"t{n}",
                    description=said,
                    expected_output="x",
                    agent=who,
                    context=tasks[-1:],
                    human_input=reviewed and n == 1,
                )
            )
        more = {} if number >= 2 or budget is None else {"max_tokens": budget}
        crew = Crew(tasks=tasks, checkpoint=on_drift(config, number, drifts), failure_policy=policy, **more)
        if counted:
            event_bus.on(ToolUsageFinishedEvent, keep_count)
        given = {"inputs": {"topic": "tides"}} if "run_id" in where else {}
        return crew.kickoff(**given, **where)

    return Program(kickoff, lambda address: "retry" if ":failed" in address else "")


def drawn(strategy: st.SearchStrategy[Any], dice: random.Random) -> Any:
    """One of many examples, of which the first ones are small."""
    found = list[Any]()

    @seed(dice.randrange(10**9))
    @settings(max_examples=20, database=None, phases=[Phase.generate])
    @given(strategy)
    def draw(one):
        found.append(one)

    draw()
    return dice.choice(found)


def methods(dice: random.Random) -> Program:
    """Flows of methods, with routers, questions to people, and crews, agents and flows inside."""
    plan = drawn(graphs.plans(nested=True).filter(lambda plan: graphs.flow_of(plan, graphs.World())), dice)

    def kickoff(config, number, **where):
        return graphs.flow_of(plan, graphs.World())(checkpoint=config).kickoff(**where)

    return Program(kickoff, lambda address: plan.label(address) or graphs.NONE)


def changes(dice: random.Random) -> Program:
    """Steps, and flows inside them, that change values and items, side by side too."""
    made, drifts = drawn(values.programs, dice), dice.choice(DRIFTS)
    other = [one for one in made if dice.random() < 0.7]

    def kickoff(config, number, **where):
        @flow(name="played", checkpoint=on_drift(config, number, drifts))
        def whole():
            return values.body(other if number > LIVES else made)

        return whole.kickoff(**where)

    return Program(kickoff)


PROGRAMS = [tree, till, refusals, other_calls, a_crew, office, methods, changes]
