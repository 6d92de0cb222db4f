"""In random flows whose routers may return any label, each fork of a fork runs what its preview has foreseen."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, given, settings, strategies as st

from crewlite import CheckpointConfig, History, event_bus
from crewlite.errors import ChangeUnused
from crewlite.events import MethodExecutionStartedEvent
from crewlite.flow import Flow, and_, listen, or_, router, start
from crewlite.state import InMemoryProvider
from tests.cuts import RUN


def _flow_of(chance: random.Random) -> tuple[type[Flow[Any]], set[str]]:
    """A flow, and the names of its routers. One router may lead back to a method before it, twice."""
    names, routers, conditions = [f"m{at}" for at in range(chance.randint(3, 8))], list[str](), dict[str, Any]()
    for at, name in enumerate(names):
        heard = [part for one in names[:at] for part in ([f"{one}:x", f"{one}:y"] if one in routers else [one])]
        if not heard or chance.random() < 0.2:
            continue
        parts = chance.sample(heard, min(len(heard), chance.choice([1, 1, 2, 3])))
        conditions[name] = parts[0] if len(parts) == 1 else chance.choice([and_, or_])(*parts)
        if chance.random() < 0.35:
            routers.append(name)
    turning = routers[-1] if routers and chance.random() < 0.4 else None
    if turning:
        to = chance.choice([name for name in conditions if name <= turning])
        conditions[to] = or_(conditions[to], f"{turning}:back")

    def method(name: str) -> Any:
        def work(self, given=None):
            self.state[name] = self.state.get(name, 0) + 1
            more = ["back"] if name == turning and self.state[name] < 3 else []
            return f"{name}:{chance.choice(['x', 'y', *more])}" if name in routers else chance.random()

        work.__name__ = name
        if name in routers:
            return router(conditions[name], emit=[f"{name}:{label}" for label in ("x", "y", "back")])(work)
        return listen(conditions[name])(work) if name in conditions else start()(work)

    return type("Random", (Flow,), {name: method(name) for name in names}), set(routers)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_what_runs_in_forks_of_forks_was_foreseen(seed):
    chance = random.Random(seed)
    cls, routers = _flow_of(chance)
    plan, ref = cls(checkpoint=CheckpointConfig(location="here", provider=InMemoryProvider())), RUN
    plan.kickoff(run_id=RUN)
    for number in range(4):
        with History("here", plan.checkpoint.provider) as history:
            methods = [one.address for one in history.run(ref).steps if one.kind == "method"]
        chosen = chance.sample(methods, min(len(methods), chance.choice([0, 1, 1, 2])))
        rerun = [at for at in chosen if chance.random() < 0.4]
        names = {at: at.removeprefix("method:").partition("@")[0].partition("#")[0] for at in chosen}
        edits = {
            at: f"{name}:{chance.choice('xy')}" if name in routers else number
            for at, name in names.items()
            if at not in rerun
        }
        inputs = {"topic": number} if chance.random() < 0.2 else None
        fork = plan.fork(ref, branch=f"b{number}", edits=edits, rerun=rerun, inputs=inputs)
        told, began = {one.address: one.verdict for one in fork.preview() if one.kind == "method"}, set()
        with event_bus.scoped():
            event_bus.on(MethodExecutionStartedEvent, lambda source, event, began=began: began.add(event.address))
            try:
                fork.kickoff()
            except ChangeUnused:
                return
        assert {at for at, verdict in told.items() if verdict == "runs"} <= began
        assert began & told.keys() <= {at for at, verdict in told.items() if "run" in verdict}
        ref = f"{RUN}/b{number}"
