"""A person chooses the remedy: the run waits for the answer, goes on behind it, and asks nothing twice."""

from __future__ import annotations

from functools import partial

import pytest
from click.testing import CliRunner

from crewlite import Agent, CheckpointConfig, Crew, FailurePolicy, History, Task, ToolCall, tool
from crewlite.cli.main import main
from crewlite.errors import AnswerRefused, ConfigError, InDoubt, RecoveryAborted, RecoveryEscalated, RefError, Suspended
from crewlite.events import ToolUsageStartedEvent
from crewlite.flow import flow, recovery_hint, step
from crewlite.ids import now
from crewlite.recovery import Abort, Replan, suspend
from crewlite.state import InMemoryProvider
from crewlite.state.journal.lineage import recorded
from crewlite.state.providers.base import Commit
from crewlite.state.reading.fitting import what_fits
from crewlite.testing import EventRecorder, ScriptedLLM, faults
from tests.cuts import RUN, cut, entries_of


def asked(crew, **kickoff):
    """The address and the text of the question with which the run stops."""
    with pytest.raises(Suspended) as waits:
        crew.kickoff(run_id=RUN, **kickoff)
    ((address, question),) = waits.value.waiting.items()
    return address, question


def tides(calls, checkpoint=True):
    """A crew whose model fails until its prompt holds a hint of a person."""

    def reply(messages):
        calls.append(len(calls))
        if "use the almanac" in messages[-1]["content"]:
            return "11:40"
        raise KeyError("almanac")

    pilot = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(reply))
    ask = Task(name="ask", description="When?", expected_output="A time", agent=pilot)
    return Crew(tasks=[ask], failure_policy=FailurePolicy(default=suspend()), checkpoint=checkpoint)


def test_the_answer_of_a_person_is_the_remedy_and_tells_the_next_attempt_what_to_do():
    calls = []
    address, question = asked(tides(calls))
    assert question == (
        "task:ask/llm#1 failed in try 1: KeyError: 'almanac'. What next? (retry, replan, rollback, escalate, abort; "
        "a hint or a reason may follow, as in 'replan: use the archive')"
    )
    assert asked(tides(calls)) == (address, question)
    with pytest.raises(AnswerRefused, match="wanted retry, replan"):
        tides(calls).kickoff(run_id=RUN, answers={address: "pray"})
    assert tides(calls).kickoff(run_id=RUN, answers={address: "replan: use the almanac"}).raw == "11:40"


def test_a_run_that_waits_for_a_remedy_may_be_killed_at_any_commit():
    setting = CheckpointConfig(location="here", provider=InMemoryProvider())
    address, _ = asked(tides([], setting))
    answers = {address: "replan: use the almanac"}
    whole = tides([], setting).kickoff(run_id=RUN, answers=answers)
    entries = entries_of(setting)
    assert len(entries) > 6
    for at in range(1, len(entries)):
        again = tides([], cut(entries, at)).kickoff(run_id=RUN, answers=answers)
        assert (again.raw, again.token_usage) == (whole.raw, whole.token_usage), f"cut after commit {at}"


def test_each_failure_is_a_question_of_its_own_and_escalation_ends_it():
    @step
    def count() -> int:
        raise KeyError("x" if not recovery_hint() else "y")

    @flow(checkpoint=True, failure_policy=FailurePolicy(default=suspend("The count fails.")))
    def counted() -> int:
        return count()

    first, question = asked(counted)
    assert question.startswith("The count fails. What next? (retry, ")
    second, _ = asked(counted, answers={first: "retry"})
    assert first != second
    with pytest.raises(RecoveryEscalated, match="nobody can count"):
        counted.kickoff(run_id=RUN, answers={second: "escalate: nobody can count"})


def test_what_works_by_the_next_kickoff_needs_no_remedy_unless_a_person_has_answered():
    calls = []

    @step
    def fetch() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("no line")
        return "fetched"

    @flow(checkpoint=True, failure_policy=FailurePolicy(default=suspend()))
    def fetching() -> str:
        return fetch()

    asked(fetching)
    assert fetching.kickoff(run_id=RUN) == "fetched"
    calls.clear()
    with pytest.raises(Suspended) as waits:
        fetching.kickoff(run_id="other")
    with pytest.raises(RecoveryAborted, match="no line.*never mind"):
        fetching.kickoff(run_id="other", answers=dict.fromkeys(waits.value.waiting, "abort: never mind"))
    assert len(calls) == 1


