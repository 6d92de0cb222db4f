"""A fork or a rewind that would make calls again that are declared effect="once" lists them, and wants to be told so."""

from __future__ import annotations

import contextlib

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, tool
from crewlite.errors import EffectsRepeat, InDoubt
from crewlite.flow import Flow, flow, listen, start, step
from crewlite.state import JsonProvider, SqliteProvider
from crewlite.testing import ScriptedLLM
from tests.parts import PROVIDERS
from tests.state.wrapped import ReadOnce


@pytest.fixture(params=PROVIDERS.values(), ids=PROVIDERS)
def store(request, tmp_path):
    return CheckpointConfig(location=tmp_path / "kept", provider=request.param())


def history_of(store):
    return History(store.location, store.provider)


paid = []


@tool(effect="once")
def pay(amount: int) -> str:
    """Pay."""
    paid.append(amount)
    return "paid"


def crew_of(store, *replies):
    agent = Agent(role="Clerk", goal="pay", llm=ScriptedLLM(list(replies)), tools=[pay])
    tasks = [Task(name=name, description=f"Do {name}", expected_output="x", agent=agent) for name in ("plan", "bill")]
    return Crew(tasks=tasks, checkpoint=store)


REPLIES = ("planned", ToolCall("pay", {"amount": 7}), "billed")


def test_what_would_be_paid_again_is_listed_and_not_paid_unless_that_is_allowed(store):
    paid.clear()
    crew = crew_of(store, *REPLIES, *REPLIES[1:])
    crew.kickoff(run_id="r")
    there = CheckpointConfig(restore_from="r@task:plan", location=store.location, provider=store.provider)
    with history_of(store) as history:
        digest = history.run("r").digest
        for act in (
            lambda: history.rewind("r@task:plan"),
            lambda: history.fork("r@task:plan"),
            lambda: history.fork("r", rerun=["task:bill"]),
            lambda: crew.fork(there),
        ):
            with pytest.raises(EffectsRepeat, match=r"task:bill/tool:pay .*7.*, made at .*allow_effects=True") as found:
                act()
            (call,) = found.value.effects
            assert (call.address, call.finished) == ("task:bill/tool:pay", True)
        assert history.run("r").digest == digest, "nothing was changed"
        history.fork("r", branch="at-the-head")
        history.fork("r", branch="edited", edits={"task:plan": "other"}, allow_effects=True)
        history.rewind("r@task:plan", allow_effects=True)
        assert history.rewind("r@task:plan").status == "unfinished", "it stands there already"
    crew.kickoff(run_id="r")
    assert paid == [7, 7]
    with history_of(store) as history:
        assert history.rewind("r@abandoned:1").status == "finished", "there, it is paid already"


def test_a_prune_forgets_no_call_that_must_not_be_made_twice(store):
    crew_of(store, *REPLIES).kickoff(run_id="r")
    with history_of(store) as history:
        for _ in range(2):
            history.prune(keep_last=2)
        assert not [one for one in history.run("r").steps if "pay" in one.address], "the details are gone"
        with pytest.raises(EffectsRepeat, match=r"tool:pay .*7.*, made at"):
            history.rewind("r@task:plan")


def test_a_step_of_a_flow_that_failed_is_in_doubt(store):
    @step(effect="once")
    def charge():
        raise ConnectionError("cut")

    @step
    def begin():
        return 1

    @step
    def tell(what):
        raise ValueError(what)

    @flow(checkpoint=store)
    def bill():
        begin()
        for work in (charge, lambda: tell(1), lambda: tell(2)):
            with contextlib.suppress(ConnectionError, ValueError):
                work()
        return tell(3)

    with pytest.raises(ValueError, match="3"):
        bill.kickoff(run_id="r")
    with history_of(store) as history:
        with pytest.raises(EffectsRepeat, match="step:charge, in doubt since") as found:
            history.rewind("r@step:begin")
        assert history.prune(keep_last=1).freed > 0
        with pytest.raises(EffectsRepeat) as pruned:
            history.rewind("r@step:begin")
        assert pruned.value.effects == found.value.effects
        assert history.rewind("r@step:begin", allow_effects=True).status == "unfinished"


@step(effect="once")
def charge(what):
    paid.append(what)
    return f"charged {what}"


@step
def noted(what):
    return what


def sale(store):
    @flow(checkpoint=store)
    def sell(what="tea", last="bye"):
        first = noted(what)
        charge(first)
        return noted(last)

    return sell


def calls_of(act):
    """Return the addresses of the calls for which a fork is refused; [] if it is not."""
    try:
        act()
    except EffectsRepeat as refused:
        return [call.address for call in refused.effects]
    return []


