"""Answers and reruns for steps that are settled already: the same again goes on, anything else is told."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal

import pytest
from pydantic import BaseModel

from crewlite import Agent, Crew, FailurePolicy, History, Task, ToolCall, tool
from crewlite.errors import (
    AnswerMisfit,
    AnswerRefused,
    ConfigError,
    InDoubt,
    NonDeterminism,
    RefError,
    StepTimeout,
    Suspended,
)
from crewlite.flow import ask, flow, step
from crewlite.recovery import retry
from crewlite.state.reading.fitting import Typed
from crewlite.testing import ScriptedLLM

pytestmark = pytest.mark.usefixtures("no_terminal")


@pytest.fixture
def shop(memory, ran):
    """A flow with a call that may happen once and fails, a step that fails and is handled, and a question at its end."""
    broken = [True]

    @step(effect="once")
    def pay():
        ran.append("pay")
        if broken:
            broken.clear()
            raise ConnectionError("no line")
        return {"paid": 3}

    @step
    def card():
        raise ValueError("declined")

    @step
    def look():
        return "seen"

    @flow(checkpoint=memory())
    def shop():
        try:
            card()
        except ValueError:
            look()
        return pay(), ask("Ship it?", bool, name="ship")

    with pytest.raises(ConnectionError):
        shop.kickoff(run_id="one")
    return lambda **options: shop.kickoff(run_id="one", **options)


def test_an_answer_to_a_call_is_taken_again_and_another_is_refused(shop, ran):
    for _ in range(2):
        with pytest.raises(Suspended):
            shop(answers={"step:pay": {"paid": 3}})
    with pytest.raises(AnswerRefused, match=r"step:pay .*finished with another.*fork the run with edits") as refused:
        shop(answers={"step:pay": {"paid": 4}})
    assert (refused.value.address, refused.value.second, ran) == ("step:pay", True, ["pay"])
    script = {"step:pay": {"paid": 3}, "human:ship": True}
    assert [shop(answers=script) for _ in range(2)] == [({"paid": 3}, True)] * 2
    with pytest.raises(AnswerRefused):
        shop(answers={"step:pay": {"paid": 4}})


def test_what_a_finished_step_came_to_may_be_said_and_nothing_else(shop):
    with pytest.raises(Suspended):
        shop(rerun=["step:pay"], answers={"step:look": "seen"})
    for address, value in (("step:look", "unseen"), ("step:pay", {"paid": 4})):
        with pytest.raises(AnswerRefused, match=f"{address} .*finished with another"):
            shop(answers={address: value})


def test_a_step_that_takes_no_answer_says_so(shop):
    with pytest.raises(RefError, match=r"'step:card' has failed, and takes no answer: rerun=\['step:card'\] tries it"):
        shop(answers={"step:card": "paid"})
    for address in ("step:pey", ""):
        with pytest.raises(RefError, match="is no call in doubt and no question to a person.*Candidates: step:pay"):
            shop(answers={address: "paid"})


def test_a_question_is_answered_and_not_run_again(shop):
    with pytest.raises(Suspended):
        shop(rerun=["step:pay"])
    with pytest.raises(RefError, match="'human:ship' is no call in doubt, and has neither failed nor finished"):
        shop(rerun=["human:ship"])


@pytest.mark.parametrize("at", ["step:card", "step:safely/step:card"])
@pytest.mark.parametrize("finished", [True, False])
def test_a_rerun_of_a_caught_failure_that_cannot_run_again_is_told(memory, ran, caplog, at, finished):
    @step
    def card():
        ran.append("card")
        raise ValueError("declined")

    @step
    def safely():
        try:
            card()
        except ValueError:
            return "cash"

    @flow(checkpoint=memory())
    def shop():
        if "safely" in at:
            safely()
        else:
            with contextlib.suppress(ValueError):
                card()
        return finished or ask("Ship it?", name="ship")

    again = contextlib.nullcontext() if finished else pytest.raises(Suspended)
    with again:
        shop.kickoff(run_id="one")
    with again:
        shop.kickoff(run_id="one", rerun=[at])
    tried_again = at == "step:card" and not finished
    assert ran == ["card"] * (2 if tried_again else 1)
    told = f"{at} is part of what has finished, and is not run again in this run. To run it again, fork: "
    assert (f"{told}flow.fork('one', rerun=['{at}']).kickoff()" in caplog.text) != tried_again


def test_a_rerun_of_what_has_finished_goes_on_with_a_warning(shop, ran, caplog):
    with pytest.raises(Suspended):
        shop(rerun=["step:pay"])
    assert "not run again" not in caplog.text
    with pytest.raises(Suspended):
        shop(rerun=["step:pay"])
    assert "step:pay has finished, and is not run again in this run" in caplog.text
    assert "flow.fork('one', rerun=['step:pay'], allow_effects=True).kickoff()" in caplog.text
    assert ran == ["pay", "pay"]


def test_a_result_of_a_tool_is_compared_as_the_model_reads_it(memory):
    @tool(effect="once")
    def pay(amount: int) -> dict[str, int]:
        """Pay."""
        raise ConfigError("no key")

    clerk = Agent(role="Clerk", goal="pay", llm=ScriptedLLM([ToolCall("pay", {"amount": 3}), "Paid."]), tools=[pay])
    task = Task(name="bill", description="Pay", expected_output="A line", agent=clerk)
    crew = Crew(tasks=[task], checkpoint=memory())
    at = "task:bill/tool:pay"
    with pytest.raises(ConfigError):
        crew.kickoff(run_id="one")
    with pytest.raises(InDoubt):
        crew.kickoff(run_id="one")
    for said in ({"paid": 3}, {"paid": 3}, '{"paid": 3}'):
        assert crew.kickoff(run_id="one", answers={at: said}).raw == "Paid."
    with pytest.raises(AnswerRefused, match=f"{at} .*finished with another"):
        crew.kickoff(run_id="one", answers={at: {"paid": 4}})
    with pytest.raises(AnswerRefused, match="task:bill .*finished with another"):
        crew.kickoff(run_id="one", answers={"task:bill": "Not paid."})


# what is said about a call that may happen once, and has not ended


def test_all_calls_in_doubt_are_named_at_once_and_one_kickoff_settles_them(memory, ran):
    @step(effect="once")
    def pay(who):
        ran.append(who)
        raise ConnectionError(who)

    @flow(checkpoint=memory())
    def shop():
        asked = pay.map(["ann", "bob", "cyd"])
        return [each.result() for each in asked]

    with pytest.raises(ConnectionError):
        shop.kickoff(run_id="one")
    at = {"ann": "step:pay", "bob": "step:pay#2", "cyd": "step:pay#3"}
    with pytest.raises(
        InDoubt, match=r"In doubt too, and settled by the same kickoff: step:pay#2, step:pay#3\."
    ) as stopped:
        shop.kickoff(run_id="one")
    assert stopped.value.others == {at["bob"]: 1, at["cyd"]: 1}
    with pytest.raises(InDoubt) as stopped:
        shop.kickoff(run_id="one", answers={at["ann"]: "paid"})
    assert (stopped.value.address, stopped.value.others) == (at["bob"], {at["cyd"]: 1})
    assert shop.kickoff(run_id="one", answers={at["bob"]: "b", at["cyd"]: "c"}) == ["paid", "b", "c"]
    assert sorted(ran) == ["ann", "bob", "cyd"]


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
    told, late = (
        [],
        f"{what} did not end within 0.01 s, and may still take effect",
    )
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
    kind, at = "crew", "task:bill/tool:pay"

    def kickoff(**options):
        with pytest.raises((InDoubt, StepTimeout)) as stopped:
            hangs[kind].kickoff(run_id="one", **options)
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
        hangs[kind].kickoff(run_id="one", rerun=f"{at}!3")
    kickoff(rerun=[f"{at}!2", at])
    assert begun() == {at: 3}, "the latest attempt that is named counts, in whatever order"
    kickoff(rerun=None)
    assert begun() == {at: 3}
    hangs[kind].kickoff(run_id="one", answers={at: "paid"}, rerun=[at])


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


def test_only_an_attempt_that_was_made_can_be_named(shop, ran):
    for at in ("step:card", "step:look"):
        with pytest.raises(RefError, match=rf"'{at}!9' names attempt 9 at a call that was begun once.*{at}"):
            shop(rerun=[f"{at}!9"])
    for blank in ("", [" "]):
        with pytest.raises(ConfigError, match="wanted a list of addresses"):
            shop(rerun=blank)
    assert ran == ["pay"]


@pytest.mark.parametrize("step_again", ["step:pay", "step:look"])
def test_the_advice_to_run_a_finished_step_again_works_as_printed(memory, ran, caplog, step_again):
    @step
    def look():
        return "seen"

    @step(effect="once")
    def pay():
        ran.append("pay")

    @step
    def sign():
        return "signed"

    @flow(checkpoint=memory())
    def shop():
        look(), pay(), sign()
        if len(ran) < 3:
            raise OSError("no paper")

    for rerun in ((), ["step:sign"], [step_again]):
        with pytest.raises(OSError, match="no paper") as stopped:
            shop.kickoff(run_id="one", rerun=rerun)
    assert "shop.fork('one', rerun=['step:sign']).kickoff()" in stopped.value.__notes__[0].replace("flow.", "shop.")
    advised = [line.split("fork: ")[1].split(", or")[0] for line in caplog.messages if "has finished" in line]
    assert "allow_effects" not in advised[0], "the call stands before it"
    for call in advised:
        with pytest.raises(OSError, match="no paper"):
            eval(call, {"flow": shop})
    assert ran == ["pay", *(["pay"] if step_again == "step:pay" else [])]


def test_a_kickoff_inside_a_run_takes_neither_answers_nor_reruns(memory):
    @flow
    def inner():
        return ask("Ship it?", bool, name="ship")

    answers, rerun = {"answers": {"human:ship": True}}, {"rerun": ["step:pay"]}
    named = {
        "no answers: pass it": answers,
        "no rerun: pass it": rerun,
        "no answers, rerun: pass them": answers | rerun,
    }
    for told, given in named.items():
        with pytest.raises(ConfigError, match=f"takes {told} to the outermost kickoff"):
            flow(name="outer", checkpoint=memory())(lambda given=given: inner.kickoff(**given)).kickoff()


# answers of people, in words


@pytest.mark.parametrize("said", ["yes", "Y", Typed("yes"), True])
def test_yes_and_no_may_be_said_in_words_before_and_after_the_question(memory, said):
    """A text that the question takes as it is stays that text."""

    @flow(checkpoint=memory())
    def asks():
        return ask("Ship it?", bool, name="ship"), ask("How?", bool | Literal["yes", "maybe"], name="how")

    def answered(said):
        return asks.kickoff(run_id="one", answers={"human:ship": said})

    for again in (said, said, True, "yes", Typed("y")):
        with pytest.raises(Suspended):
            answered(again)
    for other in (False, "no", Typed("n")):
        with pytest.raises(AnswerRefused, match="it has an answer already"):
            answered(other)
    with History("memory", memory().provider) as history:
        history.answer("one", "human:how", "yes")
    assert answered(said) == (True, "yes")
    assert asks.fork("one", edits={"human:ship": "no"}).kickoff() == (False, "yes")


def test_code_that_catches_everything_cannot_swallow_a_doubt(memory, ran):
    careful = [True]

    @step(effect="once")
    def charge(n):
        ran.append(n)
        raise ConnectionError("no line")

    @flow(checkpoint=memory())
    def pay():
        for n in (1, 2):
            try:
                return charge(n)
            except Exception:
                if careful:
                    raise
        return "not paid"

    with pytest.raises(ConnectionError):
        pay.kickoff(run_id="one")
    careful.clear()
    with pytest.raises(InDoubt, match=r"step charge at step:charge with ..n.: 1. failed \(ConnectionError: no line\)"):
        pay.kickoff(run_id="one")
    assert ran == [1]
    assert pay.kickoff(run_id="one", answers={"step:charge": "receipt"}) == "receipt"


def test_a_doubt_of_a_separate_run_stops_the_run_around_it_whatever_that_catches(on_disk, ran):
    @step(effect="once")
    def charge():
        ran.append("charge")
        raise ConnectionError("no line")

    pay = flow(name="pay", checkpoint=on_disk())(lambda: charge())

    @step(retries=2)
    def pays():
        ran.append("try")
        return pay.kickoff(run_id="inner")

    @flow
    def in_its_body():
        try:
            return pay.kickoff(run_id="inner")
        except Exception:
            ran.append("caught")
        return "not paid"

    @flow
    async def awaited():
        try:
            return await pay.akickoff(run_id="inner")
        except Exception:
            ran.append("caught")
        return "not paid"

    @flow(failure_policy=FailurePolicy(default=retry(2)))
    def in_a_step():
        try:
            return pays()
        except Exception:
            ran.append("caught")
        return "not paid"

    with pytest.raises(ConnectionError):
        pay.kickoff(run_id="inner")
    for outer in (in_its_body, awaited, in_a_step):
        ran.clear()
        with pytest.raises(InDoubt, match="step charge at step:charge failed") as doubt:
            outer.kickoff()
        assert "run_id='inner'" in str(doubt.value), "it names the run that is to be settled"
        assert ran in (["caught"], ["try", "caught"]), "neither the call nor the step around it is tried again"
    assert pay.kickoff(run_id="inner", answers={"step:charge": "receipt"}) == "receipt"
    assert in_a_step.kickoff() == in_its_body.kickoff() == "receipt"


def test_code_that_catches_everything_cannot_swallow_that_the_record_is_of_other_questions(memory):
    asked = [1]

    @step
    def look(n):
        return n

    @step
    def fails():
        raise KeyError("x")

    @flow(checkpoint=memory())
    def careless():
        try:
            look(asked[0])
        except Exception:
            return "fallback"
        return fails() if asked == [1] else "looked"

    with pytest.raises(KeyError):
        careless.kickoff(run_id="one")
    asked[0] = 5
    with pytest.raises(NonDeterminism):
        careless.kickoff(run_id="one")


def test_code_that_catches_everything_cannot_swallow_an_edit_that_does_not_fit(memory):
    class Report(BaseModel):
        number: int

    agent = Agent(role="Writer", goal="write", llm=ScriptedLLM(lambda messages: '{"number": 1}'))
    task = Task(name="report", description="R", expected_output="x", agent=agent, output_pydantic=Report)
    crew = Crew(name="crew", tasks=[task])

    @flow(checkpoint=memory())
    def careless():
        try:
            return crew.kickoff()["report"].pydantic.number
        except Exception:
            return -1

    assert careless.kickoff(run_id="one") == 1
    at = "crew:crew/task:report"
    with pytest.raises(AnswerMisfit):
        careless.fork("one", branch="wrong", edits={at: "no json"}).kickoff()
    assert careless.fork("one/wrong", edits={at: {"number": 7}}).kickoff() == 7
    assert careless.fork("one/wrong", rerun=[at]).kickoff() == 1