@pytest.mark.parametrize("by", ["kickoff", "history"])
def test_an_answer_counts_for_the_failure_it_was_given_to_though_the_next_would_read_otherwise(by, config):
    calls, setting = [], config()

    @step
    def fetch() -> str:
        calls.append(1)
        raise ConnectionError(f"503, request {len(calls)}")

    @flow(checkpoint=setting, failure_policy=FailurePolicy(default=suspend()))
    def fetching() -> str:
        return fetch()

    earlier, _ = asked(fetching)
    address, question = asked(fetching)
    assert "request 2" in question, (
        "one that nobody has answered is made again, and only the last failure is asked about"
    )
    with History(setting.location, setting.provider) as history:
        assert [open_one.address for open_one in history.run(RUN).waiting] == [address]
        for give in (partial(history.answer, RUN, earlier), lambda said: asked(fetching, answers={earlier: said})):
            with pytest.raises(RefError, match="earlier failure than the last"):
                give("abort")
        if by == "history":
            history.answer(RUN, address, "abort: enough")
    with pytest.raises(RecoveryAborted, match="request 2.*enough"):
        fetching.kickoff(run_id=RUN, answers={address: "abort: enough"} if by == "kickoff" else None)
    assert len(calls) == 2
    with History(setting.location, setting.provider) as history:
        assert history.prune(keep_last=1).freed
        assert not history.run(RUN).waiting, "for an answer to the earlier one"


def test_a_run_in_which_nobody_could_ever_answer_says_so():
    with pytest.raises(ConfigError, match="nobody could ever answer"):
        tides([], checkpoint=None).kickoff()


def test_an_answer_that_names_no_remedy_is_refused_where_it_is_given():
    setting = CheckpointConfig(location="here", provider=InMemoryProvider())
    address, _ = asked(tides([], setting))
    with History(setting.location, setting.provider) as history:
        [question] = history.run(RUN).waiting
        assert what_fits(question.schema).startswith("retry, replan, rollback, escalate, abort; a hint or a reason")
        for wrong in ("perhaps", "retrying", "re: try", "", 7):
            with pytest.raises(AnswerRefused) as refused:
                history.answer(RUN, address, wrong)
            assert wrong == 7 or "wanted retry, replan" in str(refused.value)
        history.answer(RUN, address, " RePlan : use the almanac")
    assert tides([], setting).kickoff(run_id=RUN).raw == "11:40"


def test_a_recorded_answer_that_fits_no_more_may_be_replaced():
    setting = CheckpointConfig(location="here", provider=InMemoryProvider())
    address, _ = asked(tides([], setting))
    _record_answer(setting, address, "perhaps")
    with History(setting.location, setting.provider) as history:
        history.answer(RUN, address, "replan: use the almanac")
    assert tides([], setting).kickoff(run_id=RUN).raw == "11:40"


def _record_answer(setting, address, value):
    """Record an answer as releases did that checked none."""
    store = setting.provider.open(setting.location)
    record = recorded(store, RUN, "main")
    said = {"address": address, "value": value, "at": now().isoformat(), "digest": record.asked[address]["digest"]}
    store.append([Commit.of(RUN, "main", record.head, {"answers": [said]})])


@pytest.mark.parametrize("said", ["replan", "rollback"])
def test_a_bare_word_of_a_person_has_a_hint_made_of_the_failure(said):
    hints = []

    @step
    def count() -> int:
        if not recovery_hint():
            raise KeyError("no almanac")
        hints.append(recovery_hint())
        return 1

    @flow(checkpoint=True, failure_policy=FailurePolicy(default=suspend()))
    def counted() -> int:
        return count()

    address, _ = asked(counted)
    assert counted.kickoff(run_id=RUN, answers={address: said}) == 1
    assert hints == ["The last attempt failed at step:count: 'no almanac'. Do not make the same mistake again."]


class Bare:
    """A policy that gives its remedy no hint."""

    def decide(self, failure, past):
        return Abort() if past else Replan()


def test_a_remedy_of_a_policy_of_ones_own_has_a_hint_too():
    llm = ScriptedLLM(faults(["11:40"], KeyError("almanac")))
    ask = Task(name="ask", description="When?", expected_output="A time", agent=Agent(role="P", goal="g", llm=llm))
    assert Crew(tasks=[ask], failure_policy=Bare()).kickoff().raw == "11:40"
    assert "failed at task:ask/llm#1: 'almanac'" in llm.calls[-1][-1]["content"]


@tool
def fax(text: str) -> str:
    """Fax a text."""
    raise ConnectionError("the fax is down")


@pytest.mark.parametrize("ends", [False, True])
def test_the_question_about_a_tool_says_what_abort_does(ends):
    def reply(messages):
        return ToolCall("fax", {"text": "11"}) if messages[-1]["role"] != "tool" else "It did not work."

    clerk = Agent(role="Clerk", goal="fax", llm=ScriptedLLM(reply), tools=[fax])
    send = Task(name="send", description="Fax it", expected_output="OK", agent=clerk)
    crew = Crew(tasks=[send], checkpoint=True, failure_policy=FailurePolicy(default=suspend()))
    address, question = asked(crew)
    assert question.endswith("; abort alone tells the model, abort with a reason ends the run)")
    with pytest.raises(AnswerRefused, match="wanted retry.*; abort alone tells the model, abort with a reason ends"):
        crew.kickoff(run_id=RUN, answers={address: "wait"})
    if not ends:
        with EventRecorder() as events:
            assert crew.kickoff(run_id=RUN, answers={address: "abort"}).raw == "It did not work."
        assert [event.in_doubt for event in events.of(ToolUsageStartedEvent)] == [False]
        return
    with pytest.raises(RecoveryAborted, match="not today"):
        crew.kickoff(run_id=RUN, answers={address: "abort: not today"})


