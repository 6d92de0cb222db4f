"""Calls with effect="once" that have not ended: what each kickoff says of them, and what settles them."""

from __future__ import annotations

import asyncio

import pytest

from crewlite import Agent, Crew, History, Task, ToolCall, tool
from crewlite.cli.checkpoint.words import first_line
from crewlite.errors import InDoubt, RefError, StepTimeout, Suspended
from crewlite.flow import ask, flow, step
from crewlite.testing import ScriptedLLM


@pytest.fixture
def pay(ran):
    """A step that may happen once, and does not come to its end."""

    @step(effect="once")
    def pay(who):
        ran.append(who)
        raise ConnectionError(who)

    return pay


def test_all_calls_in_doubt_are_named_at_once_and_one_kickoff_settles_them(memory, ran, pay):
    @flow(checkpoint=memory())
    def shop():
        asked = pay.map(["ann", "bob", "cyd"])
        return [each.result() for each in asked]

    with pytest.raises(ConnectionError):
        shop.kickoff(run_id="one")
    at = {"ann": "step:pay", "bob": "step:pay#2", "cyd": "step:pay#3"}
    with pytest.raises(InDoubt, match="so it is not repeated. 2 more calls are in doubt. Check of each") as stopped:
        shop.kickoff(run_id="one")
    results = ", ".join(f"{address!r}: <its result>" for address in at.values())
    assert (
        f"run_id='one', answers={{{results}}} for those that did, and rerun={[*at.values()]} for those that did not."
        in (str(stopped.value))
    )
    assert stopped.value.others == {at["bob"]: 1, at["cyd"]: 1}
    with pytest.raises(InDoubt) as stopped:
        shop.kickoff(run_id="one", answers={at["ann"]: "paid"})
    assert (stopped.value.address, stopped.value.others) == (at["bob"], {at["cyd"]: 1})
    assert shop.kickoff(run_id="one", answers={at["bob"]: "b", at["cyd"]: "c"}) == ["paid", "b", "c"]
    assert sorted(ran) == ["ann", "bob", "cyd"]


def test_a_call_that_was_cut_again_is_told_with_those_whose_decision_was_not_used_yet(memory, ran, pay):
    @flow(checkpoint=memory())
    def shop():
        if ran:
            return [pay("ann"), pay("bob")]
        both = pay.map(["ann", "bob"])  # so that both are cut
        return [each.result() for each in both]

    decided = {"run_id": "one", "rerun": ["step:pay", "step:pay#2"]}
    with pytest.raises(ConnectionError):
        shop.kickoff(run_id="one")
    with pytest.raises(ConnectionError):
        shop.kickoff(**decided)
    assert sorted(ran) == ["ann", "ann", "bob"]
    with pytest.raises(InDoubt, match=r"rerun=\['step:pay!2', 'step:pay#2'\] for those that did not") as stopped:
        shop.kickoff(**decided)
    assert stopped.value.others == {"step:pay#2": 1}


@pytest.fixture
def hangs(on_disk):
    """Kickoffs of a flow and a crew whose payment, which may happen once, does not end in time."""

    @step(effect="once", timeout=0.01)
    async def wire():
        await asyncio.sleep(3600)

    @step(effect="once")
    async def transfer():
        return await wire()

    @flow(checkpoint=on_disk())
    async def shop():
        return await transfer()

    @tool(effect="once", timeout=0.01)
    async def pay(amount: int) -> str:
        """Pay."""
        await asyncio.sleep(3600)

    clerk = Agent(role="Clerk", goal="pay", llm=ScriptedLLM([ToolCall("pay", {"amount": 3}), "Paid."]), tools=[pay])
    task = Task(name="bill", description="Pay", expected_output="A line", agent=clerk)
    return {"flow": shop, "crew": Crew(tasks=[task], checkpoint=on_disk())}


@pytest.mark.parametrize(("kind", "at"), [("flow", "step:transfer"), ("crew", "task:bill/tool:pay")])
def test_each_kickoff_says_the_same_of_a_call_that_did_not_end_in_time_and_that_works(hangs, on_disk, kind, at):
    what = "step wire" if kind == "flow" else "tool pay"
    told, late = [], f"{what} did not end within 0.01 s, and may still take effect"
    for _ in range(3):
        with pytest.raises((InDoubt, StepTimeout)) as stopped:
            hangs[kind].kickoff(run_id="one")
        told.append(stopped.value)
        with History(on_disk().location) as history:
            assert history.run("one").unsettled == {at: 1}
    first = told.pop(0)
    if kind == "flow":
        assert first.once
        assert (str(first), first.__notes__[-1].splitlines()[-1]) == (
            f"{late}.",
            "step:transfer may have taken effect. Check whether it took effect, then kick off again with run_id='one', "
            "answers={'step:transfer': <its result>} if it did, or rerun=['step:transfer'] if it did not.",
        )
    else:
        told.append(first)
    call = {"flow": "step transfer at step:transfer", "crew": 'tool pay at task:bill/tool:pay with {"amount": 3}'}[kind]
    assert {str(one) for one in told} == {
        f"{call} failed (StepTimeout: {late}), and it is declared effect='once', so it is not repeated. Check whether it "
        f"took effect, then kick off again with run_id='one', answers={{'{at}': <its result>}} if it did, or rerun=['{at}'] if it did not."
    }
    hangs[kind].kickoff(run_id="one", answers={at: "paid"})


