"""What a compaction leaves of a run tells the same and goes on to the same, whatever the run has been through.

Programs of every kind are kicked off, killed, kicked off again, and between their lives forked, edited, rewound, labelled,
cancelled and answered. The law is looked at after any of their commits.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grove
import pytest
from hypothesis import Phase, given, seed, settings, strategies as st

from crewlite import Agent, CheckpointConfig, Crew, FailurePolicy, History, Task, ToolCall, event_bus, tool
from crewlite.errors import CrewliteError, InDoubt, Suspended
from crewlite.events import BaseEvent, ToolUsageFinishedEvent
from crewlite.flow import ask, flow
from crewlite.recovery import suspend
from crewlite.testing import ScriptedLLM
from tests.class_flows import graphs
from tests.crews import CREWS, KICKOFFS
from tests.cuts import RUN, Kept
from tests.flow import random_calls as calls, state_programs as values
from tests.parts import Stop
from tests.recovery import tills
from tests.soak import SEED, in_time
from tests.state import compaction_law as law
from tests.state.random_histories import Program as AnyHistory, World

EVENTS = ["task_completed", "llm_call_completed", "tool_usage_started", "step_completed", "method_execution_finished"]


@pytest.fixture(autouse=True)
def _quiet(caplog):
    """Each failure that is raised again says so in the log."""
    caplog.set_level(logging.CRITICAL, "crewlite")
    grove.outside = int


@dataclass
class Program:
    """What is kicked off, life after life: `kickoff(setting, life, **where)`. The last life is that of every resume."""

    kickoff: Callable[..., Any]
    answer: Callable[[str], Any] = len
    lives: int = 4


def setting(provider: Kept, **fields: Any) -> CheckpointConfig:
    return CheckpointConfig(location="here", provider=provider, on_events=EVENTS, **fields)


def life(program: Program, provider: Kept, number: int, ref: str, **fields: Any) -> tuple[Any, Counter[str]]:
    """What a kickoff of a branch comes to, and what it begins."""
    begun = Counter[str]()
    where = {"run_id": RUN} if ref == f"{RUN}/main" else {"from_checkpoint": setting(provider, restore_from=ref)}
    with event_bus.scoped():
        event_bus.on(BaseEvent, lambda source, event: begun.update([event.address] * event.type.endswith("_started")))
        try:
            found = program.kickoff(setting(provider, **fields), number, **where)
        except Suspended as waits:
            return waits.waiting, begun
        except Exception as error:  # of any program
            return f"{type(error).__name__}: {error}", begun
    return getattr(found, "raw", found), begun


def disturb(provider: Kept, program: Program, dice: random.Random) -> None:
    """Do something to a branch that nobody runs."""
    with History("here", provider) as history:
        run = history.run(dice.choice(history.branches(RUN)))
        places = run.checkpoints(abandoned=True)
        ref = f"{run.ref}@{dice.choice(places).id}" if places and dice.random() < 0.7 else run.ref
        done = [
            step.address for step in run.steps if step.status == "finished" and step.kind in ("step", "task", "llm")
        ]
        match dice.choice(["fork", "rewind", "label", "cancel", "answer", "ahead", "rerun"]):
            case "fork":
                history.fork(ref, allow_effects=True)
            case "rerun" if done:
                history.fork(run.ref, rerun=[dice.choice(done)], allow_effects=True)
            case "rewind" if places:
                history.rewind(ref, allow_effects=True)
            case "label" if places:
                history.label(ref, f"label{len(provider.commits)}")
            case "cancel":
                history.cancel(run.ref)
            case "answer":
                for asked in run.waiting:
                    history.answer(run.ref, asked.address, program.answer(asked.address))
            case "ahead":
                history.answer(run.ref, "human:nobody", "asks this")


def lived(program: Program, dice: random.Random) -> Kept:
    """All commits of a run that was kicked off, killed, disturbed and kicked off again."""
    provider = Kept()
    for number in range(program.lives):
        branches = []
        if provider.commits:
            with History("here", provider) as history:
                branches = [f"{RUN}/{info.branch}" for info in history.branches(RUN)]
        limit = {"max_checkpoints": dice.choice([1, 2])} if dice.random() < 0.2 else {}
        life(program, provider, number, dice.choice(branches or [f"{RUN}/main"]), **limit)
        if provider.commits and dice.random() < 0.5:
            provider = provider.cut(dice.randint(len(provider.commits) // 2, len(provider.commits)))
        for _ in range(dice.randint(0, 2) if provider.commits else 0):
            try:
                disturb(provider, program, dice)
            except (CrewliteError, ValueError):  # it is refused
                continue
    return provider


def look_at(provider: Kept, dice: random.Random, looks: int, program: Program | None = None) -> None:
    """Look at the law after some commits, also whether the program goes on to the same."""
    for at in dice.sample(range(1, len(provider.commits) + 1), min(looks, len(provider.commits))):
        last = provider.commits[at - 1]
        for way, whole, then in law.hold(provider.cut(at), last.run_id, last.branch):
            if program is None:
                continue
            wanted, found = (life(program, one, program.lives, f"{RUN}/{last.branch}") for one in (whole, then))
            if "TooManyCalls" not in str(wanted):  # which of them are made depends on which method is faster
                assert found == wanted, f"after commit {at}, {way}: goes on to {found}, not {wanted}"


# Programs.


def tree(dice: random.Random) -> Program:
    """Steps in steps, failing, tried again, side by side, with questions to people."""
    grown, blocking = grove.planted(dice), dice.random() < 0.5

    def kickoff(config, number, **where):
        return grove.flow_of(config, blocking=blocking).kickoff(*[grown] * ("run_id" in where), **where)

    return Program(kickoff)


def till(dice: random.Random) -> Program:
    """Calls with effect="once", asked for in another order in each life."""
    made = dice.choice(tills.PROGRAMS)
    amounts = [tuple(dice.choices((1, 2, 3), k=dice.randint(1, 4))) for _ in range(4)]

    def kickoff(config, number, **where):
        config = config.model_copy(update={"on_drift": "rerun"})
        last = number >= 3
        for _ in range(9):
            try:
                return made(tills.Till(*amounts[min(number, 3)], ends=last), config).kickoff(**where)
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
        crew = Crew(tasks=tasks, checkpoint=config, failure_policy=policy, **more)
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
    made = drawn(values.programs, dice)

    def kickoff(config, number, **where):
        @flow(name="played", checkpoint=config)
        def whole(program):
            return values.body(program)

        return whole.kickoff(*[made] * ("run_id" in where), **where)

    return Program(kickoff)


PROGRAMS = [tree, till, other_calls, a_crew, office, methods, changes]


class InMemory(AnyHistory):
    """Any history whose commits are kept, so nothing is deleted."""

    VERBS = tuple(verb for verb in AnyHistory.VERBS if verb not in (AnyHistory.move, AnyHistory.delete))

    def __init__(self, seed, tmp_path):
        super().__init__(seed, tmp_path)
        self.worlds = [World(Kept(), "here")]


# The law.


def hold(seeds: range, looks: int) -> None:
    for number in seeds:
        dice, made = random.Random(number), PROGRAMS[number % len(PROGRAMS)]
        program = made(dice)
        try:
            look_at(lived(program, dice), dice, looks, program)
        except AssertionError as error:
            raise AssertionError(f"seed {number}, {made.__name__}: {error}") from error


def hold_in_histories(seeds: range, tmp_path: Any, *, operations: int, looks: int) -> None:
    for number in seeds:
        history = InMemory(number, tmp_path)
        history.play(operations)
        try:
            look_at(history.worlds[0].provider, random.Random(number), looks)
        except AssertionError as error:
            raise AssertionError(f"seed {number}: {error}") from error


def test_a_few_programs_are_the_same_after_a_compaction():
    hold(range(2 * len(PROGRAMS)), 2)


def test_a_few_histories_are_the_same_after_a_compaction(tmp_path):
    hold_in_histories(range(2), tmp_path, operations=8, looks=4)


@pytest.mark.soak
def test_many_programs_are_the_same_after_a_compaction():
    first = SEED * 100_000
    print(f"programs from seed {first} on")
    hold(range(first, first + in_time(200)), 6)


@pytest.mark.soak
def test_many_histories_are_the_same_after_a_compaction(tmp_path):
    first = SEED * 100_000
    print(f"histories from seed {first} on")
    hold_in_histories(range(first, first + in_time(100)), tmp_path, operations=20, looks=8)
