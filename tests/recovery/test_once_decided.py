"""What a person says of a call in doubt: it counts after a kill at any place, and it has the type that the call returns."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from crewlite import Agent, CheckpointConfig, Crew, FailurePolicy, History, Task, tool
from crewlite.errors import AnswerRefused, ConfigError, InDoubt, NonDeterminism
from crewlite.flow import flow, step
from crewlite.llm import ToolCall
from crewlite.recovery import Rule
from crewlite.state.reading.fitting import Typed
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, Kept, cut, entries_of

SEND = "step:around/step:send"


def posting(setting, sent, *, fails=False):
    """A flow whose step sends a letter in a step of its own."""

    @step(effect="once")
    def send():
        sent.append("letter")
        if fails:
            raise ConnectionError("no route")
        return "sent"

    @step
    def around():
        return send()

    @flow(checkpoint=setting)
    def one():
        return around()

    return one


@pytest.mark.parametrize("decided", [{"answers": {SEND: "told"}}, {"rerun": [SEND]}])
def test_a_doubt_that_was_decided_is_not_raised_again_where_the_asking_kickoff_was_killed(decided):
    setting = CheckpointConfig(location="here", provider=Kept())
    with pytest.raises(ConnectionError):
        posting(setting, [], fails=True).kickoff(run_id=RUN)
    before = len(entries_of(setting))
    with pytest.raises(InDoubt):
        posting(setting, []).kickoff(run_id=RUN)
    entries = entries_of(setting)
    for at in range(before, len(entries) + 1):
        sent = []
        result = posting(cut(entries, at), sent).kickoff(run_id=RUN, **decided)
        assert (result, sent) == (("told", []) if "answers" in decided else ("sent", ["letter"])), f"commit {at}"


def test_code_that_asked_otherwise_and_was_mended_goes_on_where_the_run_that_refused_it_was_killed():
    def program(setting, first, *, fails=False):
        @step
        def get(word):
            return word

        @step
        def around():
            got = get(first)
            if fails:
                raise ConnectionError("no route")
            return got

        @flow(checkpoint=setting)
        def one():
            return around()

        return one

    setting = CheckpointConfig(location="here", provider=Kept())
    with pytest.raises(ConnectionError):
        program(setting, "a", fails=True).kickoff(run_id=RUN)
    entries = entries_of(setting)
    begun = next(at for at in range(1, len(entries)) if b"step:around/step:get" in entries[at - 1].body)
    other = cut(entries, begun)
    with pytest.raises(NonDeterminism):
        program(other, "b").kickoff(run_id=RUN)
    entries = entries_of(other)
    for at in range(begun, len(entries) + 1):
        assert program(cut(entries, at), "a").kickoff(run_id=RUN) == "a", f"commit {at}"


class Receipt(BaseModel):
    number: int
    paid: float
    how: str = "card"


@dataclass
class Parcel:
    items: list[Receipt]


PAYMENTS = {
    int: (7, [7, Typed("7")], ["7", "seven", Typed("seven"), 7.5, True], 8),
    str: ("7", ["7", Typed("7")], [7], "8"),
    bool: (True, [True, Typed("yes"), "yes"], [1, Typed("maybe")], False),
    list[float]: ([7.0], [[7], [7.0], Typed("[7]")], ["[7]", [None]], [8]),
    date: (date(2026, 1, 2), [date(2026, 1, 2), "2026-01-02", Typed("2026-01-02")], ["soon"], date(2026, 1, 3)),
    Receipt: (
        Receipt(number=7, paid=3),
        [Receipt(number=7, paid=3), {"number": 7, "paid": 3}, Typed('{"number": 7, "paid": 3}')],
        [{"number": "x", "paid": 3}, Typed("seven")],
        Receipt(number=8, paid=3),
    ),
    Parcel: (
        Parcel([Receipt(number=7, paid=3)]),
        [Parcel([Receipt(number=7, paid=3)]), {"items": [{"number": 7, "paid": 3}]}],
        [{"items": [7]}],
        Parcel([]),
    ),
    Any: ("7", ["7", Typed("7")], [], "8"),
    Iterable[int]: ([7], [[7]], [7], [8]),
    None: (None, [None, Typed("null")], ["sent"], "sent"),
}


@pytest.mark.parametrize("returns", PAYMENTS)
def test_a_result_that_a_person_gives_has_the_type_that_the_step_returns(returns):
    result, told, refused, other = PAYMENTS[returns]

    def paying(setting, got):
        def pay():
            raise ConnectionError("no route")

        pay.__annotations__["return"] = returns
        paid = step(effect="once")(pay)

        @flow(checkpoint=setting)
        def one():
            got.append(paid())

        return one

    def cut_in_doubt():
        setting = CheckpointConfig(location="here", provider=Kept())
        with pytest.raises(ConnectionError):
            paying(setting, []).kickoff(run_id=RUN)
        return setting

    for value in told:
        setting, got = cut_in_doubt(), []
        for _ in range(2):  # started again, the program passes the same
            paying(setting, got).kickoff(run_id=RUN, answers={"step:pay": value})
        assert (got, type(got[0])) == ([result], type(result)), value
        with pytest.raises(AnswerRefused, match="another result"):
            paying(setting, got).kickoff(run_id=RUN, answers={"step:pay": other})
    setting = cut_in_doubt()
    for value in refused:
        with pytest.raises(AnswerRefused, match="The answer to step:pay was refused"):
            paying(setting, []).kickoff(run_id=RUN, answers={"step:pay": value})
    paying(setting, got := []).kickoff(run_id=RUN, answers={"step:pay": told[0]})
    assert got == [result]


def test_a_result_told_to_a_tool_is_text_also_where_it_was_typed():
    class Loud(str):
        pass

    @tool(effect="once")
    def pay() -> str:
        """Pay."""
        raise ConfigError("no account")

    @tool
    def look() -> str:
        """Look."""
        return Loud("seen")

    llm = ScriptedLLM([[ToolCall("pay"), ToolCall("look")], "Done."])
    task = Task(
        name="t", description="pay", expected_output="ok", agent=Agent(role="C", goal="g", llm=llm, tools=[pay, look])
    )
    crew = Crew(tasks=[task], checkpoint=CheckpointConfig(location="here", provider=Kept()))
    with pytest.raises(ConfigError):
        crew.kickoff(run_id=RUN)
    assert crew.kickoff(run_id=RUN, answers={"task:t/tool:pay": Typed("7")}).raw == "Done."
    assert [message["content"] for message in llm.calls[-1] if message["role"] == "tool"] == ["7", "seen"]


@pytest.mark.parametrize("retried", ["flow", "policy"])
def test_a_call_that_was_cut_is_not_made_again_by_a_retry_that_keeps_what_has_finished(retried):
    sent, cut_off = [], []

    @step(effect="once")
    async def send():
        sent.append("letter")
        if not cut_off:
            await asyncio.Event().wait()
        return "sent"

    @step
    async def watch():
        while not sent:
            await asyncio.sleep(0)
        if not cut_off:
            cut_off.append("send")
            raise ConnectionError("no route")

    how = (
        {"retries": 1} if retried == "flow" else {"failure_policy": FailurePolicy((Rule({"bug"}, retries=1, base=0),))}
    )

    @flow(checkpoint=CheckpointConfig(location="here", provider=Kept()), **how)
    async def one():
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(send())
            group.create_task(watch())
        return sending.result()

    with pytest.raises((InDoubt, ExceptionGroup)):
        one.kickoff(run_id=RUN)
    with pytest.raises(InDoubt):
        one.kickoff(run_id=RUN)
    assert one.kickoff(run_id=RUN, answers={"step:send": "told"}) == "told"
    assert sent == ["letter"]


def test_a_call_made_again_that_fails_and_is_handled_is_not_made_again_by_the_same_rerun():
    made = []

    def posting(setting, *, line):
        @step(effect="once")
        def send():
            made.append("letter")
            raise ConnectionError("no route")

        @step
        def note(text):
            return text

        @step
        def end():
            if not line:
                raise ConnectionError("no line")
            return "end"

        @flow(checkpoint=setting)
        def one():
            try:
                got = send()
            except ConnectionError:
                got = note("not sent")
            return [got, note("noted"), end()]

        return one

    whole = CheckpointConfig(location="here", provider=Kept())
    assert posting(whole, line=True).kickoff(run_id=RUN) == ["not sent", "noted", "end"]
    entries = entries_of(whole)
    begun = next(at for at, entry in enumerate(entries, 1) if entry.commit.get("intents"))
    setting, rerun = cut(entries, begun), ["step:send"]
    with pytest.raises(InDoubt):
        posting(setting, line=True).kickoff(run_id=RUN)
    with pytest.raises(ConnectionError, match="no line"):
        posting(setting, line=False).kickoff(run_id=RUN, rerun=rerun)
    assert posting(setting, line=True).kickoff(run_id=RUN, rerun=rerun) == ["not sent", "noted", "end"]
    assert len(made) == 2


def _cut_in_an_inner_call(*, fails=False):
    """A program with a call inside a call, what it has done, and a store in which both were begun and cut."""
    made = []

    def program(setting):
        @step(effect="once")
        def inner():
            made.append("inner")
            if fails:
                raise ConnectionError("no route")
            return "sent"

        @step(effect="once")
        def outer():
            try:
                got = inner()
            except ConnectionError:
                got = "not sent"
            made.append("outer")
            return got

        return flow(name="one", checkpoint=setting)(outer)

    whole = CheckpointConfig(location="here", provider=Kept())
    program(whole).kickoff(run_id=RUN)
    entries = entries_of(whole)
    begun = max(at for at, entry in enumerate(entries, 1) if entry.commit.get("intents"))
    return program, made, cut(entries, begun)


@pytest.mark.parametrize("decided", ["answers", "rerun", "rerun that fails"])
def test_a_call_that_waited_for_a_call_inside_it_is_in_doubt_once_it_has_gone_on(decided):
    inside = "step:outer/step:inner"
    program, made, setting = _cut_in_an_inner_call(fails=decided == "rerun that fails")
    with pytest.raises(InDoubt, match="step outer at step:outer was interrupted"):
        program(setting).kickoff(run_id=RUN)
    with pytest.raises(InDoubt, match="step inner at step:outer/step:inner was interrupted"):
        program(setting).kickoff(run_id=RUN, rerun=["step:outer"])
    with History(setting.location, setting.provider) as history:
        assert history.run(RUN).unsettled == {inside: 1}
    decision = {"answers": {inside: "told"}} if decided == "answers" else {"rerun": [inside]}
    made.clear()
    program(setting).kickoff(run_id=RUN, **decision)
    assert made == (["outer"] if decided == "answers" else ["inner", "outer"])
    *most, _ = entries_of(setting)
    steps = [[step["address"] for step in entry.commit.get("steps", ())] for entry in most]
    ended = 1 + steps.index([inside])
    made.clear()
    again = cut(most[:ended], ended)
    with pytest.raises(InDoubt, match="step outer at step:outer was interrupted"):
        program(again).kickoff(run_id=RUN, **decision)
    assert made == []
    assert program(again).kickoff(run_id=RUN, answers={"step:outer": "told"}) == "told"


def test_a_rerun_decides_no_doubt_of_a_call_that_goes_on_after_the_call_inside_it():
    inside, outside = "step:outer/step:inner", "step:outer"
    program, made, setting = _cut_in_an_inner_call()
    with pytest.raises(InDoubt, match="at step:outer/step:inner"):
        program(setting).kickoff(run_id=RUN, rerun=[outside])
    again, decision = f"{outside}!2", {"answers": {inside: "told"}}
    program(setting).kickoff(run_id=RUN, rerun=[again], **decision)
    *most, _ = entries_of(setting)
    ended = 1 + [[step["address"] for step in entry.commit.get("steps", ())] for entry in most].index([inside])
    made.clear()
    with pytest.raises(InDoubt, match=r"rerun=\['step:outer!3'\]"):
        program(cut(most[:ended], ended)).kickoff(run_id=RUN, rerun=[again], **decision)
    assert made == []


@pytest.mark.parametrize("changed", [{"inputs": {"amount": 4}}, {"edits": {"step:doubled": 8}}])
def test_a_fork_asks_about_a_call_in_doubt_that_it_makes_with_other_arguments(changed):
    paid = []

    def program(checkpoint):
        @step
        def doubled(amount):
            return 2 * amount

        @step(effect="once")
        def pay(amount):
            paid.append(amount)
            return amount

        @flow(checkpoint=checkpoint)
        def one(amount: int) -> int:
            return pay(doubled(amount))

        return one

    setting = CheckpointConfig(location="here", provider=Kept())
    program(setting).kickoff(3, run_id=RUN)
    begun = next(at for at, entry in enumerate(entries_of(setting), 1) if entry.commit.get("intents"))
    other = program(cut(entries_of(setting), begun)).fork(RUN, allow_effects=True, **changed)
    with pytest.raises(InDoubt) as doubt:
        other.kickoff()
    assert doubt.value.address == "step:pay"
    assert other.kickoff(rerun=["step:pay"]) == 8
    assert paid == [6, 8]
