"""People in the loop: a question suspends the run, its answer is recorded once, and the run goes on from anywhere."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Literal

import pytest
from pydantic import BaseModel

from crewlite import Agent, Crew, History, Task, tool
from crewlite.errors import AnswerRefused, AnswerTimeout, ConfigError, RefError, Suspended
from crewlite.events import FlowPausedEvent, HumanFeedbackReceivedEvent, HumanFeedbackRequestedEvent
from crewlite.flow import ask, flow, step
from crewlite.testing import EventRecorder, ScriptedLLM, ToolCall

ADDRESS = "human:publish"
pytestmark = pytest.mark.usefixtures("no_terminal")


@pytest.fixture
def drafts():
    return []


@pytest.fixture
def report(on_disk, drafts):
    """A flow that drafts, asks whether to publish, and says what was decided."""

    @step
    def draft(topic):
        drafts.append(topic)
        return f"draft about {topic}"

    @flow(checkpoint=on_disk())
    def report(topic, schema=None, timeout=None):
        text = draft(topic)
        return text, ask(f"Publish the {text}?", schema and SCHEMAS[schema], name="publish", timeout=timeout)

    return report


class Verdict(BaseModel):
    publish: bool
    why: str = ""


SCHEMAS = {"bool": bool, "choice": ["yes", "no"], "literal": Literal["yes", "no"], "int": int, "model": Verdict}


def history(report):
    return History(report.checkpoint.location)


def test_a_run_that_nobody_can_answer_suspends_and_says_how_to_go_on(report):
    with pytest.raises(Suspended) as caught:
        report.kickoff("tides", run_id="one")
    assert caught.value.waiting == {ADDRESS: "Publish the draft about tides?"}
    assert "answers={'human:publish': ...}" in str(caught.value)
    with history(report) as found:
        run = found.run("one")
        assert run.status == "waiting"
        assert [(item.address, item.question, item.schema) for item in run.waiting] == [
            (ADDRESS, "Publish the draft about tides?", None)
        ]
        assert run.attempts == []


def test_an_answer_at_kickoff_goes_on_without_doing_anything_twice(report, drafts):
    with pytest.raises(Suspended):
        report.kickoff("tides", run_id="one")
    assert report.kickoff(run_id="one", answers={ADDRESS: "go on"}) == ("draft about tides", "go on")
    assert report.kickoff(run_id="one") == ("draft about tides", "go on")
    assert drafts == ["tides"]


def test_an_answer_may_be_given_ahead(report):
    assert report.kickoff("tides", run_id="one", answers={ADDRESS: "yes"}) == ("draft about tides", "yes")


def test_an_answer_given_to_the_history_is_what_the_run_goes_on_with(report, drafts):
    with pytest.raises(Suspended):
        report.kickoff("tides", "bool", run_id="one")
    with history(report) as found:
        found.answer("one", ADDRESS, True)
        assert found.run("one").waiting == []
    assert report.kickoff(run_id="one") == ("draft about tides", True)
    assert drafts == ["tides"]


@pytest.mark.parametrize(
    ("schema", "fits", "wrong"),
    [
        ("bool", True, "perhaps"),
        ("bool", True, 1),
        ("bool", False, "off"),
        ("choice", "yes", "maybe"),
        ("literal", "no", 7),
        ("int", 3, "three"),
        ("model", {"publish": True, "why": "fine"}, {"why": "fine"}),
        (None, "any text", 7),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_and_the_question_waits(report, schema, fits, wrong):
    with pytest.raises(Suspended):
        report.kickoff("tides", schema, run_id="one")
    with pytest.raises(AnswerRefused):
        report.kickoff(run_id="one", answers={ADDRESS: wrong})
    with history(report) as found:
        with pytest.raises(AnswerRefused):
            found.answer("one", ADDRESS, wrong)
        assert found.run("one").status == "waiting"
        found.answer("one", ADDRESS, fits)
    answer = report.kickoff(run_id="one")[1]
    assert answer == (Verdict(**fits) if schema == "model" else fits)


def test_a_second_answer_is_refused(report):
    with pytest.raises(Suspended):
        report.kickoff("tides", run_id="one")
    with history(report) as found:
        found.answer("one", ADDRESS, "yes")
        with pytest.raises(AnswerRefused, match="has an answer already"):
            found.answer("one", ADDRESS, "no")
        report.kickoff(run_id="one")
        with pytest.raises(AnswerRefused, match="has an answer already"):
            found.answer("one", ADDRESS, "no")
    assert report.kickoff(run_id="one")[1] == "yes"


def test_a_question_that_was_not_asked_is_told_with_those_that_were(report):
    with pytest.raises(Suspended):
        report.kickoff("tides", run_id="one")
    with history(report) as found:
        with pytest.raises(RefError, match="human:publish"):
            found.answer("one", "publish", "yes")
        with pytest.raises(RefError, match="human:publish"):
            found.answer("one", "human:publsh", "yes", ahead=False)


def test_events_tell_of_the_question_the_pause_and_the_answer(report):
    with EventRecorder() as heard, pytest.raises(Suspended):
        report.kickoff("tides", "bool", run_id="one")
    (asked,) = heard.of(HumanFeedbackRequestedEvent)
    assert (asked.question, asked.options) == ("Publish the draft about tides?", {"type": "boolean"})
    (paused,) = heard.of(FlowPausedEvent)
    assert paused.waiting == {ADDRESS: "Publish the draft about tides?"}
    with EventRecorder() as heard:
        report.kickoff(run_id="one", answers={ADDRESS: True})
    assert heard.of(HumanFeedbackRequestedEvent) == []
    assert [event.answer for event in heard.of(HumanFeedbackReceivedEvent)] == [True]


def test_what_runs_beside_a_question_ends_and_is_recorded(on_disk):
    done = []

    @step
    async def slow(n):
        done.append(n)
        return n

    @step
    async def asks():
        return await ask("Well?", name="well")

    @flow(checkpoint=on_disk())
    async def both():
        question, others = asks.submit(), slow.map([1, 2, 3])
        return await question, await others

    with pytest.raises(Suspended):
        both.kickoff(run_id="one")
    assert both.kickoff(run_id="one", answers={"step:asks/human:well": "yes"}) == ("yes", [1, 2, 3])
    assert done == [1, 2, 3]


def test_what_is_not_done_again_behind_a_question_stands_as_it_was_recorded(on_disk):
    word, ran, go = ["a"], [], threading.Event()

    @step
    def work(text):
        ran.append(text)

    @step
    def beside():
        assert go.wait(20)

    @flow(checkpoint=on_disk(on_drift="rerun"))
    def report():
        if word == ["b"]:
            go.clear()
            beside.submit()
            with contextlib.suppress(Suspended):
                ask("Go on?")
        with contextlib.suppress(Suspended):
            work(word[0])
        go.set()
        ask("Go on?")

    for word[0] in ("a", "b", "a"):
        with pytest.raises(Suspended):
            report.kickoff(run_id="one")
    assert ran == ["a"]


def test_several_questions_wait_together(on_disk):
    @step
    async def asks(name):
        return await ask(f"{name}?", name=name)

    @flow(checkpoint=on_disk())
    async def three():
        return await asks.map(["a", "b", "c"])

    with pytest.raises(Suspended) as caught:
        three.kickoff(run_id="one")
    assert list(caught.value.waiting.values()) == ["a?", "b?", "c?"]
    addresses = list(caught.value.waiting)
    with pytest.raises(Suspended) as caught:
        three.kickoff(run_id="one", answers={addresses[1]: "B"})
    assert list(caught.value.waiting) == [addresses[0], addresses[2]]
    assert three.kickoff(run_id="one", answers={addresses[0]: "A", addresses[2]: "C"}) == ["A", "B", "C"]


def test_nobody_in_time_is_an_error_that_the_flow_may_catch_and_stays_one(on_disk):
    @flow(checkpoint=on_disk())
    def patient():
        try:
            return ask("Anybody?", name="any", timeout=0.5)
        except AnswerTimeout as late:
            assert (late.address, late.question, late.limit) == ("human:any", "Anybody?", 0.5)
            return "nobody"

    with pytest.raises(Suspended):
        patient.kickoff(run_id="one")
    time.sleep(0.5)
    assert patient.kickoff(run_id="one") == "nobody"
    with (
        History(patient.checkpoint.location) as found,
        pytest.raises(AnswerRefused, match="nobody answered it in time"),
    ):
        found.answer("one", "human:any", "me")
    with pytest.raises(AnswerRefused, match=r"nobody answered it in time.*edits=\{'human:any': ...\}"):
        patient.kickoff(run_id="one", answers={"human:any": "me"})
    assert patient.kickoff(run_id="one") == "nobody"
    assert patient.fork("one", edits={"human:any": "me"}).kickoff() == "me"


def test_without_a_store_and_a_terminal_nobody_could_ever_answer():
    with pytest.raises(ConfigError, match="checkpoint=True"):
        flow(lambda: ask("Who?")).kickoff()
    with pytest.raises(ConfigError, match="no terminal"):
        ask("Who?")


def test_a_question_that_nobody_could_ever_answer_says_so_where_it_is_asked():
    @step
    def approve(text: str) -> bool:
        return ask(f"Publish {text}?", bool, name="publish")

    @flow
    def publish():
        return approve("news")

    with pytest.raises(ConfigError, match=r"'Publish news\?'\): nobody could ever answer.*checkpoint=True"):
        publish.kickoff()
    assert publish.kickoff(answers={"step:approve/human:publish": True}) is True


def test_a_tool_may_ask(on_disk):
    @tool
    def send(to: str) -> str:
        """Send it."""
        return ask(f"Send to {to}?", name="send")

    def replies(messages):
        said = [message["content"] for message in messages if message["role"] == "tool"]
        return f"sent: {said[0]}" if said else ToolCall("send", {"to": "all"})

    llm = ScriptedLLM(replies)
    agent = Agent(role="Clerk", goal="send", llm=llm, tools=[send])
    crew = Crew(
        tasks=[Task(name="mail", description="Mail", expected_output="done", agent=agent)], checkpoint=on_disk()
    )
    with pytest.raises(Suspended) as caught:
        crew.kickoff(run_id="one")
    (address,) = caught.value.waiting
    assert crew.kickoff(run_id="one", answers={address: "yes, do"}).raw == "sent: yes, do"
    assert len(llm.calls) == 2


# crews


def clerk_crew(config, llm, **tool_options):
    sent = []

    @tool(requires_approval=True, **tool_options)
    def send(to: str) -> str:
        """Send it."""
        sent.append(to)
        return f"sent to {to}"

    agent = Agent(role="Clerk", goal="send", llm=llm, tools=[send])
    task = Task(name="mail", description="Mail", expected_output="done", agent=agent)
    return Crew(tasks=[task], checkpoint=config), sent


def sender(messages):
    said = [message["content"] for message in messages if message["role"] == "tool"]
    return said[0] if said else [ToolCall("send", {"to": "all"})]


@pytest.mark.parametrize("effect", ["none", "idempotent", "once"])
@pytest.mark.parametrize("allowed", [True, False])
def test_a_call_that_needs_approval_waits_for_it_and_is_made_once(on_disk, effect, allowed):
    llm = ScriptedLLM(sender)
    crew, sent = clerk_crew(on_disk(), llm, effect=effect)
    with pytest.raises(Suspended) as caught:
        crew.kickoff(run_id="one")
    assert caught.value.waiting == {"task:mail/human:send": 'Clerk wants to call send with {"to": "all"}. Allow it?'}
    assert sent == []
    crew, sent = clerk_crew(on_disk(), llm, effect=effect)
    result = crew.kickoff(run_id="one", answers={"task:mail/human:send": allowed})
    assert sent == (["all"] if allowed else [])
    assert result.raw == ("sent to all" if allowed else "A person did not allow this call of send. Go on without it.")
    assert len(llm.calls) == 2


def test_a_person_may_want_an_answer_to_be_different_until_nothing_is(on_disk):
    llm = ScriptedLLM(lambda messages: f"draft {sum(m['role'] == 'assistant' for m in messages) + 1}")
    agent = Agent(role="Writer", goal="write", llm=llm)
    task = Task(name="write", description="Write", expected_output="text", agent=agent, human_input=True)
    crew = Crew(tasks=[task], checkpoint=on_disk())
    with pytest.raises(Suspended, match="draft 1"):
        crew.kickoff(run_id="one")
    with pytest.raises(Suspended, match="draft 2"):
        crew.kickoff(run_id="one", answers={"task:write/human#1": "shorter"})
    assert llm.calls[-1][-1] == {"role": "user", "content": "shorter"}
    assert crew.kickoff(run_id="one", answers={"task:write/human#2": ""}).raw == "draft 2"
    assert len(llm.calls) == 2


def test_a_crew_that_asks_people_is_refused_at_kickoff_if_nobody_could_answer():
    crew, _ = clerk_crew(None, ScriptedLLM([]))
    with pytest.raises(ConfigError, match="requires_approval"):
        crew.kickoff()
    agent = Agent(role="Writer", goal="write", llm=ScriptedLLM([]))
    task = Task(description="Write", expected_output="text", agent=agent, human_input=True)
    with pytest.raises(ConfigError, match="human_input"):
        Crew(tasks=[task]).kickoff()


def test_an_answer_is_to_one_question_and_not_to_another_at_its_place(on_disk):
    @flow(checkpoint=on_disk())
    def pay(amount):
        return amount, ask(f"Pay {amount}?", bool, name="pay")

    with pytest.raises(Suspended):
        pay.kickoff(1, run_id="one")
    with History(pay.checkpoint.location) as found:
        found.answer("one", "human:pay", True)
    assert pay.kickoff(run_id="one") == (1, True)
    with pytest.raises(Suspended, match="Pay 1000000") as caught:
        pay.fork("one", branch="dear").kickoff(1_000_000)
    for advice in ("from_checkpoint='one/dear'", "answer('one/dear'"):
        assert advice in str(caught.value)
    with pytest.raises(Suspended, match="Pay 1\\?"):
        pay.fork("one", branch="again", rerun=["human:pay"]).kickoff()
    with History(pay.checkpoint.location) as found:
        found.answer("one/dear", "human:pay", False)
    assert pay.kickoff(from_checkpoint="one/dear") == (1_000_000, False)


def test_an_approval_is_of_one_call_and_not_of_another(on_disk):
    words = ["bob"]

    def crew():
        def replies(messages):
            said = [message["content"] for message in messages if message["role"] == "tool"]
            return said[0] if said else ToolCall("send", {"to": words[0]})

        made, sent = clerk_crew(on_disk(), ScriptedLLM(replies))
        return made, sent

    made, sent = crew()
    with pytest.raises(Suspended):
        made.kickoff(run_id="one")
    with History(on_disk().location) as found:
        found.answer("one", "task:mail/human:send", True)
    made.kickoff(run_id="one")
    assert sent == ["bob"]
    words[:] = ["EVERYBODY"]
    made, sent = crew()
    with pytest.raises(Suspended, match="EVERYBODY"):
        made.fork("one", rerun=["task:mail"]).kickoff()
    assert sent == []


def test_a_run_with_several_open_questions_says_how_to_answer_them_all(on_disk):
    @step
    def approved(page):
        return ask(f"Publish {page}?", bool, name="ok")

    @flow(checkpoint=on_disk())
    def publish(*pages):
        return approved.map(pages).result()

    with pytest.raises(Suspended, match="waits for 2 answers: ") as waits:
        publish.kickoff("ebb", "flood", run_id="r")
    addresses = [*waits.value.waiting]  # in the order in which the steps came to their questions
    assert sorted(addresses) == ["step:approved#2/human:ok", "step:approved/human:ok"]
    assert f"answers={{{addresses[0]!r}: ..., {addresses[1]!r}: ...}}; or answer each with History(" in str(waits.value)
    assert ".answer('r', ADDRESS, ...)" in str(waits.value)
