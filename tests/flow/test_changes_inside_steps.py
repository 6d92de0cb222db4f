"""A fork changes what stands inside a step: the change counts in each attempt, or the step says that it does not."""

import itertools

import pytest

from crewlite import CheckpointConfig, History
from crewlite.errors import ChangeUnused
from crewlite.flow import Flow, flow, listen, start, step
from crewlite.state import InMemoryProvider
from crewlite.state.providers.base import Commit
from tests import soak
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
        setting = CheckpointConfig(location="here", provider=kept.cut(at))
        assert made(setting).kickoff(from_checkpoint=f"{RUN}/x") == wanted


SENT = []
PLACES = ("beginning", "middle", "end", "inside")


@step(effect="once")
def send(what):
    SENT.append(what)
    return f"sent {what}"


@step
def weigh(what):
    price = buy(buy(f"{what}?"))
    _fail_at("inside")
    return price


@step(retries=4)
def deliver(what):
    _fail_at("beginning")
    weighed = weigh(send(what))
    _fail_at("middle")
    bill = buy(f"{weighed} bill")
    _fail_at("end")
    return f"{bill}!"


def _fail_at(place):
    if fails[-1:] == [place]:
        raise ConnectionError(fails.pop())


def _deliveries(setting):
    @flow(checkpoint=setting)
    def deliveries():
        return buy(deliver("tea"))

    return deliveries


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"edits": {"step:deliver/step:weigh/step:buy": "milk"}}, "milk bill!"),
        ({"edits": {"step:deliver/step:weigh": "milk"}}, "milk bill!"),
        ({"edits": {"step:deliver/step:buy": "milk"}}, "milk!"),
        ({"edits": {"step:deliver/step:send": "lost"}}, "lost? bill!"),
        ({"rerun": ["step:deliver/step:weigh"]}, "sent tea? bill!"),
    ],
)
@pytest.mark.parametrize("of_a_fork", [False, True])
@soak.every(8)
def test_a_change_holds_wherever_the_attempts_fail_and_the_run_is_killed(changes, wanted, of_a_fork, every):
    done = Kept()
    _deliveries(CheckpointConfig(location="here", provider=done)).kickoff(run_id=RUN)
    SENT.clear()
    for number, plan in enumerate([*itertools.permutations(PLACES, 1), *itertools.permutations(PLACES, 2)]):
        kept = Kept(done.commits)
        setting = CheckpointConfig(location="here", provider=kept)
        ref, fork = f"{RUN}/f", _deliveries(setting).fork(RUN, branch="f", **changes)
        if of_a_fork:
            ref, fork = f"{RUN}/f-2", _deliveries(setting).fork(ref, branch="f-2")
        begun = len(kept.commits)
        fails[:] = plan
        assert fork.kickoff() == wanted, plan
        for at in range(begun + number % every, len(kept.commits), every):
            cut = CheckpointConfig(location="here", provider=kept.cut(at))
            assert _deliveries(cut).kickoff(from_checkpoint=ref) == wanted, (plan, at - begun)
    assert SENT == []


def test_a_call_made_once_that_answered_a_later_attempt_is_not_made_again_by_the_next_one_around(memory):
    @step(retries=1)
    def charge(what):
        sent = send(what)
        _fail_at("inside")
        return sent

    @step(retries=1)
    def order():
        sent = charge(buy("tea"))
        _fail_at("end")
        return sent

    @flow(checkpoint=memory())
    def orders():
        return order()

    orders.kickoff(run_id=RUN)
    fork = orders.fork(RUN, edits={"step:order/step:buy": "milk"}, allow_effects=True)
    SENT.clear()
    fails[:] = ["end", "inside"]
    assert fork.kickoff() == "sent milk"
    assert SENT == ["milk"]


def test_the_next_attempt_does_anew_what_the_fork_has_done_in_the_failed_one(memory):
    answers = ["good"]

    @step
    def think():
        paid.append("thought")
        return answers.pop(0)

    @step(retries=2)
    def order():
        if (thought := think()) == "bad":
            raise ValueError(thought)
        return buy(thought)

    @flow(checkpoint=memory())
    def orders():
        return order()

    orders.kickoff(run_id=RUN)
    fork = orders.fork(RUN, branch="x", rerun=["step:order/step:think"], edits={"step:order/step:buy": "milk"})
    answers[:] = ["bad"] * 3
    with pytest.raises(ValueError):
        fork.kickoff()
    again = orders.fork(f"{RUN}/x")
    for each in (fork, again):
        answers[:] = ["bad", "bad", "good"]
        paid.clear()
        assert each.kickoff() == "milk"
        assert paid == ["thought"] * 3


