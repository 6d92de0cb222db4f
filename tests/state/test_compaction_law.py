"""What a compaction leaves of a run tells the same and goes on to the same, whatever the run has been through.

Programs of every kind are kicked off, killed, kicked off again, and between their lives forked, edited, rewound, labelled,
cancelled and answered. The law is looked at after any of their commits. Then the whole run and the compacted one are resumed,
by the code as it was and by changed code: both make the same calls.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from typing import Any

import grove
import pytest

from crewlite import CheckpointConfig, History, event_bus
from crewlite.errors import CrewliteError, Suspended
from crewlite.events import BaseEvent
from tests.cuts import RUN, Kept
from tests.soak import SEED, in_time
from tests.state import compaction_law as law
from tests.state.compaction_programs import LIVES, PROGRAMS, RESUMED, Program
from tests.state.random_histories import Program as AnyHistory, World

EVENTS = ["task_completed", "llm_call_completed", "tool_usage_started", "step_completed", "method_execution_finished"]


@pytest.fixture(autouse=True)
def _quiet(caplog):
    """Each failure that is raised again says so in the log."""
    caplog.set_level(logging.CRITICAL, "crewlite")
    grove.outside = int


def setting(provider: Kept, **fields: Any) -> CheckpointConfig:
    return CheckpointConfig(location="here", provider=provider, on_events=EVENTS, **fields)


def life(program: Program, provider: Kept, number: int, ref: str, **fields: Any) -> tuple[Any, Counter[str]]:
    """What a kickoff of a branch comes to, and what it begins."""
    begun = Counter[str]()

    def begins(event: BaseEvent) -> bool:
        return event.type.endswith("_started") and event.address is not None

    where = {"run_id": RUN} if ref == f"{RUN}/main" else {"from_checkpoint": setting(provider, restore_from=ref)}
    with event_bus.scoped():
        event_bus.on(BaseEvent, lambda source, event: begins(event) and begun.update([event.address]))
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
        match dice.choice(["fork", "rewind", "label", "cancel", "answer", "ahead", "rerun", "edit", "inputs"]):
            case "fork":
                history.fork(ref, allow_effects=True)
            case "inputs":
                history.fork(ref, inputs=dict.fromkeys(run.inputs, "winds"), allow_effects=True)
            case "edit" if done:
                history.fork(run.ref, edits={dice.choice(done): "edited"}, allow_effects=True)
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
    for number in range(LIVES):
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


RACES = 60
"""How often changed code is resumed to find the same: it may wait or refuse, as one of its steps beside another is faster."""


def look_at(provider: Kept, dice: random.Random, looks: int, program: Program | None = None) -> None:
    """Look at the law after some commits, also whether the program goes on to the same."""
    for at in dice.sample(range(1, len(provider.commits) + 1), min(looks, len(provider.commits))):
        last = provider.commits[at - 1]
        for way, both in law.hold(provider.cut(at), last.run_id, last.branch):
            for number in RESUMED if program else ():
                whole, then = both()
                wanted, found = (resumed(program, one, number, f"{RUN}/{last.branch}") for one in (whole, then))
                left = RACES if number > LIVES else 0
                while found != wanted and left:
                    wanted, left = resumed(program, both()[0], number, f"{RUN}/{last.branch}"), left - 1
                if "TooManyCalls" not in str(wanted):  # which of them are made depends on which method is faster
                    assert found == wanted, f"after commit {at}, {way}, life {number}: {found}, not {wanted}"


def resumed(program: Program, provider: Kept, number: int, ref: str) -> tuple[Any, Any]:
    """What a kickoff comes to, and what it begins. Of changed code, each step counts once: an answer to a question that was
    left out makes a kickoff that waits look once more.
    """
    came, begun = life(program, provider, number, ref)
    return came, {*begun} if number > LIVES else begun


class InMemory(AnyHistory):
    """Any history whose commits are kept, so nothing is deleted."""

    VERBS = tuple(verb for verb in AnyHistory.VERBS if verb not in (AnyHistory.move, AnyHistory.delete))

    def __init__(self, seed, tmp_path):
        super().__init__(seed, tmp_path)
        self.worlds = [World(Kept(), "here")]


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
