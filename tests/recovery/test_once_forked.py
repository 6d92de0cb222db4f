"""A fork is changed, and so is its code: calls with effect="once" to which the changes do not lead stay as they were."""

import asyncio
import threading

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, tool
from crewlite.errors import EffectsRepeat, InDoubt, NonDeterminism
from crewlite.flow import flow, step
from crewlite.llm import ToolCall
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, Kept, cut, entries_of

PAID = []
ENDED = threading.Event()  # of the step beside a payment


@pytest.fixture(autouse=True)
def _nothing_paid():
    PAID.clear()


@tool("pay", effect="once")
def pay_by_tool(amount: int) -> int:
    """Pay."""
    PAID.append(amount)
    return amount


def bill(setting, words):
    """A crew whose model asks for two payments in one reply."""

    def reply(messages):
        if messages[-1]["role"] == "tool":
            return "Done."
        return [ToolCall("pay", {"amount": 3}), ToolCall("pay", {"amount": 5})]

    clerk = Agent(role="Clerk", goal="pay", llm=ScriptedLLM(reply), tools=[pay_by_tool])
    return Crew(tasks=[Task(name="bill", description=words, expected_output="x", agent=clerk)], checkpoint=setting)


@pytest.mark.parametrize("on_drift", ["rerun", "keep"])
@pytest.mark.parametrize("edited", ["task:bill/tool:pay", "task:bill/tool:pay#2"])
def test_an_edit_of_one_call_of_a_reply_does_not_have_the_other_one_made_again(edited, on_drift):
    setting = CheckpointConfig(location="here", provider=Kept(), on_drift=on_drift)
    bill(setting, "Pay").kickoff(run_id=RUN)
    PAID.clear()
    assert bill(setting, "Pay now").fork(RUN, edits={edited: 9}).kickoff().raw == "Done."
    assert PAID == []


@step(effect="once")
def pay(amount):
    assert ENDED.wait(60)
    PAID.append(amount)
    return amount


@step
def look(number):
    return number


def order_of(setting, *, pays):
    @flow(checkpoint=setting)
    async def order(number: int):
        asked = [pay.submit(5)] if pays else []
        return await asyncio.gather(*asked, look.submit(number))

    return order


def in_doubt(on_drift):
    """A run that was killed while it paid, and after a step beside the payment had ended."""
    setting = CheckpointConfig(location="here", provider=Kept())

    @flow(checkpoint=setting)
    async def order(number: int):
        paying = pay.submit(5)
        looked = await look.submit(number)
        ENDED.set()
        return [await paying, looked]

    ENDED.clear()
    order.kickoff({"number": 1}, run_id=RUN)
    entries = entries_of(setting)
    at = next(n for n, entry in enumerate(entries, 1) if "look" in str(entry.commit.get("steps")))
    PAID.clear()
    return cut(entries, at, on_drift=on_drift)


@pytest.mark.parametrize("changes", [{"edits": {"step:look": 9}}, {"rerun": ["step:look"]}, {}])
@pytest.mark.parametrize(("on_drift", "refused"), [("rerun", InDoubt), ("keep", NonDeterminism)])
def test_a_fork_does_not_forget_a_call_in_doubt_that_its_code_makes_no_more(changes, on_drift, refused):
    fork = order_of(in_doubt(on_drift), pays=False).fork(RUN, **changes)
    with pytest.raises(refused, match="step:pay"):
        fork.kickoff()
    assert PAID == []


def test_a_fork_whose_changes_lead_to_a_call_in_doubt_may_go_without_it_if_it_may_repeat_it():
    order = order_of(in_doubt("keep"), pays=False)
    with pytest.raises(EffectsRepeat):
        order.fork(RUN, inputs={"number": 2})
    assert order.fork(RUN, inputs={"number": 2}, allow_effects=True).kickoff() == [2]


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("changes", [{"edits": {"step:look#3": 9}}, {"rerun": ["step:look#3"]}])
@pytest.mark.parametrize(("on_drift", "refused"), [("rerun", InDoubt), ("keep", NonDeterminism)])
def test_nor_does_it_if_the_run_was_pruned_before(changes, on_drift, refused, pruned):
    def looking(setting, *, pays):
        @flow(checkpoint=setting)
        async def order():
            paying = [pay.submit(5)] if pays else []
            for number in range(6):
                await look.submit(number)
            ENDED.set()
            return await asyncio.gather(*paying)

        return order

    whole = CheckpointConfig(location="here", provider=Kept(), on_events=["step_completed"])
    ENDED.clear()
    looking(whole, pays=True).kickoff(run_id=RUN)
    PAID.clear()
    entries = entries_of(whole)
    looked = max(n for n, entry in enumerate(entries, 1) if "step:look" in str(entry.commit.get("steps")))
    setting = cut(entries, looked, on_drift=on_drift)
    if pruned:
        with History(setting.location, setting.provider) as history:
            assert history.prune(keep_last=1).freed
    fork = looking(setting, pays=False).fork(RUN, **changes)
    with pytest.raises(refused, match="step:pay"):
        fork.kickoff()
    assert PAID == []


@pytest.mark.parametrize(("on_drift", "refused"), [("rerun", InDoubt), ("keep", NonDeterminism)])
def test_nor_does_it_forget_one_that_it_has_begun_itself_with_its_other_inputs(on_drift, refused):
    def looking(provider, *, pays):
        @flow(checkpoint=CheckpointConfig(location="here", provider=provider, on_drift=on_drift))
        def order(number: int):
            look(number)
            return [pay(5)] if pays else []

        return order

    provider = Kept()
    ENDED.set()
    looking(provider, pays=False).kickoff({"number": 1}, run_id=RUN)
    looking(provider, pays=True).fork(RUN, inputs={"number": 2}, branch="two").kickoff()
    begun = next(n for n, one in enumerate(provider.commits, 1) if "intents" in one.entries[-1].commit)
    PAID.clear()
    with pytest.raises(refused, match="step:pay"):
        looking(provider.cut(begun), pays=False).kickoff(from_checkpoint=f"{RUN}/two")
    assert PAID == []
