"""A resume that is refused costs nothing: the next life goes on where the one before it was, with all that is paid."""

from __future__ import annotations

import pytest

from crewlite import Agent, Crew, History, Task, ToolCall, tool
from crewlite.errors import (
    ConfigError,
    MissingKey,
    NoModel,
    NonDeterminism,
    ScriptExhausted,
    Suspended,
    TaskDrifted,
    UnknownProvider,
)
from crewlite.events import StepFailedEvent
from crewlite.flow import ask, flow, step
from crewlite.testing import EventRecorder, ScriptedLLM


class Worded(Exception):
    """What a program makes of an error."""


def crew_of(llm, question="One"):
    agent = Agent(role="Worker", goal="work", llm=llm)
    asked = (("one", question), ("two", "Two"))
    return Crew(
        name="pair",
        tasks=[Task(name=n, description=d, expected_output="text", agent=agent, context=[]) for n, d in asked],
    )


def in_flow(work, config):
    return flow(name="outer", checkpoint=config)(work)


def in_step(work, config):
    inner = step(name="inner")(work)
    return flow(name="outer", checkpoint=config)(lambda: inner())


def in_step_in_its_own_words(work, config):
    @step
    def inner():
        try:
            return work()
        except Exception as error:
            raise Worded("it did not work") from error

    return flow(name="outer", checkpoint=config)(lambda: inner())


def in_step_with_retries(work, config):
    @step(retries=2)
    def inner():
        try:
            return work()
        except ConfigError as error:
            raise Worded("it did not work") from error

    return flow(name="outer", checkpoint=config)(lambda: inner())


def in_tool(work, config):
    @tool
    def delegate() -> str:
        """Have others do it."""
        return work()

    script = ScriptedLLM(lambda said: ToolCall("delegate") if said[-1]["role"] == "user" else said[-1]["content"])
    boss = Agent(role="Boss", goal="lead", llm=script, tools=[delegate])
    task = Task(name="lead", description="Lead", expected_output="text", agent=boss)
    return Crew(name="outer", tasks=[task], checkpoint=config)


def breaks():
    raise ConfigError("a program that is wrong")


PLACES = pytest.mark.parametrize("place", [in_flow, in_step, in_step_in_its_own_words, in_step_with_retries, in_tool])
REFUSALS = pytest.mark.parametrize(
    ("refused", "expected"),
    [
        (lambda: crew_of("openai/gpt-4o").kickoff().raw, MissingKey),
        pytest.param(*(lambda: crew_of("nonsense/model").kickoff().raw, UnknownProvider), marks=pytest.mark.litellm),
        (lambda: crew_of(None).kickoff().raw, NoModel),
        (breaks, ConfigError),
    ],
    ids=["no key", "no such provider", "no model", "the program is wrong"],
)


@pytest.fixture(autouse=True)
def _without_a_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def cut(place, config):
    """A first life, in which one of two tasks is paid."""
    with pytest.raises((ScriptExhausted, Worded)):
        place(lambda: crew_of(ScriptedLLM(["paid"])).kickoff().raw, config).kickoff(run_id="one")


def went_on(place, config, question="One"):
    """How many calls a last life makes, in which all goes well."""
    llm = ScriptedLLM(lambda messages: "paid")
    place(lambda: crew_of(llm, question).kickoff().raw, config).kickoff(run_id="one")
    return len(llm.calls)


@PLACES
@REFUSALS
def test_what_is_paid_inside_a_step_is_kept_when_a_resume_is_refused(place, refused, expected, memory):
    config = memory()
    cut(place, config)
    for _ in range(2):
        with pytest.raises((expected, Worded)):
            place(refused, config).kickoff(run_id="one")
    assert went_on(place, config) == 1


@PLACES
def test_a_changed_question_is_refused_inside_a_step_every_time(place, memory):
    config = memory(on_drift="error")
    cut(place, config)
    for _ in range(3):
        llm = ScriptedLLM([])
        with pytest.raises((TaskDrifted, Worded)):
            place(lambda llm=llm: crew_of(llm, "Another").kickoff().raw, config).kickoff(run_id="one")
        assert not llm.calls
    assert went_on(place, config) == 1


def test_a_refused_resume_is_told_and_recorded_as_a_failed_try(memory):
    config = memory()
    cut(in_step, config)
    with EventRecorder() as heard, pytest.raises(ConfigError):
        in_step(breaks, config).kickoff(run_id="one")
    assert [(event.address, event.error_type) for event in heard.of(StepFailedEvent)] == [("step:inner", "ConfigError")]
    assert went_on(in_step, config) == 1
    with History(config.location, config.provider) as history:
        run = history.run("one")
        tries = [(a.number, a.error_type, a.for_author) for a in run.attempts if a.address == "step:inner"]
    assert tries == [(1, "ScriptExhausted", True), (2, "ConfigError", True)]
    assert not [view.address for view in run.steps if "!" in view.address]


def test_a_try_that_failed_by_itself_is_begun_anew_and_a_refusal_behind_it_keeps_what_that_paid(memory):
    config = memory()

    def fails():
        crew_of(ScriptedLLM(["paid", "paid"])).kickoff()
        raise Worded("for no reason")

    with pytest.raises(Worded):
        in_step(fails, config).kickoff(run_id="one")
    with pytest.raises(ScriptExhausted):
        in_step(lambda: crew_of(ScriptedLLM(["paid"])).kickoff().raw, config).kickoff(run_id="one")
    with pytest.raises(ConfigError):
        in_step(breaks, config).kickoff(run_id="one")
    assert went_on(in_step, config) == 1


def test_other_code_is_told_before_it_does_something_new(on_disk, ran):
    @step
    def pay():
        ran.append("pay")

    @step
    def refund():
        ran.append("refund")

    @flow(checkpoint=on_disk(), name="order")
    def before():
        pay()
        return ask("On?", name="on")

    @flow(checkpoint=on_disk(), name="order")
    def after():
        refund()
        return ask("On?", name="on")

    with pytest.raises(Suspended):
        before.kickoff(run_id="one")
    with pytest.raises(NonDeterminism, match="step:pay.*step:refund"):
        after.kickoff(run_id="one", answers={"human:on": "yes"})
    assert ran == ["pay"]
