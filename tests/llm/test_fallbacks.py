"""Models to ask when one fails for good: in order, each with a budget of its own, over the lives of a run."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from server import HANG, chat, error, reply

from crewlite import LLM, Agent, History
from crewlite.cli.main import main
from crewlite.errors import LLMAuthError, LLMRejected, LLMUnavailable, MissingKey
from crewlite.events import LLMCallCompletedEvent, LLMCallFailedEvent, LLMCallStartedEvent
from crewlite.testing import EventRecorder, ScriptedLLM

BUSY = error(503, retry_after="0")
KEYS = ("sk-canary-first-1", "sk-canary-second-2")


def pilot(*addresses, **settings):
    """An agent whose model `openai/a` has the fallbacks `openai/b`, ..., each at an address of its own."""
    models = [
        LLM(f"openai/{name}", base_url=address, api_key=KEYS[number % 2])
        for number, (name, address) in enumerate(zip("abc", addresses, strict=False))
    ]
    models[0].fallbacks = tuple(models[1:])
    return Agent(role="Pilot", goal="answer", llm=models[0], checkpoint=True)


def test_each_has_the_whole_budget_in_order_and_the_reply_says_whose_it_is(serve):
    first, second, third = serve(*[BUSY] * 4), serve(error(400)), serve(BUSY, reply(chat("hello")))
    with EventRecorder() as events:
        said = pilot(first.base_url, second.base_url, third.base_url).kickoff("Who is there?", run_id="r")
    assert said.raw == "hello"
    assert [len(server.requests) for server in (first, second, third)] == [4, 1, 2]
    assert [server.requests[0].body["model"] for server in (first, second, third)] == ["a", "b", "c"]
    assert [event.model for event in events.of(LLMCallStartedEvent)] == ["openai/a"]
    assert [event.model for event in events.of(LLMCallCompletedEvent)] == ["openai/c"]
    assert events.of(LLMCallFailedEvent) == []
    with History(".checkpoints") as history:
        attempts = history.run("r").attempts
    assert [attempt.error_type for attempt in attempts] == ["LLMUnavailable"] * 4 + ["LLMRejected", "LLMUnavailable"]
    assert [attempt.number for attempt in attempts] == [1, 2, 3, 4, 5, 6]
    assert [attempt.model for attempt in attempts] == ["openai/a"] * 4 + ["openai/b", "openai/c"]
    shown = CliRunner().invoke(main, ["checkpoint", "show", "r"]).stdout
    assert f"  {attempts[4].address}  try 5, openai/b, tried again" in shown.splitlines()
    assert not [attempt for attempt in attempts if attempt.final]


def test_when_all_have_failed_the_last_error_is_told_and_the_next_kickoff_begins_with_the_first(serve):
    first, second = serve(error(401), reply(chat("hello"))), serve(error(422))
    agent = pilot(first.base_url, second.base_url)
    with pytest.raises(LLMRejected) as caught:
        agent.kickoff("Who is there?", run_id="r")
    assert (caught.value.model, caught.value.status) == ("openai/b", 422)
    assert agent.kickoff(run_id="r").raw == "hello"
    assert [len(server.requests) for server in (first, second)] == [2, 1]


def test_a_wait_that_is_too_long_for_one_is_no_wait_for_the_next(serve):
    first, second = serve(error(429, retry_after="3600")), serve(reply(chat("hello")))
    assert pilot(first.base_url, second.base_url).kickoff("Who?").raw == "hello"
    assert len(first.requests) == 1


def test_a_fallback_is_asked_anew_for_each_call(serve):
    first = serve(error(400), reply(chat("I am back")))
    agent = pilot(first.base_url, serve(reply(chat("hello"))).base_url)
    assert [agent.kickoff(text).raw for text in ("Who?", "And now?")] == ["hello", "I am back"]


def test_killed_at_a_fallback_a_resume_goes_on_with_it_and_with_what_is_left_of_its_budget(serve, kill_at):
    first, second = serve(*[BUSY] * 4), serve(BUSY, BUSY, HANG, BUSY, BUSY, reply(chat("hello")))
    code = "import sys; from test_fallbacks import pilot; pilot(*sys.argv[1:]).kickoff('Who?', run_id='r')"
    kill_at(second, 3, code, first.base_url, second.base_url)
    assert len(first.requests) == 4
    with pytest.raises(LLMUnavailable):  # two tries were left: the one that was cut is not counted
        pilot(first.base_url, second.base_url).kickoff(run_id="r")
    assert (len(first.requests), len(second.requests)) == (4, 5)
    with History(".checkpoints") as history:
        calls = [attempt for attempt in history.run("r").attempts if attempt.kind == "llm"]
    assert [attempt.number for attempt in calls] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_the_key_of_a_fallback_is_masked_too(serve, caplog):
    caplog.set_level("DEBUG")
    echo = f"no {KEYS[0]} nor {KEYS[1]}"
    first, second = serve(error(400, echo)), serve(error(401, echo))
    with EventRecorder() as events, pytest.raises(LLMAuthError) as caught:
        pilot(first.base_url, second.base_url).kickoff("Who?", run_id="r")
    with History(".checkpoints") as history:
        recorded = [(attempt.message, attempt.traceback) for attempt in history.run("r").attempts]
    seen = repr((str(caught.value), vars(caught.value), recorded, list(events), caplog.text))
    assert "no [secret] nor [secret]" in str(caught.value)
    assert not [key for key in KEYS if key in seen]


def test_a_reply_of_a_fallback_with_the_key_of_another_is_masked(serve):
    first, second = serve(error(400)), serve(reply(chat(f"I know {KEYS[0]} and {KEYS[1]}")))
    with EventRecorder() as events:
        said = pilot(first.base_url, second.base_url).kickoff("Who?")
    assert said.raw == "I know [secret] and [secret]"
    (told,) = events.of(LLMCallCompletedEvent)
    assert told.response == said.raw
    assert told.usage == said.token_usage.by_agent["Pilot"].to_record(), "what was used stays known"
    assert told.usage["requests"] == 1


def test_a_key_that_a_fallback_lacks_is_told_before_anything_is_paid(serve, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    first = serve()
    llm = LLM("openai/a", base_url=first.base_url, fallbacks=["anthropic/claude-x"])
    with pytest.raises(MissingKey, match="ANTHROPIC_API_KEY"):
        Agent(role="Pilot", goal="answer", llm=llm, checkpoint=True).kickoff("Who?")
    assert first.requests == []


def test_a_fallback_may_be_any_model():
    spare = ScriptedLLM(["hello"], model="spare")
    llm = ScriptedLLM([LLMRejected("x", 400, "no")], model="first")
    llm.fallbacks = (spare,)
    with EventRecorder() as events:
        assert Agent(role="Pilot", goal="answer", llm=llm).kickoff("Who?").raw == "hello"
    assert [event.model for event in events.of(LLMCallCompletedEvent)] == ["spare"]


def test_fallbacks_of_fallbacks_are_asked_depth_first_and_each_once():
    def failing(name, *fallbacks):
        llm = ScriptedLLM([LLMRejected(name, 400, "no")] * 2, model=name)
        llm.fallbacks = fallbacks
        return llm

    deep, last = failing("c"), ScriptedLLM(["hello"], model="last")
    second = failing("b", deep)
    first = failing("a", second, deep, last)
    deep.fallbacks = (first,)
    with EventRecorder() as events:
        assert Agent(role="Pilot", goal="answer", llm=first, checkpoint=True).kickoff("Who?", run_id="r").raw == "hello"
    assert [event.model for event in events.of(LLMCallCompletedEvent)] == ["last"]
    assert [len(llm.calls) for llm in (first, second, deep, last)] == [1, 1, 1, 1]
    with History(".checkpoints") as history:
        assert [attempt.message.split(":")[0][:1] for attempt in history.run("r").attempts] == ["a", "b", "c"]


def test_a_final_failure_tells_of_the_model_that_failed():
    llm = ScriptedLLM([LLMRejected("first", 400, "no")], model="first")
    llm.fallbacks = (ScriptedLLM([LLMRejected("spare", 422, "no")], model="spare"),)
    with EventRecorder() as events, pytest.raises(LLMRejected):
        Agent(role="Pilot", goal="answer", llm=llm).kickoff("Who?")
    assert [event.model for event in events.of(LLMCallStartedEvent)] == ["first"]
    assert [event.model for event in events.of(LLMCallFailedEvent)] == ["spare"]
