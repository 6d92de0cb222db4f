"""Programs whose calls of models differ in each life end as if they had lived once, and pay nothing twice."""

import random

from crewlite import CheckpointConfig
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM

LLM = ScriptedLLM(lambda messages: f"re: {messages[-1]['content']}")
PAID = []


@step
def tell(text):
    return f"told {text}"


@step
def deep(number):
    return tell(str(LLM.call(f"deep {number}")))


@step(effect="once")
def pay(number):
    PAID.append(number)


def worlds_of(chance):
    """What a random program does in each of three worlds: the same steps, and some calls more or less."""
    acts = [(chance.choice(["call", "tell", "say", "pay", "deep"]), n) for n in range(chance.randint(2, 7))]
    worlds = []
    for _ in range(3):
        worlds.append([act for act in acts if act[0] != "call" or chance.random() < 0.7])
        if chance.random() < 0.4:
            worlds[-1].insert(chance.randint(0, len(worlds[-1])), ("call", 9))
    return worlds


def live(acts, world, cut_at=None):
    said, results = "", []
    for at, (act, number) in enumerate(acts):
        if at == cut_at:
            raise KeyError("cut")
        if act == "call":
            said = str(LLM.call(f"{number} in world {world if number % 2 else 'any'}"))
        elif act == "pay":
            pay("a gift")
        else:
            results.append(deep(number) if act == "deep" else tell(number if act == "tell" else said))
    return [*results, said]


def test_random_programs_that_differ_in_each_life_end_as_if_they_had_lived_once():
    for seed in range(60):
        PAID.clear()
        chance, setting = random.Random(seed), CheckpointConfig(location="here", provider=InMemoryProvider())
        worlds, lives = worlds_of(chance), [chance.randrange(3) for _ in range(chance.randint(2, 4))]
        cuts = [*(chance.randint(1, 6) for _ in lives[1:]), None]

        @flow(checkpoint=setting)
        def program():
            return live(worlds[lives[0]], lives.pop(0), cuts.pop(0))  # noqa: B023 - called in this round of the loop

        result = None
        while result is None:
            last = lives[0]
            try:
                result = program.kickoff(run_id="r")
            except KeyError:
                continue
        once = flow(lambda: live(worlds[last], last))  # noqa: B023
        assert len(PAID) <= max(sum(act == "pay" for act, _ in acts) for acts in worlds), f"seed {seed}"
        assert result == once.kickoff(), f"seed {seed}"
