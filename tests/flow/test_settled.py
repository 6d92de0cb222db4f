"""Answers and reruns for steps that are settled already: the same again goes on, anything else is told."""

from __future__ import annotations

import contextlib

import pytest

from crewlite import Agent, Crew, Task, ToolCall, tool
from crewlite.errors import AnswerRefused, ConfigError, InDoubt, RefError, Suspended
from crewlite.flow import ask, flow, step
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
