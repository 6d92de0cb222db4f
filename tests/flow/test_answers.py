"""Answers to people's questions: given ahead, refused and given anew, and never two to one question."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

import pytest
from pydantic import AfterValidator, BaseModel, Field

from crewlite import Agent, CheckpointConfig, Crew, History, Task, durable
from crewlite.errors import AnswerRefused, ConfigError, InDoubt, RefError, Suspended
from crewlite.events import HumanFeedbackReceivedEvent, HumanFeedbackRequestedEvent
from crewlite.flow import Flow, ask, flow, start, step
from crewlite.testing import EventRecorder, ScriptedLLM
from tests.state.wrapped import Wrapped

pytestmark = pytest.mark.usefixtures("no_terminal")


def even(number: int) -> int:
    if number % 2:
        raise ValueError("wanted an even number")
    return number


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Order(BaseModel):
    item: str
    count: int = 1


SCHEMAS = {
    "date": date,
    "moment": datetime,
    "time": time,
    "span": timedelta,
    "id": UUID,
    "colour": Colour,
    "one": Literal["only"],
    "few": Annotated[int, Field(ge=1, le=3)],
    "code": Annotated[str, Field(pattern=r"^[A-Z]{3}$")],
    "short": Annotated[str, Field(min_length=2, max_length=3)],
    "even": Annotated[int, AfterValidator(even)],
    "order": Order,
}


@pytest.fixture
def asker(on_disk):
    @flow(checkpoint=on_disk())
    def asker(schema):
        return ask("Well?", SCHEMAS[schema], name="q")

    return asker


@pytest.fixture
def waiting(asker):
    """Have a run wait with a question of a schema."""

    def suspend(schema):
        with pytest.raises(Suspended):
            asker.kickoff(schema, run_id="one")
        return History(asker.checkpoint.location)

    return suspend


@pytest.mark.parametrize(
    ("schema", "wrong", "fits", "means"),
    [
        ("date", "tomorrow", "2031-02-03", date(2031, 2, 3)),
        ("moment", "noon", "2031-02-03T04:05:06Z", datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)),
        ("time", "noon", "12:00:00", time(12)),
        ("span", "long", "PT0S", timedelta(0)),
        ("id", "me", str(UUID(int=7)), UUID(int=7)),
        ("colour", "green", "blue", Colour.BLUE),
        ("one", "other", "only", "only"),
        ("few", 4, 3, 3),
        ("code", "abc", "ABC", "ABC"),
        ("short", "a", "ab", "ab"),
        ("date", "2031-02-30", date(2031, 2, 3), date(2031, 2, 3)),
        ("order", Colour.RED, Order(item="tea"), Order(item="tea")),
    ],
)
def test_an_answer_is_checked_against_all_that_its_schema_says(asker, waiting, schema, wrong, fits, means):
    with waiting(schema) as found:
        with pytest.raises(AnswerRefused):
            found.answer("one", "human:q", wrong)
        found.answer("one", "human:q", fits)
    assert asker.kickoff(run_id="one") == means


def test_an_answer_that_only_the_run_can_tell_is_wrong_is_refused_there_and_given_anew(asker, waiting):
    with waiting("even") as found:
        found.answer("one", "human:q", 3)
        with pytest.raises(AnswerRefused, match="wanted an even number"):
            asker.kickoff(run_id="one")
        assert found.run("one").status == "waiting"
        with pytest.raises(Suspended):
            asker.kickoff(run_id="one")
        found.answer("one", "human:q", 4)
    assert asker.kickoff(run_id="one") == 4


def test_the_error_of_an_answer_given_ahead_does_not_show_a_secret_among_the_choices(memory, monkeypatch):
    monkeypatch.setenv("MY_API_TOKEN", "tok-9A8b7C6d5E4f")

    @flow(checkpoint=memory())
    def asker():
        return ask("Which?", ["one", "tok-9A8b7C6d5E4f"], name="q")

    with pytest.raises(AnswerRefused, match="'two'") as refused:
        asker.kickoff(run_id="one", answers={"human:q": "two"})
    assert "tok-" not in str(refused.value)


def test_a_recorded_answer_that_the_changed_question_takes_no_more_is_to_be_edited_in_a_fork(memory):
    def kick_off(allowed):
        def may(number: int) -> int:
            if number not in allowed:
                raise ValueError("wanted another number")
            return number

        @flow(checkpoint=memory())
        def asker():
            number = ask("Well?", Annotated[int, AfterValidator(may)], name="q")
            return number, ask("And?", name="r")

        return asker.kickoff(run_id="one", answers={"human:q": 3})

    with pytest.raises(Suspended):
        kick_off([3])
    way_on = "wanted another number. The branch cannot go on with it: for another answer, fork the run with edits="
    for _ in range(2):
        with pytest.raises(AnswerRefused, match=way_on) as refused:
            kick_off([4])
        assert (refused.value.edit, refused.value.second, refused.value.by_run) == (False, True, True)


def test_a_second_answer_is_refused_with_a_way_that_works(asker, waiting):
    """Before the run has used the first answer another may take its place; afterwards it is edited in a fork."""

    def refused(found):
        with pytest.raises(AnswerRefused, match="has an answer already") as caught:
            found.answer("one", "human:q", 6)
        assert "again" not in str(caught.value)
        return str(caught.value)

    with waiting("even") as found:
        assert found.answer("one", "human:q", 4) is True
        assert found.answer("one", "human:q", 4) is False
        assert "history.answer(run, 'human:q', ..., replace=True)" in refused(found)
        with pytest.raises(AnswerRefused, match="replace=True"):
            asker.kickoff(run_id="one", answers={"human:q": 6})
        with pytest.raises(RefError, match=r"history\.answer\(run, 'human:q', \.\.\., replace=True\)"):
            found.fork("one", edits={"human:q": 6})
        assert found.answer("one", "human:q", 2, replace=True) is True
        assert asker.kickoff(run_id="one") == 2
        assert found.answer("one", "human:q", 2, replace=True) is False
        assert "fork the run with edits={'human:q': ...}" in refused(found)
        with pytest.raises(AnswerRefused, match="fork the run"):
            found.answer("one", "human:q", 6, replace=True)
        assert asker.fork("one", edits={"human:q": 6}).kickoff() == 6


def test_an_answer_that_a_fork_has_taken_over_unused_is_replaced_in_the_fork_alone(asker, waiting):
    with waiting("even") as found:
        found.answer("one", "human:q", 4)
        branch = found.fork("one", branch="other")
        found.answer(branch, "human:q", 6, replace=True)
        assert asker.kickoff(from_checkpoint="one/other") == 6
    assert asker.kickoff(run_id="one") == 4


def test_an_answer_to_the_question_before_a_change_is_not_taken_and_that_is_said(memory, caplog):
    @step
    def draft(topic):
        return f"about {topic}"

    @flow(checkpoint=memory())
    def publisher():
        return ask(f"Publish {draft('tides')}?", name="q")

    with pytest.raises(Suspended):
        publisher.kickoff(run_id="one")
    with History(publisher.checkpoint.location, publisher.checkpoint.provider) as found:
        found.answer("one", "human:q", "yes")
    fork = publisher.fork("one", edits={"step:draft": "about moons"}, branch="other")
    with pytest.raises(Suspended, match="Publish about moons"):
        fork.kickoff()
    said = "the answer to human:q was given when it asked 'Publish about tides?'. It asks something else now"
    assert said in caplog.text
    caplog.clear()
    assert fork.kickoff(answers={"human:q": "no"}) == "no"
    assert said not in caplog.text


def test_a_run_lists_the_answers_that_it_has_not_used_yet(two):
    with pytest.raises(Suspended):
        two.kickoff(run_id="one")

    def unused():
        with History(two.checkpoint.location) as found:
            return [(one.address, one.question, one.value) for one in found.run("one").unused_answers]

    with History(two.checkpoint.location) as found:
        assert unused() == []
        found.answer("one", "human:second", 2)
        found.answer("one", "human:first", "a")
    assert unused() == [("human:second", None, 2), ("human:first", "First?", "a")]
    two.kickoff(run_id="one")
    assert unused() == []


def test_a_question_as_its_run_lists_it_can_be_answered(asker, waiting):
    with waiting("even") as found:
        (question,) = found.run("one").waiting
        with pytest.raises(ConfigError, match=r"address is None; wanted the address of a question"):
            found.answer("one", None, 4)
        found.answer("one", question, 4)
    assert asker.kickoff(run_id="one") == 4


# ahead


@pytest.fixture
def two(on_disk):
    """A flow that asks twice."""

    @flow(checkpoint=on_disk())
    def two(second="Second?"):
        return ask("First?", name="first"), ask(second, int, name="second")

    return two


def test_an_answer_given_ahead_at_kickoff_holds_for_later_lives(two):
    with pytest.raises(Suspended) as caught:
        two.kickoff(run_id="one", answers={"human:second": 2})
    assert list(caught.value.waiting) == ["human:first"]
    assert two.kickoff(run_id="one", answers={"human:first": "a"}) == ("a", 2)


def test_an_answer_may_be_recorded_ahead_and_replaced_until_it_is_heard(two):
    with pytest.raises(Suspended):
        two.kickoff(run_id="one")
    with History(two.checkpoint.location) as found:
        found.answer("one", "human:second", 1)
        found.answer("one", "human:second", 2)
        found.answer("one", "human:first", "a")
        assert two.kickoff(run_id="one") == ("a", 2)
        with pytest.raises(RefError):
            found.answer("one", "human:third", 1)


def test_an_answer_given_ahead_is_checked_when_its_question_is_asked(two):
    with pytest.raises(AnswerRefused, match="human:second"):
        two.kickoff(run_id="one", answers={"human:first": "a", "human:second": "many"})
    with History(two.checkpoint.location) as found:
        assert [item.address for item in found.run("one").waiting] == ["human:second"]
        found.answer("one", "human:second", 2)
    assert two.kickoff(run_id="one") == ("a", 2)


def test_a_question_that_was_answered_ahead_is_not_put_to_anybody(two):
    with EventRecorder() as heard:
        two.kickoff(run_id="one", answers={"human:first": "a", "human:second": 2})
    assert heard.of(HumanFeedbackRequestedEvent) == []
    assert [event.answer for event in heard.of(HumanFeedbackReceivedEvent)] == ["a", 2]


def test_an_answer_given_ahead_is_to_the_first_question_at_its_place_and_not_to_another_on_a_fork(two):
    answers = {"human:first": "a", "human:second": 2}
    assert two.kickoff("Pay 1?", run_id="one", answers=answers) == ("a", 2)
    with pytest.raises(Suspended, match="Pay 1000"):
        two.fork("one", branch="dear").kickoff("Pay 1000?")
    assert two.fork("one", branch="cheap").kickoff("Pay 2?", answers={"human:second": 3}) == ("a", 3)


def test_answers_that_nobody_asked_for_are_told_with_the_questions_there_are(two, caplog):
    with pytest.raises(Suspended):
        two.kickoff(run_id="one", answers={"human:frist": "a"})
    assert "an answer was given ahead to human:frist, but the run has not asked this" in caplog.text
    assert "the questions so far are human:first" in caplog.text
    caplog.clear()
    two.kickoff(run_id="one", answers={"human:first": "a", "human:second": 2})
    assert "human:frist" in caplog.text
    assert "human:first, human:second" in caplog.text


def test_an_address_that_can_be_no_question_is_an_error_at_once(two):
    for lives in ("first", "second"):
        with pytest.raises(RefError, match="no question"):
            two.kickoff(run_id="one", answers={"publish": True})
        if lives == "first":
            with pytest.raises(Suspended):
                two.kickoff(run_id="one")


def test_another_answer_to_an_answered_question_is_an_error_and_the_same_one_is_none(two):
    def kickoff(first):
        return two.kickoff(run_id="one", answers={"human:first": first})

    with pytest.raises(Suspended, match="Second"):
        kickoff("a")
    with pytest.raises(Suspended, match="Second"):
        kickoff("a")
    with pytest.raises(AnswerRefused, match="has an answer already"):
        kickoff("b")
    with History(two.checkpoint.location) as found:
        found.answer("one", "human:second", 2)
    with pytest.raises(AnswerRefused, match="has an answer already"):
        two.kickoff(run_id="one", answers={"human:second": 3})
    assert two.kickoff(run_id="one", answers={"human:second": 2}) == ("a", 2)
    assert kickoff("a") == ("a", 2)
    with pytest.raises(AnswerRefused, match="has an answer already"):
        kickoff("b")


def test_the_same_answer_is_known_again_where_its_schema_made_something_else_of_it(asker):
    for _ in range(2):
        assert asker.kickoff("order", run_id="one", answers={"human:q": {"item": "tea"}}) == Order(item="tea")


def test_answers_outlive_a_prune_of_the_detail_they_stand_in(on_disk):
    @step
    def inner():
        return ask("Inner?", name="in")

    @flow(checkpoint=on_disk(on_events=["step_completed"], max_checkpoints=1))
    def outer():
        found = inner(), [step(name=f"s{n}")(lambda: None)() for n in range(3)]
        return found[0], ask("Last?", name="last")

    answers = {"step:inner/human:in": "a", "human:last": "z"}
    with pytest.raises(Suspended):
        outer.kickoff(run_id="one", answers={"step:inner/human:in": "a"})
    with History(outer.checkpoint.location) as found:
        found.prune(keep_last=1)
    assert outer.kickoff(run_id="one", answers=answers) == ("a", "z")
    assert outer.kickoff(run_id="one", answers=answers) == ("a", "z")


def test_secrets_among_the_choices_are_not_written(on_disk):
    config = CheckpointConfig(**on_disk().model_dump(exclude_unset=True), redact=["hunter2-long"])

    @flow(checkpoint=config)
    def pick():
        return ask("Which?", ["plain", "hunter2-long"], name="q")

    with EventRecorder() as heard, pytest.raises(Suspended):
        pick.kickoff(run_id="one")
    with History(config.location) as found:
        assert "hunter2" not in str(found.run("one").waiting[0].schema)
    assert "hunter2" not in str(heard.of(HumanFeedbackRequestedEvent)[0].options)


@pytest.mark.parametrize("way", ["ahead", "kickoff", "history", "masked"])
def test_a_choice_that_holds_a_secret_can_be_chosen_and_is_written_nowhere(on_disk, monkeypatch, way):
    monkeypatch.setenv("SHOP_API_KEY", "hunter2-long")
    runs, config = [], on_disk()

    @step
    def work():
        runs.append(1)
        if len(runs) < 2:
            raise OSError("cut")

    @flow(checkpoint=config)
    def pick():
        chosen = ask("Which?", ["plain", "key hunter2-long"], name="q")
        work()
        return chosen == "key hunter2-long"

    given = {"human:q": "key [secret]" if way == "masked" else "key hunter2-long"}
    if way != "ahead":
        with pytest.raises(Suspended):
            pick.kickoff(run_id="one")
    if way == "history":
        with History(config.location) as found:
            found.answer("one", *next(iter(given.items())))
        given = {}
    with pytest.raises(OSError):
        pick.kickoff(run_id="one", answers=given)
    assert pick.kickoff(run_id="one", answers=given) is True
    assert pick.fork("one", edits={"human:q": "plain"}, branch="plain").kickoff() is False
    assert pick.fork("one/plain", edits={"human:q": "key hunter2-long"}).kickoff() is True
    kept = [config.location] if Path(config.location).is_file() else Path(config.location).rglob("*")
    assert not any(b"hunter2" in Path(path).read_bytes() for path in kept if Path(path).is_file())


def test_choices_that_look_alike_once_their_secrets_are_masked_are_refused(memory, monkeypatch):
    monkeypatch.setenv("SHOP_API_KEY", "hunter2-long")
    monkeypatch.setenv("BANK_API_KEY", "hunter3-long")

    @flow(checkpoint=memory())
    def pick():
        return ask("Which?", ["hunter2-long", "hunter3-long", "none"], name="q")

    with pytest.raises(ConfigError, match=r"look alike once these are masked: \[secret\], \[secret\], none"):
        pick.kickoff(run_id="one")


def test_a_refused_answer_that_holds_a_secret_is_told_without_it(on_disk, monkeypatch):
    monkeypatch.setenv("SHOP_API_KEY", "hunter2-long")
    counted = flow(name="counted", checkpoint=on_disk())(lambda: ask("How many?", int, name="q"))
    with pytest.raises(Suspended):
        counted.kickoff(run_id="one")
    with (
        History(on_disk().location) as found,
        pytest.raises(AnswerRefused, match=r"'\[secret\]' is not of type 'integer'") as by_hand,
    ):
        found.answer("one", "human:q", "hunter2-long")
    with pytest.raises(AnswerRefused, match=r"'\[secret\]' is not of type 'integer'") as at_kickoff:
        counted.kickoff(run_id="one", answers={"human:q": "hunter2-long"})
    assert "hunter2" not in "".join(map(str, (by_hand.value, at_kickoff.value)))


@pytest.mark.parametrize("schema", [[], "yes", 7, Order(item="tea"), object()])
def test_a_schema_that_is_none_is_told_where_it_is_given(on_disk, schema):
    with pytest.raises(ConfigError, match="a type, or a list of choices"):
        flow(name="asks", checkpoint=on_disk())(lambda: ask("q", schema)).kickoff(run_id="one")


# rerun


def test_a_call_in_doubt_of_an_earlier_attempt_is_made_again_without_a_warning(config, caplog):
    """The step around it is tried again, so it has another address."""
    cut = [True]

    @step(effect="once")
    async def pay():
        if cut:
            cut.pop()
            work.cancel()
            await asyncio.sleep(60)
        return 1

    @step(retries=1, retry_delay=0)
    async def around():
        if not durable.scope().past:
            raise ValueError
        return await pay()

    @flow(checkpoint=config())
    async def pipeline():
        return await around()

    async def main():
        nonlocal work
        work = asyncio.ensure_future(pipeline.akickoff(run_id="one"))
        with pytest.raises(asyncio.CancelledError):
            await work
        with pytest.raises(InDoubt) as asks:
            await pipeline.akickoff(run_id="one")
        assert await pipeline.akickoff(run_id="one", rerun=[asks.value.address]) == 1

    work = None
    asyncio.run(main())
    assert caplog.text == ""


def test_what_cannot_run_again_is_told(config, caplog):
    @step
    def pay():
        return 1

    @flow(checkpoint=config())
    def pipeline():
        return pay()

    assert pipeline.kickoff(run_id="one", rerun=["step:payy"]) == 1
    assert "the run has not requested step:payy; the steps so far are step:pay" in caplog.text
    caplog.clear()
    assert pipeline.kickoff(run_id="one", rerun=["step:pay"]) == 1
    assert "step:pay has finished, and is not run again in this run" in caplog.text
    assert "flow.fork('one', rerun=['step:pay']).kickoff()" in caplog.text
    caplog.clear()
    with pytest.raises(RefError, match="step:payy"):
        pipeline.kickoff(run_id="one", rerun=["step:payy"])
    assert caplog.text == ""


def test_of_two_that_answer_at_once_the_later_one_hears_that_there_is_an_answer(memory):
    """Both have read the run before one of them answers."""

    @flow(checkpoint=memory())
    def asking():
        return ask("a?", bool, name="a"), ask("b?", bool, name="b")

    class Overtaken(Wrapped):
        """Another process answers right before the first commit that goes through here."""

        in_memory = True
        others = ["human:a"]

        def _do(self, store, verb, call, args):
            if verb == "append" and self.others:
                with History("memory", self.inner) as history:
                    history.answer("r", self.others.pop(), True)
            return call()

    with pytest.raises(Suspended):
        asking.kickoff(run_id="r")
    with (
        History("memory", Overtaken(memory().provider)) as late,
        pytest.raises(AnswerRefused, match="has an answer already"),
    ):
        late.answer("r", "human:a", False)
    with pytest.raises(Suspended):
        asking.kickoff(run_id="r")
    assert asking.kickoff(run_id="r", answers={"human:b": True}) == (True, True)


def test_of_several_answers_to_one_kickoff_all_are_checked_before_any_is_recorded():
    @flow(checkpoint=True)
    async def both():
        return await asyncio.gather(ask("Count?", int, name="count"), ask("Sure?", bool, name="sure"))

    with pytest.raises(Suspended):
        both.kickoff(run_id="r")
    with History() as history:
        before = history.run("r").digest
        with pytest.raises(AnswerRefused, match="human:count .*'many' is not of type 'integer'"):
            both.kickoff(run_id="r", answers={"human:sure": True, "human:count": "many"})
        assert history.run("r").digest == before
    assert both.kickoff(run_id="r", answers={"human:sure": False, "human:count": 3}) == [3, False]


def test_an_answer_ahead_to_the_name_alone_of_a_question_that_a_method_asks_is_warned_of(caplog):
    class Publish(Flow[dict]):
        checkpoint = True

        @start()
        def begin(self):
            return ask("Go?", bool, name="go")

    with pytest.raises(Suspended):
        Publish().kickoff(run_id="r")
    with History() as history:
        history.answer("r", "human:go", True)
        assert "'r' has not asked this; did you mean 'method:begin/human:go'?" in caplog.text


def test_an_answer_ahead_to_a_misspelt_address_is_warned_of_and_taken_back_by_a_rewind(caplog):
    @step
    def draft():
        return "draft"

    @flow(checkpoint=True)
    def sure():
        return draft(), ask("Sure?", name="sure-1"), ask("Sure?", name="sure-2")

    with pytest.raises(Suspended):
        sure.kickoff(run_id="r")
    with History() as history:
        history.answer("r", "human:sure-2", "yes")
        assert caplog.text == "", "the number is another one on purpose"
        history.answer("r", "human:suer-1", "yes")
        assert (doubt := "'r' has not asked this; did you mean 'human:sure-1'? A rewind takes it back") in caplog.text
        caplog.clear()
        with pytest.raises(Suspended):
            sure.kickoff(run_id="r", answers={"human:suer-1": "yes"})
        assert caplog.text.count(doubt) == 1
        history.rewind("r@step:draft")
        caplog.clear()
        with pytest.raises(Suspended):
            sure.kickoff(run_id="r")
        history.answer("r", "human:sure-1", "yes")
    with pytest.raises(Suspended):
        sure.kickoff(run_id="r")
    assert "suer" not in caplog.text


def test_an_answer_to_a_task_that_the_crew_lacks_is_refused():
    agent = Agent(role="Clerk", goal="g", llm=ScriptedLLM(["a"]))
    task = Task(name="tell", description="d", expected_output="x", agent=agent, human_input=True)
    crew = Crew(tasks=[task], checkpoint=True)
    with pytest.raises(Suspended):
        crew.kickoff(run_id="r")
    with History() as history:
        with pytest.raises(RefError, match="inside no task of run 'r'.*task:tell"):
            history.answer("r", "task:tel/human#1", "yes")
        for run_id in ("r", "new"):
            with pytest.raises(RefError, match=f"inside no task of run '{run_id}'.*task:tell"):
                crew.kickoff(run_id=run_id, answers={"task:tel/human#1": "yes"})
        assert [run.run_id for run in history.runs()] == ["r"]
        history.answer("r", "task:tell/human#1", "yes")


def test_an_answer_to_a_task_that_the_crew_has_now_is_taken_by_a_kickoff():
    def crew(*names):
        agent = Agent(role="Clerk", goal="g", llm=ScriptedLLM(lambda messages: "a"))
        each = {"expected_output": "x", "agent": agent, "human_input": True}
        return Crew(tasks=[Task(name=name, description=name, **each) for name in names], checkpoint=True)

    with pytest.raises(Suspended):
        crew("tell").kickoff(run_id="r")
    crew("tell", "more").kickoff(run_id="r", answers={"task:tell/human#1": "", "task:more/human#1": ""})