def paying(calls, setting, *, once=True, raises=ConnectionError):
    """A flow with a call that fails the first two times."""

    def work():
        calls.append(1)
        if len(calls) < 3:
            raise raises("the bank is away")
        return "paid"

    pay = step(effect="once" if once else "idempotent", failure_policy=FailurePolicy(default=suspend()))(work)

    @flow(checkpoint=setting)
    def paid() -> str:
        return pay()

    return paid


def test_a_call_that_may_happen_once_is_made_again_only_when_a_person_says_so():
    setting, calls = CheckpointConfig(location="here", provider=InMemoryProvider()), []
    paid = paying(calls, setting)
    first, question = asked(paid)
    assert "the bank is away" in question
    assert asked(paid) == (first, question)
    assert len(calls) == 1
    second, question = asked(paid, answers={first: "retry"})
    assert (len(calls), "in try 2" in question) == (2, True)
    assert paid.kickoff(run_id=RUN, answers={second: "retry"}) == "paid"
    assert len(calls) == 3


def test_a_tool_that_may_be_called_once_is_called_again_only_when_a_person_says_so():
    setting, calls = CheckpointConfig(location="here", provider=InMemoryProvider()), []

    @tool(effect="once", failure_policy=FailurePolicy(default=suspend()))
    def pay() -> str:
        """Pay."""
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("the bank is away")
        return "paid"

    def reply(messages):
        return messages[-1]["content"] if messages[-1]["role"] == "tool" else ToolCall("pay")

    clerk = Agent(role="Clerk", goal="pay", llm=ScriptedLLM(reply), tools=[pay])
    crew = Crew(tasks=[Task(name="bill", description="Pay", expected_output="OK", agent=clerk)], checkpoint=setting)
    address, question = asked(crew)
    assert asked(crew) == (address, question)
    assert crew.kickoff(run_id=RUN, answers={address: "retry"}).raw == "paid"
    assert len(calls) == 2


def test_a_call_that_may_happen_once_is_not_made_again_by_a_run_that_dies_after_the_answer():
    setting, calls = CheckpointConfig(location="here", provider=InMemoryProvider()), []
    paid = paying(calls, setting)
    first, _ = asked(paid)
    asked(paid, answers={first: "retry"})
    entries, made = entries_of(setting), []
    for at in range(1, len(entries)):
        again = cut(entries, at)
        if not recorded(again.provider.open(again.location), RUN, "main").intents:
            continue
        calls[:] = [1]
        with pytest.raises((Suspended, InDoubt)) as ended:
            paying(calls, again).kickoff(run_id=RUN, answers={first: "retry"})
        made.append((ended.type, len(calls) - 1))
    assert set(made) == {(InDoubt, 0), (Suspended, 0), (Suspended, 1)}


@pytest.mark.parametrize("once", [True, False])
def test_the_failure_that_a_person_is_asked_about_is_listed_and_is_not_in_doubt(once):
    setting, calls = CheckpointConfig(location="here", provider=InMemoryProvider()), []
    asked(paying(calls, setting, once=once))
    with History(setting.location, setting.provider) as history:
        run = history.run(RUN)
        assert [(one.number, one.message) for one in run.attempts if one.kind == "step"] == [(1, "the bank is away")]
        assert run.attempts[0].undecided
        assert {one.address: one.status for one in run.steps}["step:work"] == "failed"
        assert not any("failed-" in one.address for one in run.steps)


def test_a_call_that_failed_and_may_happen_once_says_that_it_failed():
    @step(effect="once")
    def pay() -> None:
        raise ConnectionError("the bank is away")

    @flow(checkpoint=True)
    def paid() -> None:
        pay()

    with pytest.raises(ConnectionError):
        paid.kickoff(run_id=RUN)
    with pytest.raises(InDoubt, match=r"step pay at step:pay failed \(ConnectionError: the bank is away\), and it is"):
        paid.kickoff(run_id=RUN)


def test_a_person_at_the_command_line_hears_once_what_is_wanted_and_sees_the_last_try():
    address, _ = asked(paying([], CheckpointConfig(location="here")))
    refused = CliRunner().invoke(main, ["checkpoint", "answer", RUN, address, "perhaps", "--location", "here"])
    assert (refused.exit_code, refused.output.count("wanted retry, replan")) == (1, 1)
    shown = CliRunner().invoke(main, ["checkpoint", "show", RUN, "--location", "here"])
    assert "try 1, not decided yet" in shown.output
