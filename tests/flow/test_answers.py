"""Answers to people's questions: checked, refused and given anew, and never two to one question."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from typing import Annotated, Literal
from uuid import UUID

import pytest
from pydantic import AfterValidator, BaseModel, Field

from crewlite import Agent, Crew, History, Task, durable
from crewlite.errors import AnswerRefused, ConfigError, InDoubt, RefError, Suspended
from crewlite.flow import ask, flow, step
from crewlite.state.reading.fitting import Typed
from crewlite.testing import ScriptedLLM
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


def test_a_question_as_its_run_lists_it_can_be_answered(asker, waiting):
    with waiting("even") as found:
        (question,) = found.run("one").waiting
        with pytest.raises(ConfigError, match=r"address is None; wanted the address of a question"):
            found.answer("one", None, 4)
        found.answer("one", question, 4)
    assert asker.kickoff(run_id="one") == 4


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


def test_an_answer_at_a_misspelt_step_is_told_the_question_inside_it(on_disk):
    @step
    def approved(page):
        return ask(f"Publish {page}?", bool, name="ok")

    @flow(checkpoint=on_disk())
    def publish(page):
        return approved(page)

    with pytest.raises(Suspended):
        publish.kickoff("ebb", run_id="r")
    with pytest.raises(RefError, match="did you mean 'step:approved/human:ok'"):
        publish.kickoff(run_id="r", answers={"step:aproved": True})
    assert publish.kickoff(run_id="r", answers={"step:approved/human:ok": True}) is True
