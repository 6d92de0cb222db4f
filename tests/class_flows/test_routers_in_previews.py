"""Where a router runs again, nobody knows its label: what hangs on it, a preview says with an if."""

import itertools

import pytest

from crewlite import event_bus
from crewlite.events import MethodExecutionStartedEvent
from crewlite.flow import Flow, and_, listen, or_, router, start
from tests.cuts import RUN

SAME = "if method:judge@write{} returns the same label as before"
OTHER = "if method:judge@write{} returns another label than before"


@pytest.fixture
def flow_of(memory):
    """A flow of which `judge` returns these labels, one after the other, in all its runs."""
    config = memory()

    def make(*labels):
        given = iter(labels)

        class Plan(Flow):
            checkpoint = config

            @start()
            def plan(self): ...

            @start()
            def beside(self): ...

            @listen(or_(plan, "again"))
            def write(self): ...

            @router(write, emit=["again", "good", "bad"])
            def judge(self):
                return next(given)

            @listen("good")
            def publish(self): ...

            @listen("bad")
            def drop(self): ...

            @listen(and_(publish, beside))
            def tell(self): ...

        return Plan()

    return make


def _told(flow):
    return {
        one.address.removeprefix("method:"): (one.verdict, one.why) for one in flow.preview() if one.kind == "method"
    }


def test_what_a_label_starts_may_run_and_what_comes_before_it_runs(flow_of):
    flow_of("again", "good").kickoff(run_id=RUN)
    told = _told(flow_of().fork(RUN, edits={"method:plan": "X"}))
    assert told["beside"] == ("reused", "is recorded")
    assert told["write@plan|again"][0] == told["judge@write"][0] == "runs"
    assert told["write@plan|again#2"] == told["judge@write#2"] == ("may run", SAME.format(""))
    assert told["publish@good"] == told["tell@publish&beside"] == ("may run", SAME.format("#2"))


def test_what_no_label_starts_any_more_may_run_too(flow_of):
    flow_of("again", "good").kickoff(run_id=RUN)
    flow_of().fork(RUN, edits={"method:judge@write": "good"}, branch="first").kickoff()
    told = _told(flow_of().fork(f"{RUN}/first", rerun=["method:judge@write"]))
    assert told["judge@write"] == ("runs", "is to run again")
    assert told["publish@good"] == told["tell@publish&beside"] == ("may run", SAME.format(""))
    assert told["write@plan|again#2"] == told["judge@write#2"] == ("may run", OTHER.format(""))
    sure = _told(flow_of().fork(RUN, edits={"method:judge@write": "good"}))
    assert sure["write@plan|again#2"] == ("dropped", "is not requested any more"), "the label is known"


def test_an_edit_that_hangs_on_a_label_is_told_to_do_so(flow_of):
    flow_of("good").kickoff(run_id=RUN)
    edit = {"method:publish@good": "X"}
    told = _told(flow_of().fork(RUN, edits=edit, rerun=["method:judge@write"]))
    assert told["publish@good"] == ("reused", f"was edited; is requested {SAME.format('')}")
    flow_of("bad").fork(RUN, edits={"method:judge@write": "bad"}, branch="bad").kickoff()
    told = _told(flow_of().fork(f"{RUN}/bad", edits=edit, rerun=["method:judge@write"]))
    unused = f"was edited; is requested {OTHER.format('')}, else kickoff will raise ChangeUnused"
    assert told["publish@good"] == ("dropped", unused)
    assert told["drop@bad"] == ("may run", SAME.format(""))


@pytest.mark.parametrize("labels", [*itertools.product(["again", "good", "bad"], ["good", "bad"])], ids=str)
@pytest.mark.parametrize("changed", [{"rerun": ["method:judge@write"]}, {"edits": {"method:plan": "X"}}], ids=str)
def test_whichever_label_comes_what_runs_was_foreseen(flow_of, labels, changed):
    flow_of("again", "good").kickoff(run_id=RUN)
    fork = flow_of(*labels).fork(RUN, **changed)
    told, began = _told(fork), set()
    with event_bus.scoped():
        event_bus.on(MethodExecutionStartedEvent, lambda source, event: began.add(event.address))
        fork.kickoff()
    began = {at.removeprefix("method:") for at in began}
    assert {at for at, (verdict, _) in told.items() if verdict == "runs"} <= began
    assert began & told.keys() <= {at for at, (verdict, _) in told.items() if "run" in verdict}