def test_a_rerun_decides_about_one_doubt(hangs, on_disk):
    crew, at = hangs["crew"], "task:bill/tool:pay"

    def kickoff(**options):
        with pytest.raises((InDoubt, StepTimeout)) as stopped:
            crew.kickoff(run_id="one", **options)
        return str(stopped.value)

    def begun():
        with History(on_disk().location) as history:
            return history.run("one").unsettled

    kickoff()
    kickoff(rerun=[at])
    assert begun() == {at: 2}
    for options in ({"rerun": [at]}, {}):
        said = kickoff(**options)
        assert "again, and it is declared effect='once', so it is not repeated" in said
        assert said.endswith(f"or rerun=['{at}!2'] if it did not.")
        assert begun() == {at: 2}, "nothing was called"
    with pytest.raises(RefError, match=rf"'{at}!3' names attempt 3 at a call that was begun 2 times.*{at}!2"):
        crew.kickoff(run_id="one", rerun=f"{at}!3")
    kickoff(rerun=[f"{at}!2", at])
    assert begun() == {at: 3}, "the latest attempt that is named counts, in whatever order"
    kickoff(rerun=None)
    assert begun() == {at: 3}
    crew.kickoff(run_id="one", answers={at: "paid"}, rerun=[at])


def test_a_call_that_ended_because_one_in_it_is_in_doubt_goes_on_without_a_question(hangs):
    outer, inner = "step:transfer", "step:transfer/step:wire"
    with pytest.raises(StepTimeout):
        hangs["flow"].kickoff(run_id="one")
    for rerun, stops_at in (([], outer), ([outer], inner), ([outer], inner), ([], inner)):
        with pytest.raises(InDoubt) as stopped:
            hangs["flow"].kickoff(run_id="one", rerun=rerun)
        assert stopped.value.address == stops_at
    hangs["flow"].kickoff(run_id="one", rerun=[outer], answers={inner: "wired"})


@pytest.mark.parametrize(
    ("kind", "at", "then"),
    [
        ("flow", "step:transfer", {"step:transfer/step:wire": 1}),
        ("crew", "task:bill/tool:pay", {"task:bill/tool:pay": 2}),
    ],
)
def test_a_rerun_from_the_beginning_decides_about_no_doubt(hangs, on_disk, kind, at, then):
    def kickoff():
        with pytest.raises((InDoubt, StepTimeout)) as stopped:
            hangs[kind].kickoff(run_id="one", rerun=[at])
        with History(on_disk().location) as history:
            return stopped.value, history.run("one").unsettled

    cut, begun = kickoff()
    assert begun == {at: 1}
    assert f"rerun=['{at}'] if it did not" in "".join((str(cut), *cut.__notes__))
    assert " again, and it is declared" not in str(cut)
    kickoff()  # which decides
    cut, begun = kickoff()
    assert begun == then, "of the flow, the call inside the one that was made again"
    assert "so it is not repeated" in str(cut)


@pytest.fixture
def asking(on_disk, no_terminal):
    """A flow whose payment, which may happen once, asks a person before it is made."""

    @step(effect="once")
    def pay(amount):
        return amount if ask(f"Pay {amount}?", bool, name="sure") else 0

    @flow(checkpoint=on_disk())
    def shop():
        return pay(3)

    return shop


def test_a_run_that_waits_for_a_person_names_the_calls_in_doubt_beside_the_question(asking):
    with pytest.raises(Suspended, match="step:pay may have taken effect. Check whether") as waits:
        asking.kickoff(run_id="one")
    assert waits.value.in_doubt == {"step:pay": 1}
    assert str(waits.value).endswith("or rerun=['step:pay'] if it did not.")
    assert asking.kickoff(run_id="one", answers={"step:pay/human:sure": True}, rerun=["step:pay"]) == 3


def test_an_answered_question_does_not_say_whether_the_call_around_it_took_effect(asking):
    with pytest.raises(Suspended):
        asking.kickoff(run_id="one")
    with pytest.raises(InDoubt):
        asking.kickoff(run_id="one", answers={"step:pay/human:sure": True})
    assert asking.kickoff(run_id="one", rerun=["step:pay"]) == 3


def test_a_call_that_asks_a_person_is_listed_as_waiting_until_the_answer_is_given(asking, on_disk):
    def listed():
        with History(on_disk().location) as history:
            pay = next(step for step in history.run("one").steps if step.address == "step:pay")
            return pay.status, pay.status_text, first_line(pay)

    with pytest.raises(Suspended):
        asking.kickoff(run_id="one")
    assert listed() == ("in_doubt", "waiting", "asks a person")
    with pytest.raises(InDoubt):
        asking.kickoff(run_id="one", answers={"step:pay/human:sure": True})
    assert listed() == ("in_doubt", "in_doubt", "")
