"""Whoever comes between two steps of whatever is done: nothing is lost, nothing is paid twice, everything is told."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from difflib import SequenceMatcher

import pytest
from interleavings.acts import ACTS, INPUTS, pairs
from interleavings.explorer import Explorer, explore
from interleavings.scenes import crew, traced
from test_crashes import run

from crewlite import event_bus
from crewlite.errors import CrewliteError
from crewlite.events import BaseEvent, CheckpointStartedEvent
from crewlite.state import InMemoryProvider
from crewlite.state.format.checkpoints import event_fields
from crewlite.state.journal.journal import Journal
from crewlite.state.providers import Commit
from crewlite.testing import Interleaved
from tests.parts import PROVIDERS
from tests.soak import SEED, in_time

places = itertools.count()
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="the explorer forks; Windows cannot")


@pytest.fixture
def fresh(request, tmp_path):
    """A maker of locations where nothing was ever stored."""
    kind, count = request.param, itertools.count()
    return lambda: (PROVIDERS[kind](), str(tmp_path / f"store{next(count)}{'.db' if kind == 'sqlite' else ''}"))


# ---- in one process: every verb, every act, before every verb of the store


@pytest.mark.parametrize(("fresh", "trials"), [("memory", 40), ("json", 10), ("sqlite", 10)], indirect=["fresh"])
def test_whoever_comes_between_two_verbs_of_a_store_finds_and_leaves_all_in_order(fresh, trials):
    found = explore(fresh, trials=trials)
    print(found)
    assert found.trials == trials
    assert not found.violations


@pytest.mark.soak
@pytest.mark.parametrize("fresh", PROVIDERS, indirect=True)
def test_thousands_of_acts_before_verbs_of_the_store(fresh, request):
    found = explore(fresh, trials=in_time(2000), seed=SEED)
    print(f"\n{request.node.callspec.id}, seed {SEED}: {found}")
    assert not found.violations


def same_positions(explorers, scene, verb):
    """Where a verb can be interrupted with all providers, by provider: before the same call of the store.

    A store that searches its entries is read less often than one that does not.
    """
    calls = {kind: explorer.calls(scene, verb) for kind, explorer in explorers.items()}
    found = []
    for kind, its in calls.items():
        blocks = SequenceMatcher(None, calls["memory"], its, autojunk=False).get_matching_blocks()
        found.append({a + n: (kind, b + n + 1) for a, b, size in blocks for n in range(size)})
    return [dict(one[at] for one in found) for at in range(len(calls["memory"])) if all(at in one for one in found)]


def explorers_of(tmp_path):
    return {
        kind: Explorer(
            lambda kind=kind: (PROVIDERS[kind](), str(tmp_path / f"{kind}{next(places)}{'.db' * (kind == 'sqlite')}"))
        )
        for kind in PROVIDERS
    }


def alike(tmp_path, chance, count):
    """Trials of which the providers tell different things."""
    explorers = explorers_of(tmp_path)
    chosen = [pair for pair in pairs() if pair[1] not in ("doctor", "repair")]  # each provider has a doctor of its own
    told = {}
    for scene, verb, act in chance.sample(chosen, count):
        place = chance.random()
        # chance may part a write in two, or have an answer come before a run pauses for it
        for again in [explorers, *(explorers_of(tmp_path) for _ in range(5))]:
            at, found = same_positions(again, scene, verb), {}
            at = at[int(place * len(at))]
            for kind, explorer in again.items():
                explorer.trial(scene, verb, act, at[kind])
                found[kind] = explorer.last
            if len(set(found.values())) == 1:
                break
        else:
            told[f"{scene}: {verb}, {act} before {at}"] = found
    return told


def test_all_providers_tell_the_same_of_the_same_interruption(tmp_path):
    assert alike(tmp_path, random.Random(1), 12) == {}


def test_a_position_is_before_the_same_call_of_the_store_with_all_providers(tmp_path):
    explorers = explorers_of(tmp_path)
    calls = {kind: explorer.calls("cut", "fork.place") for kind, explorer in explorers.items()}
    assert calls["memory"] != calls["json"], "memory is read once more"
    positions = same_positions(explorers, "cut", "fork.place")
    assert len(positions) == len(calls["json"])
    assert all(len({calls[kind][at - 1] for kind, at in one.items()}) == 1 for one in positions)


@pytest.mark.soak
def test_all_providers_tell_the_same_of_hundreds_of_interruptions(tmp_path):
    print(f"\nseed {SEED}")
    assert alike(tmp_path, random.Random(SEED), in_time(300)) == {}


# ---- between processes: every verb, every act, before everything that is done to the disk


@forks
@pytest.mark.parametrize("provider", ["json", "sqlite"])
def test_whatever_another_process_does_before_any_step_on_the_disk_all_is_in_order(provider, tmp_path):
    code, found = run("interleave.py", "--provider", provider, "--directory", tmp_path, "--trials", 8)
    print(found)
    assert found["violations"] == {}
    assert code == 0
    assert found["trials"] == 8


@forks
@pytest.mark.parametrize("which", [("state", "--trials", 6), ("back",)], ids=["state", "back"])
def test_a_doctor_passes_over_a_run_that_is_deleted_while_it_looks(which, tmp_path):
    pair = ("--verb", "repair", "--act", "delete", "--scene", *which)
    code, found = run("interleave.py", "--provider", "json", "--directory", tmp_path, *pair)
    assert found["violations"] == {}
    assert code == 0


@forks
def test_a_label_for_a_checkpoint_that_the_run_drops_meanwhile_is_refused(tmp_path):
    pair = ("--verb", "label", "--act", "the run goes on", "--scene", "cut")
    code, found = run("interleave.py", "--provider", "json", "--directory", tmp_path, *pair)
    assert found["violations"] == {}
    assert code == 0


@forks
@pytest.mark.soak
@pytest.mark.parametrize("provider", ["json", "sqlite"])
def test_thousands_of_acts_of_another_process_before_steps_on_the_disk(provider, tmp_path):
    options = ("--directory", tmp_path, "--seconds", in_time(600), "--seed", SEED)
    code, found = run("interleave.py", "--provider", provider, *options)
    print(f"\nseed {SEED}: {found}")
    assert found["trials"] > 0
    assert found["violations"] == {}
    assert code == 0


# ---- what is planted is found


class Accepting:
    """A provider whose stores put whatever they are given in the place of a journal."""

    name = "accepting"

    def __init__(self):
        self._inner = InMemoryProvider()

    def open(self, location):
        return AcceptingStore(self._inner.open(location))


class AcceptingStore:
    def __init__(self, inner):
        self._inner, self.location = inner, inner.location

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def rewrite(self, run_id, branch, own, entries):
        held = {info.branch: self.read(run_id, info.branch) for info in reversed(self.branches(run_id))}
        self.remove(run_id, {name: (found[-1].seq, found[-1].sum) for name, found in held.items()})
        for name, found in (held | {branch: entries}).items():
            base = found[0].commit["run"].get("base")
            after = (base["seq"], base["sum"]) if base else (0, "")
            self.append([Commit(run_id, name, *after, tuple(found))])


def accepting():
    provider, count = Accepting(), itertools.count()
    return lambda: (provider, f"store-{next(count)}")


@pytest.mark.parametrize("act", ["step", "finish"])
def test_a_store_that_rewrites_a_journal_which_has_moved_on_is_found(act):
    found = explore(accepting(), chosen=[("cut", "prune", act)])
    assert any(text.startswith("lost: task:t2 of r/main, which was acknowledged") for text in found.violations), found


class Hasty(Journal):
    """A journal that announces a checkpoint between numbering and sealing it."""

    def commit(self, parts, done, loop=None, *, behind=False):
        if self.queue and parts.get("place"):
            self.emit(CheckpointStartedEvent, **event_fields(parts["place"]))
        return super().commit(parts, done, loop, behind=behind)


@pytest.mark.parametrize("fresh", PROVIDERS, indirect=True)
def test_a_journal_that_announces_a_checkpoint_before_it_is_sealed_is_found(fresh, monkeypatch):
    acted = acting("checkpoint_started", "checkpoint", "sync")
    assert Explorer(fresh).heard("cut", "resume", "checkpoint", acted) == []
    monkeypatch.setattr("crewlite.runtime.kickoffs.engine.Journal", Hasty)
    assert Explorer(fresh).heard("cut", "resume", "checkpoint", acted)


# ---- handlers

BY_HAND = {
    "checkpoint": lambda state: state.checkpoint(),
    "snapshot": lambda state: state.snapshot(),
    "restore": lambda state: state.restore(state.snapshot()),
    "flush": lambda state: state.flush(),
    "checkpoints": lambda state: state.checkpoints(),
}
BY_HISTORY = (
    *("fork", "fork a place", "rewind", "label", "prune", "prune old", "delete", "cancel"),
    *("repair", "list", "import", "finish"),
)
HEARD = (
    "crew_kickoff_started task_started agent_execution_started llm_call_started llm_call_completed "
    "agent_execution_completed task_completed checkpoint_started checkpoint_completed crew_kickoff_completed"
).split()


def acting(event_type, act, mode):
    """A kickoff with a handler that acts, at the first event of a type, on the run that it hears of."""

    def do(site):
        done, states = [], []

        def due(event, state):
            states.extend([state] if state is not None else [])
            if event.type != event_type or event.run_id != "r" or done or not (states or act not in BY_HAND):
                return False
            done.append(event)
            return True

        def do_act():
            try:
                BY_HAND[act](states[-1]) if act in BY_HAND else ACTS[act][1](site)
            except CrewliteError:
                pass  # told so

        def handler(source, event, state):
            if due(event, state):
                do_act()

        async def async_handler(source, event, state):
            if due(event, state):
                await asyncio.sleep(0)
                do_act()

        with event_bus.on(BaseEvent, handler if mode == "sync" else async_handler), traced(site):
            result = crew(site, on_events=["task_completed", "llm_call_completed"], max_checkpoints=2).kickoff(
                INPUTS, run_id="r"
            )
        return {"raw": [output.raw for output in result.tasks_output], "durability": result.durability}

    return do


def handled(fresh, mode, chosen):
    explorer, broken = Explorer(fresh), {}
    for event, act in chosen:
        for text in explorer.heard("cut", "resume", act, acting(event, act, mode)):
            broken.setdefault(text, []).append(f"{act} at {event}")
    return broken


EVERY = list(itertools.product(HEARD, (*BY_HAND, *BY_HISTORY)))


@pytest.mark.parametrize("fresh", PROVIDERS, indirect=True)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_whatever_a_handler_does_at_whatever_event_the_run_is_whole_or_told_why_not(fresh, mode):
    assert handled(fresh, mode, random.Random(mode).sample(EVERY, 8)) == {}


@pytest.mark.soak
@pytest.mark.parametrize("fresh", PROVIDERS, indirect=True)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_every_verb_of_a_handler_at_every_event(fresh, mode, request):
    broken = handled(fresh, mode, EVERY)
    print(f"\n{request.node.callspec.id}: {len(EVERY)} verbs at events: {len(broken)} violations")
    assert broken == {}


# ---- the kit


def test_an_act_happens_once_right_before_the_verb_that_is_named():
    kept, order = InMemoryProvider(), []
    beside = Interleaved(kept, at=2, act=lambda: order.append("act"))
    store = beside.open("here")
    for _ in range(3):
        order.append(store.branches())
    assert order == [[], "act", [], []]
    assert beside.log == ["branches"] * 3


def test_an_act_may_happen_between_a_look_at_shared_data_and_their_exchange():
    kept = InMemoryProvider()
    other = kept.open("here").results
    beside = Interleaved(kept, at=2, act=lambda: other.remember("key", b"theirs"))
    results = beside.open("here").results
    assert not results.exchange("key", results.recall("key"), b"ours")
    assert (results.recall("key"), beside.log) == (b"theirs", ["recall", "exchange", "recall"])
