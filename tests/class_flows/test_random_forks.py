"""In random flows, forked again and again with random changes, each method rests on what it is behind."""

from __future__ import annotations

import itertools
import random
from typing import Any

from hypothesis import HealthCheck, given, settings, strategies as st

from crewlite import CheckpointConfig, History
from crewlite.flow import Flow, and_, listen, router, start
from crewlite.state import InMemoryProvider
from crewlite.state.run_history import RunHistory
from tests.cuts import RUN


class World:
    """What numbers the calls of methods, and cuts some of them."""

    def __init__(self) -> None:
        self.calls, self.left = itertools.count(1), None

    def call(self) -> int:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise ConnectionError("cut")
        return next(self.calls)


def _plan(chance: random.Random) -> tuple[dict[str, tuple[str, ...]], set[str]]:
    """For each method those that start it, () for a start; and which of them are routers."""
    names = [f"m{at}" for at in range(chance.randint(3, 7))]
    before = {name: chance.sample(names[:at], min(at, chance.choice([1, 1, 2, 3]))) for at, name in enumerate(names)}
    causes = {name: () if chance.random() < 0.15 else tuple(found) for name, found in before.items()}
    return causes, {name for name in names if causes[name] and chance.random() < 0.3}


def _flow_of(causes: dict[str, tuple[str, ...]], routers: set[str], world: World) -> type[Flow[Any]]:
    def method(name: str) -> Any:
        def work(self, given=None):
            call = world.call()
            saw = [self.state[cause][0] for cause in causes[name]]
            self.state[name] = call, saw, self.state.get("topic")
            return f"by {name}" if name in routers else call

        work.__name__ = name
        if not causes[name]:
            return start()(work)
        parts = [f"by {cause}" if cause in routers else cause for cause in causes[name]]
        condition = parts[0] if len(parts) == 1 else and_(*parts)
        return router(condition, emit=[f"by {name}"])(work) if name in routers else listen(condition)(work)

    return type("Random", (Flow,), {name: method(name) for name in causes})


def _changes(chance: random.Random, run: RunHistory, routers: set[str]) -> dict[str, Any]:
    edits, rerun = {}, []
    methods = [one.address for one in run.steps if one.kind == "method"]
    for address in chance.sample(methods, chance.choice([0, 1, 1, 2])):
        if chance.random() < 0.4:
            rerun.append(address)
        elif chance.random() < 0.4:  # as if the method had set this in the state
            edits[f"{address}.state.{_name(address)}"] = f"set {chance.random()}", [], None
        elif _name(address) not in routers:
            edits[address] = f"edited {address}"
    inputs = {"topic": f"topic {chance.random()}"} if chance.random() < 0.35 else None
    return {"edits": edits, "rerun": rerun, "inputs": inputs}


def _name(address: str) -> str:
    return address.removeprefix("method:").partition("@")[0]


def _rests_on_what_is_there(run: RunHistory, causes: dict[str, tuple[str, ...]]) -> None:
    values = run.values
    for one in run.steps:
        if one.kind == "method" and not one.edited:
            _, saw, topic = values[_name(one.address)]
            assert saw == [values[cause][0] for cause in causes[_name(one.address)]]
            assert topic == (run.inputs or {}).get("topic")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_in_forks_of_forks_each_method_rests_on_what_it_is_behind(seed):
    chance, world = random.Random(seed), World()
    causes, routers = _plan(chance)
    plan = _flow_of(causes, routers, world)(checkpoint=CheckpointConfig(location="here", provider=InMemoryProvider()))
    plan.kickoff(run_id=RUN)
    with History("here", plan.checkpoint.provider) as history:
        ref = RUN
        for number in range(4):
            base = history.run(ref)
            changed = _changes(chance, base, routers)
            fork = plan.fork(ref, branch=f"b{number}", **changed)
            foreseen = {one.address for one in fork.preview() if "run" in one.verdict and one.kind == "method"}
            for left in itertools.chain(itertools.repeat(chance.choice([1, 2, None]), 20), [None]):
                world.left = left
                try:
                    fork.kickoff()
                    break
                except ConnectionError:
                    continue
            ref = f"{RUN}/b{number}"
            _rests_on_what_is_there(history.run(ref), causes)
            before = {one.address: one.seq for one in base.steps if one.kind == "method"}
            now = {one.address: one.seq for one in history.run(ref).steps if one.kind == "method"}
            edited = {key.partition(".state.")[0] for key in changed["edits"]}
            assert foreseen == {at for at, seq in now.items() if before[at] != seq} - edited