def test_a_step_that_ran_again_in_an_attempt_that_failed_has_to_run_again_in_the_next_one():
    moods = []

    @step
    def mood():
        return moods.pop(0)

    @step(retries=2)
    def order():
        what = buy("tea")
        if mood() == "hungry":
            buy("cake")
            if fails:
                raise fails.pop()
        return what

    def orders_of(setting):
        @flow(checkpoint=setting)
        def orders():
            return order()

        return orders

    kept = Kept()
    setting = CheckpointConfig(location="here", provider=kept)
    moods[:] = ["hungry"]
    assert orders_of(setting).kickoff(run_id=RUN) == "tea"
    changes = {"edits": {"step:order/step:buy": "milk"}, "rerun": ["step:order/step:mood", "step:order/step:buy#2"]}
    fork = orders_of(setting).fork(RUN, branch="x", **changes)
    begun = len(kept.commits)
    moods[:], fails[:] = ["hungry", "full"], [ConnectionError()]
    with pytest.raises(ChangeUnused):
        fork.kickoff()
    for at in range(begun, len(kept.commits)):
        cut = CheckpointConfig(location="here", provider=kept.cut(at))
        if any(one.attempts for one in History("here", provider=cut.provider).run(f"{RUN}/x").steps):
            moods[:] = ["full"]
            with pytest.raises(ChangeUnused):
                orders_of(cut).kickoff(from_checkpoint=f"{RUN}/x")


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


@step
def pay(what):
    paid.append(f"pay {what}")
    return f"{what} paid"


def _pays(setting):
    @flow(retries=1)
    def order():
        bought = pay(buy("tea"))
        if fails:
            raise fails.pop()
        return bought

    @flow(checkpoint=setting)
    def orders():
        return order.kickoff()

    return orders


def test_a_preview_shows_what_the_next_attempt_does_anew():
    setting = CheckpointConfig(location="here", provider=InMemoryProvider())
    _pays(setting).kickoff(run_id=RUN)
    with History(setting.location, setting.provider) as history:
        history.fork(RUN, branch="x", edits={"flow:order/step:buy": "coffee"})
    fails.append(ValueError("no"))
    assert _pays(setting).kickoff(from_checkpoint=f"{RUN}/x") == "coffee paid"
    store = setting.provider.open(setting.location)
    main, entries = store.read(RUN, "main"), store.read(RUN, "x")
    base = entries[0].commit["run"]["base"]
    for at in range(1, len(entries)):
        provider = InMemoryProvider()
        commits = [(RUN, "main", 0, "", tuple(main)), (RUN, "x", base["seq"], base["sum"], tuple(entries[:at]))]
        for commit in commits:
            provider.open("cut").append([Commit(*commit)])
        again = _pays(CheckpointConfig(location="cut", provider=provider))
        running = [one.address for one in again.preview(from_checkpoint=f"{RUN}/x") if one.verdict == "runs"]
        paid.clear()
        assert again.kickoff(from_checkpoint=f"{RUN}/x") == "coffee paid"
        assert (running == ["flow:order/step:pay"]) is (paid == ["pay coffee"]), f"cut after commit {at}"


def test_an_error_says_how_many_steps_are_not_run_again_without_those_that_are_done_anew(on_disk):
    @step
    def order():
        bought = pay(buy("tea"))
        if fails:
            raise fails.pop()
        return bought

    @flow(checkpoint=on_disk())
    def orders():
        return order()

    orders.kickoff(run_id=RUN)
    forked = orders.fork(RUN, branch="x", edits={"step:order/step:buy": "coffee"})
    fails.append(ValueError("no"))
    with pytest.raises(ValueError, match="no") as caught:
        forked.kickoff()
    assert "Recorded: 1 finished step of run" in "".join(caught.value.__notes__)
    paid.clear()
    assert orders.kickoff(from_checkpoint=f"{RUN}/x") == "coffee paid"
    assert paid == ["pay coffee"]