def test_calls_before_the_place_that_an_edit_or_other_inputs_make_again_are_listed_too(store):
    sell = sale(store)
    sell.kickoff("tea", run_id="s")
    with history_of(store) as history:
        fork = history.fork
        assert calls_of(lambda: fork("s", edits={"step:noted": "milk"})) == ["step:charge"]
        assert calls_of(lambda: fork("s", inputs={"what": "milk"})) == ["step:charge"]
        assert calls_of(lambda: fork("s", rerun=["step:noted"])) == ["step:charge"]
        assert calls_of(lambda: fork("s@step:noted", inputs={"what": "milk"})) == ["step:charge"]
        assert calls_of(lambda: fork("s", edits={"step:noted": "tea"}, branch="same")) == [], "nothing runs again"
        assert calls_of(lambda: fork("s", inputs={"what": "tea"}, branch="same-inputs")) == []
        assert calls_of(lambda: fork("s", edits={"step:noted#2": "ciao"}, branch="behind")) == []
        assert calls_of(lambda: fork("s", edits={"step:charge": "paid by cash"}, branch="itself")) == []
        fork("s", rerun=["step:charge"], branch="open", allow_effects=True)
        assert calls_of(lambda: fork("s/open")) == ["step:charge"], "it is to be made again there"


def test_a_call_that_was_taken_back_made_again_and_cut_is_asked_about_so_a_fork_is_not_refused(store):
    lives = [lambda: "charged", ConnectionResetError]

    @step(effect="once")
    def deliver():
        if (now := lives.pop(0)) is ConnectionResetError:
            raise now
        return now()

    @flow(checkpoint=store)
    def sell():
        return deliver()

    sell.kickoff(run_id="s")
    there = CheckpointConfig(restore_from="s", location=store.location, provider=store.provider)
    with pytest.raises(ConnectionResetError):
        sell.fork(there, rerun=["step:deliver"], branch="again", allow_effects=True).kickoff()
    with history_of(store) as history:
        assert calls_of(lambda: history.fork("s/again", branch="once-more")) == []
    with pytest.raises(InDoubt):
        sell.bound_to("s/once-more").kickoff()
    assert lives == []


def test_behind_an_edit_to_the_same_value_methods_run_again_so_their_calls_are_listed(store):
    prices = iter((7, 9))

    class Sale(Flow):
        checkpoint = store

        @start()
        def what(self):
            return "tea"

        @listen(what)
        def price(self):
            return next(prices)

        @listen(price)
        def sell(self, price):
            return charge(price)

    Sale().kickoff(run_id="s")
    paid.clear()
    there = CheckpointConfig(restore_from="s", location=store.location, provider=store.provider)
    again = {"edits": {"method:what": "tea"}}
    assert calls_of(lambda: Sale().fork(there, **again)) == ["method:sell@price/step:charge"]
    assert Sale().fork(there, **again, allow_effects=True).kickoff() == "charged 9"
    assert paid == [9]


@pytest.mark.parametrize("changes", [{"inputs": {"what": "milk"}}, {"edits": {"step:noted": "milk"}}])
def test_a_preview_lists_the_calls_that_would_be_made_again(store, changes):
    sell = sale(store)
    sell.kickoff(run_id="s")
    for more, wanted in ((changes, ["step:charge"]), ({"edits": {"step:noted#2": "ciao"}}, []), ({}, [])):
        foreseen = sell.fork("s", **more, allow_effects=True).preview()
        assert [call.address for call in foreseen.effects] == wanted
        assert ("again    step:charge, made at" in str(foreseen)) is bool(wanted)
    behind = sell.fork("s/main@step:noted", allow_effects=True)
    assert ["step:charge"] == [call.address for call in behind.preview().effects], "the run it is forked from made it"


def test_a_preview_lists_the_calls_inside_a_task_that_runs_again(store):
    crew = crew_of(store, *REPLIES)
    crew.kickoff(run_id="r")
    edits = {"task:plan": "other", "task:bill/llm#1": "no need", "task:bill/llm#2": "all is billed"}
    for address, said in edits.items():
        forked = crew.fork("r", edits={address: said}, allow_effects=True)
        wanted = [] if address == "task:bill/llm#2" else ["task:bill/tool:pay"]
        assert [call.address for call in forked.preview().effects] == wanted, address
        with history_of(store) as history:
            assert calls_of(lambda changes={address: said}: history.fork("r", edits=changes)) == wanted


def test_a_variant_that_may_make_a_call_again_is_refused(store):
    crew = crew_of(store, *REPLIES)
    crew.kickoff(run_id="r")
    behind = {"edits": {"task:bill/llm#2": "x"}}
    for change in (
        {"prompt": {"tasks.plan.description": "x"}},
        {"edits": {"task:plan": "x"}},
        {"definition": crew, **behind},
    ):
        with pytest.raises(EffectsRepeat):
            crew.explore("r", [{"name": "v", **change}])
    assert crew.explore("r", [{"name": "v", **behind}])["v"].output == "x"


@pytest.mark.parametrize("kind", [JsonProvider, SqliteProvider])
def test_a_run_without_such_calls_is_not_read_to_be_forked(kind, tmp_path):
    looked = ReadOnce(kind())
    kept = CheckpointConfig(location=tmp_path / "kept", provider=looked)
    crew_of(kept, "a plan", "a bill").kickoff(run_id="r")
    with history_of(kept) as history:
        place = next(one for one in history.checkpoints() if one.address == "task:plan")
        with looked.one_verb():
            made = history.fork(place.id, branch="try")
            assert not looked.read
        assert made.base.seq == place.seq
        with looked.one_verb():
            history.fork(made, edits={"task:plan": "another"})
            assert looked.read, "edits are checked against what is recorded"
