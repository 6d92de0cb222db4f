"""A fork changes what stands inside a step: the change counts in each attempt, or the step says that it does not."""

import pytest

from crewlite import CheckpointConfig
from crewlite.errors import ChangeUnused
from crewlite.flow import Flow, flow, listen, start, step
from crewlite.state import InMemoryProvider
from tests.cuts import RUN, Kept

paid, fails = [], []


@pytest.fixture(autouse=True)
def _nothing_paid():
    paid.clear()
    fails.clear()


@step
def buy(what):
    paid.append(what)
    return what


def _flow_of(setting):
    @step(retries=2)
    def order(what):
        if fails:
            raise fails.pop()
        return buy(what) + "!"

    @flow(checkpoint=setting)
    def orders():
        return buy(order("tea"))

    return orders


def _methods(setting):
    class Orders(Flow):
        checkpoint = setting

        @start(retries=2)
        def order(self):
            if fails:
                raise fails.pop()
            return buy("tea") + "!"

        @listen(order)
        def more(self, ordered):
            return buy(ordered)

    return Orders()


def _whole(setting):
    @flow(checkpoint=setting, retries=2)
    def orders():
        if fails:
            raise fails.pop()
        return buy(buy("tea") + "!")

    return orders


KINDS = pytest.mark.parametrize(
    ("made", "inside"),
    [(_flow_of, "step:order/step:buy"), (_methods, "method:order/step:buy"), (_whole, "step:buy")],
    ids=["step", "method", "flow"],
)


@KINDS
@pytest.mark.parametrize("change", ["edit", "rerun"])
def test_a_change_counts_though_the_attempt_fails_before_the_code_comes_to_it(made, inside, change):
    kept = Kept()
    setting = CheckpointConfig(location="here", provider=kept)
    made(setting).kickoff(run_id=RUN)
    changes = {"edits": {inside: "milk"}} if change == "edit" else {"rerun": [inside]}
    fork = made(setting).fork(RUN, branch="x", **changes)
    begun, wanted = len(kept.commits), "milk!" if change == "edit" else "tea!"
    paid.clear()
    fails[:] = [ConnectionError(), ConnectionError()]
    assert fork.kickoff() == wanted
    assert paid == (["milk!"] if change == "edit" else ["tea"])
    for at in range(begun, len(kept.commits)):  # killed after any commit, such as that of the first failure
        setting = CheckpointConfig(location="here", provider=InMemoryProvider())
        setting.provider.open("here").append(kept.commits[:at])
        assert made(setting).kickoff(from_checkpoint=f"{RUN}/x") == wanted


@pytest.mark.parametrize("change", [{"edits": {"step:order/step:buy#2": 5}}, {"rerun": ["step:order/step:buy#2"]}])
def test_a_step_that_does_not_come_to_a_change_inside_it_stops_the_run_before_the_next_is_paid(memory, change):
    many = [2]

    @step(retries=2)
    def order():
        return [buy(one) for one in range(many[0])]

    @flow(checkpoint=memory())
    def orders():
        try:
            return buy(len(order()))
        except LookupError:
            return buy("nothing")

    orders.kickoff(run_id=RUN)
    many[0] = 1
    fork = orders.fork(RUN, **change)
    paid.clear()
    for _ in range(2):
        with pytest.raises(ChangeUnused, match="'step:order/step:buy#2' was edited or marked to run again, but this"):
            fork.kickoff()
    assert paid == []
