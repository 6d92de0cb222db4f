"""Which methods of a flow run again in a fork: those behind an edited or repeated one, and no others."""

from __future__ import annotations

import pytest

from crewlite import event_bus
from crewlite.events import MethodExecutionStartedEvent
from crewlite.flow import Flow, and_, listen, or_, router, start
from tests.cuts import RUN


def _ran(flow) -> tuple[set[str], object]:
    """The methods that a fork runs, as its preview has foreseen, and its result."""
    foreseen = {one.address for one in flow.preview() if one.verdict == "runs" and one.kind == "method"}
    begun = set()
    with event_bus.scoped():
        event_bus.on(MethodExecutionStartedEvent, lambda source, event: begun.add(event.address))
        result = flow.kickoff()
    assert foreseen == begun
    return {at.removeprefix("method:").partition("@")[0] for at in begun}, result


@pytest.mark.parametrize("counts", [True, False], ids=["with state", "without"])
@pytest.mark.parametrize(
    ("changed", "given"),
    [
        ({"edits": {"method:a": "X"}}, "b"),
        ({"edits": {"method:b": "X"}}, "X"),
        ({"rerun": ["method:a"]}, "a"),
        ({"rerun": ["method:b"]}, "b"),
    ],
)
def test_a_method_behind_several_runs_again_whichever_of_them_is_changed(memory, changed, given, counts):
    class Plan(Flow):
        checkpoint = memory()
        max_concurrency = 1

        @start()
        def a(self):
            if counts:
                self.state["a"] = 1
            return "a"

        @start()
        def b(self):
            return "b"

        @start()
        def other(self): ...

        @listen(and_(a, b))
        def c(self, given):
            return given

        @listen(and_(or_(and_(c, other), and_(a, c)), b))
        def d(self, given):
            return given

        @listen(other)
        def e(self): ...

    plan = Plan()
    plan.kickoff(run_id=RUN)
    repeated = {at.removeprefix("method:") for at in changed.get("rerun", ())}
    assert _ran(plan.fork(RUN, **changed)) == ({"c", "d"} | repeated, given)


def test_of_methods_joined_first_with_first_only_those_behind_a_changed_one_run_again(memory):
    class Plan(Flow):
        checkpoint = memory()

        @start()
        def begin(self): ...

        @router(or_(begin, "again"))
        def turn(self):
            self.state["turns"] = self.state.get("turns", 0) + 1
            return "again" if self.state["turns"] < 3 else "enough"

        @listen("again")
        def one(self): ...

        @listen("again")
        def two(self): ...

        @listen(and_(one, two))
        def joined(self): ...

    plan = Plan()
    plan.kickoff(run_id=RUN)
    assert _ran(plan.fork(RUN, edits={"method:one@again": 1}))[0] == {"joined"}
    second = plan.fork(RUN, rerun=["method:two@again#2"], branch="second")
    begun = [one.address for one in second.preview() if one.verdict == "runs" and one.kind == "method"]
    assert begun == ["method:two@again#2", "method:joined@one&two#2"]
