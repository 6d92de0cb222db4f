"""Calls that need approval: a person says yes, no, yes with other arguments, or gives the result; or nobody is asked."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from crewlite import Agent, BaseTool, Crew, History, Task, ToolCall, tool
from crewlite.errors import AnswerRefused, ConfigError, Suspended
from crewlite.events import (
    HumanFeedbackReceivedEvent,
    HumanFeedbackRequestedEvent,
    ToolUsageFinishedEvent,
    ToolUsageStartedEvent,
)
from crewlite.flow import ask, flow
from crewlite.runtime.people.question import Question
from crewlite.state.reading.fitting import Typed, typed
from crewlite.testing import EventRecorder, ScriptedLLM
from crewlite.tools import approval
from tests.parts import Stop

AT = "task:t/human:pay"
PAID: list[tuple[int, str]] = []


@pytest.fixture(autouse=True)
def _nothing_paid():
    PAID.clear()


def payer(**options):
    @tool(requires_approval=True, **options)
    def pay(amount: int, to: str) -> str:
        """Pay somebody."""
        PAID.append((amount, to))
        return f"paid {amount} to {to}"

    return pay


def wanting(messages):
    """A model that pays once, and then says what it was told."""
    told = [message["content"] for message in messages if message["role"] == "tool"]
    return told[-1] if told else ToolCall("pay", {"amount": 900, "to": "Ada"})


def desk(checkpoint=None, *, script=wanting, **options):
    who = Agent(role="Cashier", goal="pay", llm=ScriptedLLM(script), tools=[payer(**options)])
    return Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=who)], checkpoint=checkpoint)


def waiting(config, **options):
    crew = desk(config(), **options)
    with pytest.raises(Suspended):
        crew.kickoff(run_id="r")
    return crew


CHANGED = 'A person changed the arguments: {"amount": 90, "to": "Ada"}\npaid 90 to Ada'
VERDICTS = [
    ({"arguments": {"amount": 900}}, "paid 900 to Ada", [(900, "Ada")]),
    (True, "paid 900 to Ada", [(900, "Ada")]),
    (False, "A person did not allow this call of pay. Go on without it.", []),
    ({"arguments": {"amount": 90}}, CHANGED, [(90, "Ada")]),
    ({"answer": "the cashier paid in cash"}, "the cashier paid in cash", []),
]


@pytest.mark.parametrize("effect", ["none", "once"])
@pytest.mark.parametrize(("said", "told", "paid"), VERDICTS)
def test_what_a_person_says_is_done_once_and_the_model_is_told(on_disk, effect, said, told, paid):
    waiting(on_disk, effect=effect)
    with History(on_disk().location) as history:
        history.answer("r", AT, said)
    crew = desk(on_disk(), effect=effect)
    with EventRecorder() as heard:
        assert crew.kickoff(run_id="r").raw == told
    assert paid == PAID
    assert [event.tool_args["amount"] for event in heard.of(ToolUsageStartedEvent)] == [amount for amount, _ in paid]
    assert [event.from_person for event in heard.of(ToolUsageFinishedEvent)] == [not paid] * (said is not False)
    assert desk(on_disk(), effect=effect).kickoff(run_id="r").raw == told
    assert paid == PAID


def test_what_is_recorded_of_a_tool_is_its_own_result_where_that_is_the_answer(on_disk):
    waiting(on_disk, result_as_answer=True)
    crew = desk(on_disk(), result_as_answer=True)
    assert crew.kickoff(run_id="r", answers={AT: {"arguments": {"amount": 90}}}).raw == "paid 90 to Ada"


BAD = [
    ("perhaps", "wanted yes, no"),
    ({"arguments": {"amount": "much"}}, "amount: 'much' is not of type 'integer'"),
    ({"argument": {"amount": 1}}, "wanted yes, no"),
    ({"arguments": {"sum": 1}}, "arguments: 'sum' is not one of \\['amount', 'to'\\]"),
    ({"arguments": {}}, "wanted yes, no"),
]


@pytest.mark.parametrize(("said", "why"), BAD)
def test_an_answer_that_says_nothing_or_does_not_fit_the_tool_is_refused_and_the_question_waits(on_disk, said, why):
    crew = waiting(on_disk)
    with pytest.raises(AnswerRefused, match=why):
        crew.kickoff(run_id="r", answers={AT: said})
    assert not PAID
    assert crew.kickoff(run_id="r", answers={AT: True}).raw == "paid 900 to Ada"


def test_an_answer_that_does_not_fit_the_tool_is_refused_when_it_is_given(on_disk):
    crew = waiting(on_disk)
    with History(on_disk().location) as history:
        for said in ({"arguments": {"amount": "x"}}, {"arguments": {"sum": 1}}, {"arguments": {}}, "perhaps"):
            with pytest.raises(AnswerRefused, match="answer again"):
                history.answer("r", AT, said)
        with pytest.raises(AnswerRefused, match="'x' is not of type 'integer'"):
            history.answer("r", AT, {"arguments": {"amount": "x"}})
        history.answer("r", AT, {"arguments": {"amount": 90}})
        with pytest.raises(AnswerRefused, match="replace=True"):
            history.answer("r", AT, True)
    assert crew.kickoff(run_id="r").raw == CHANGED


def test_a_tool_with_a_schema_of_any_kind_is_answered_and_nothing_is_fetched(on_disk):
    class Place(BaseModel):
        name: str

    far = {"$ref": "http://127.0.0.1:9/schema.json"}

    class Odd(BaseModel):
        model_config = ConfigDict(extra="allow", json_schema_extra=lambda made: made["properties"].update(at=far))
        place: Place
        at: Any = None

    class Send(BaseTool):
        name: str = "pay"
        description: str = "Send it."
        args_schema: type[BaseModel] = Odd
        requires_approval: bool = True

        def _run(self, place: Place, at: Any = None) -> str:
            return f"sent to {place.name}"

    def script(messages):
        told = [message["content"] for message in messages if message["role"] == "tool"]
        return told[-1] if told else ToolCall("pay", {"place": {"name": "Ada"}})

    who = Agent(role="Cashier", goal="g", llm=ScriptedLLM(script), tools=[Send()], checkpoint=on_disk())
    with pytest.raises(Suspended):
        who.kickoff("go", run_id="r")
    with History(on_disk().location) as history:
        with pytest.raises(AnswerRefused, match="'name' is a required property"):
            history.answer("r", "human:pay", {"arguments": {"place": {}}})
        history.answer("r", "human:pay", {"arguments": {"place": {"name": "Bob"}, "at": 3, "more": 1}})
    assert "sent to Bob" in who.kickoff(run_id="r").raw


def both(messages):
    """A model that wants two payments at once."""
    told = [message["content"] for message in messages if message["role"] == "tool"]
    return "; ".join(told) or [ToolCall("pay", {"amount": n, "to": "Ada"}) for n in (1, 2)]


@pytest.mark.parametrize("first", [AT, f"{AT}#2"])
def test_a_call_that_is_approved_does_not_wait_for_the_others_of_its_reply_and_no_order_asks_again(on_disk, first):
    def script(messages):
        told = [message["content"] for message in messages if message["role"] == "tool"]
        if len(told) == 3 and stops:
            raise stops.pop()
        calls = {0: [ToolCall("pay", {"amount": n, "to": "Ada"}) for n in (1, 2)], 2: ToolCall("look")}
        return calls.get(len(told)) or "; ".join(told[:2])

    stops = [Stop]
    waiting(on_disk, script=script)
    with pytest.raises(Suspended) as waits:
        desk(on_disk(), script=script).kickoff(run_id="r", answers={first: True})
    (left,) = waits.value.waiting
    assert {first, left} == {AT, f"{AT}#2"}
    assert PAID == [(1 if first == AT else 2, "Ada")]
    with pytest.raises(Stop):
        desk(on_disk(), script=script).kickoff(run_id="r", answers={left: True})
    crew = desk(on_disk(), script=script)
    assert crew.kickoff(run_id="r").raw == "paid 1 to Ada; paid 2 to Ada"
    assert sorted(PAID) == [(1, "Ada"), (2, "Ada")]
    assert len(crew.tasks[0].agent.llm.calls) == 1, "the reply after both calls is recorded"


def test_what_is_typed_is_read_as_yes_or_no_or_json(on_disk):
    schema = approval.schema_of(payer())
    assert [typed(text, schema) for text in ("y", "No")] == [True, False]
    crew = waiting(on_disk)
    with History(on_disk().location) as history:
        with pytest.raises(AnswerRefused):
            history.answer("r", AT, Typed('{"arguments": {"sum": 90}}'))
        history.answer("r", AT, Typed('{"arguments": {"amount": 90}}'))
    assert crew.kickoff(run_id="r").raw == CHANGED


def test_the_question_is_the_one_that_earlier_releases_asked():
    wider = (approval.schema_of(payer()), approval.verdict_of)
    assert Question("Allow it?", bool).digest == Question("Allow it?", bool, wider=wider).digest


def test_a_fork_may_have_another_verdict(on_disk):
    crew = waiting(on_disk)
    crew.kickoff(run_id="r", answers={AT: True})
    assert crew.fork("r", edits={AT: {"answer": "in cash"}}).kickoff().raw == "in cash"
    assert PAID == [(900, "Ada")]


@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize(
    ("said", "why"), [({"arguments": {"amount": "lots"}}, "fit pay|amount: "), ("whatever", "wanted|valid")]
)
def test_an_edited_verdict_that_does_not_fit_the_tool_is_refused_as_an_answer_is(on_disk, auto, said, why):
    crew = desk(on_disk())
    crew.kickoff(run_id="r", auto_approve=True if auto else None, answers={} if auto else {AT: True})
    with pytest.raises(AnswerRefused, match=why) as refused:
        crew.fork("r", branch="x", edits={AT: said}).kickoff()
    assert (refused.value.address, refused.value.edit) == (AT, True)
    assert "fork again" in str(refused.value)
    assert PAID == [(900, "Ada")]
    edited = {AT: Typed('{"arguments": {"amount": 90}}')}
    assert crew.fork("r", branch="y", edits=edited).kickoff().raw == CHANGED


def test_an_edited_verdict_whose_call_was_made_holds_though_the_tool_takes_other_arguments_now(on_disk):
    crew = desk(on_disk())
    crew.kickoff(run_id="r", answers={AT: True})
    assert crew.fork("r", branch="x", edits={AT: {"arguments": {"amount": 90}}}).kickoff().raw == CHANGED

    @tool(requires_approval=True)
    def pay(amount: bool, to: str) -> str:
        """Pay somebody."""
        raise AssertionError

    who = Agent(role="Cashier", goal="pay", llm=ScriptedLLM(lambda messages: "paid, as I hear"), tools=[pay])
    task = Task(name="t", description="d", expected_output="x", agent=who)
    again = Crew(tasks=[task], checkpoint=on_disk()).fork("r/x", branch="z", rerun=["task:t/llm#2"])
    assert again.kickoff().raw == "paid, as I hear"


def test_a_finished_run_waits_for_nobody_though_a_question_was_left_open(on_disk):
    waiting(on_disk)

    @tool
    def pay(amount: int, to: str) -> str:
        """Pay somebody."""
        return "paid"

    who = Agent(role="Cashier", goal="pay", llm=ScriptedLLM(wanting), tools=[pay])
    crew = Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=who)], checkpoint=on_disk())
    assert crew.kickoff(run_id="r").raw == "paid"
    with History(on_disk().location) as history:
        assert not history.run("r").waiting


def test_a_tool_that_is_not_allowed_asks_nobody_so_no_store_is_wanted():
    who = Agent(role="Cashier", goal="g", llm=ScriptedLLM(lambda _: "ok"), tools=[payer()], allowed_tools=[])
    assert who.kickoff("go").raw == "ok"
    task = Task(name="t", description="d", expected_output="x", agent=who, tools=[payer()])
    assert Crew(tasks=[task]).kickoff().raw == "ok"


# auto_approve


def twice(messages):
    """A model that pays twice."""
    told = [message["content"] for message in messages if message["role"] == "tool"]
    return "; ".join(told) if len(told) == 2 else ToolCall("pay", {"amount": len(told) + 1, "to": "Ada"})


def test_a_kickoff_may_approve_every_call_and_nobody_is_asked():
    with EventRecorder() as heard:
        assert desk(script=twice).kickoff(auto_approve=True).raw == "paid 1 to Ada; paid 2 to Ada"
    assert not heard.of(HumanFeedbackRequestedEvent)
    assert [event.automatic for event in heard.of(HumanFeedbackReceivedEvent)] == [True, True]
    cashier = Agent(role="Cashier", goal="pay", llm=ScriptedLLM(wanting), tools=[payer()])
    assert cashier.kickoff("go", auto_approve=True).raw == "paid 900 to Ada"
    assert [each.raw for each in desk().kickoff_for_each([{}, {}], auto_approve=True)] == ["paid 900 to Ada"] * 2
    with pytest.raises(ConfigError, match="auto_approve is 'yes'"):
        desk().kickoff(auto_approve="yes")


def test_a_resume_approves_as_the_kickoff_did_until_it_is_told_otherwise(on_disk):
    def stopping(messages):
        if any(message["role"] == "tool" for message in messages):
            raise Stop
        return twice(messages)

    for run_id in ("a", "b"):
        with pytest.raises(Stop):
            desk(on_disk(), script=stopping).kickoff(run_id=run_id, auto_approve=True)
    assert desk(on_disk(), script=twice).kickoff(run_id="a").raw == "paid 1 to Ada; paid 2 to Ada"
    with pytest.raises(Suspended, match="human:pay#2"):
        desk(on_disk(), script=twice).kickoff(run_id="b", auto_approve=False)
    with pytest.raises(Suspended):
        desk(on_disk(), script=twice).kickoff(run_id="b")
    answered = {"task:t/human:pay#2": {"answer": "in cash"}}
    result = desk(on_disk(), script=twice).kickoff(run_id="b", answers=answered, auto_approve=True)
    assert result.raw == "paid 1 to Ada; in cash", "what a person has said counts"
    steps = History(on_disk().location).run("b").steps
    assert [step.address for step in steps if step.kind == "human"] == ["task:t/human:pay", "task:t/human:pay#2"]
    assert PAID == [(1, "Ada"), (1, "Ada"), (2, "Ada")]


def test_it_is_kept_when_the_record_is_compacted(on_disk):
    def stopping(messages):
        if any(message["role"] == "tool" for message in messages):
            raise Stop
        return twice(messages)

    with pytest.raises(Stop):
        desk(on_disk(on_events=["*"]), script=stopping).kickoff(run_id="a", auto_approve=True)
    with History(on_disk().location) as history:
        history.prune(keep_last=1)
    assert desk(on_disk(), script=twice).kickoff(run_id="a").raw == "paid 1 to Ada; paid 2 to Ada"


def test_in_a_flow_it_is_for_the_crew_that_is_told_or_for_all_if_the_flow_is(on_disk):
    @flow(checkpoint=on_disk())
    def both(own):
        return [desk().kickoff(auto_approve=own).raw, desk().kickoff().raw]

    with pytest.raises(Suspended) as caught:
        both.kickoff(True, run_id="one")
    assert list(caught.value.waiting) == [f"crew:crew#2/{AT}"]
    assert PAID == [(900, "Ada")]
    assert both.kickoff(None, run_id="all", auto_approve=True) == ["paid 900 to Ada"] * 2
    with pytest.raises(Suspended) as caught:
        both.kickoff(False, run_id="other", auto_approve=True)
    assert list(caught.value.waiting) == [f"crew:crew/{AT}"]


def test_it_approves_calls_and_answers_no_other_question(on_disk):
    @flow(checkpoint=on_disk())
    def publish():
        return ask("Publish?", bool, name="pay")

    with pytest.raises(Suspended):
        publish.kickoff(run_id="one", auto_approve=True)
