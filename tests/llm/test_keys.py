"""Keys: looked for before anything is paid, wanted only by who is asked, and the model changed in mid-run."""

from __future__ import annotations

import pytest
from server import chat, error, message, reply

from crewlite import LLM, Agent, Crew, Task
from crewlite.errors import LLMRejected, MissingKey, UnknownProvider
from crewlite.events import StepReplayedEvent
from crewlite.llm import keys
from crewlite.testing import EventRecorder

NAMES = sorted({name for names in keys.NAMES.values() for name in names})


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name in (*NAMES, "OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_API_BASE"):
        monkeypatch.delenv(name, raising=False)


def crew(*models):
    """A crew of tasks t0, t1, ..., each by a model of its own."""
    agents = [Agent(role=f"Pilot {n}", goal="answer", llm=llm) for n, llm in enumerate(models)]
    tasks = [
        Task(name=f"t{n}", description=f"Say {n}", expected_output="a word", agent=a) for n, a in enumerate(agents)
    ]
    return Crew(tasks=tasks, checkpoint=True)


def own(server, model="openai/foo"):
    return LLM(model, base_url=server.base_url)


@pytest.mark.parametrize(
    ("model", "raised", "named"),
    [
        ("openai/gpt-4o", MissingKey, "OPENAI_API_KEY"),
        ("gpt-4o", MissingKey, "OPENAI_API_KEY"),
        ("anthropic/claude-x", MissingKey, "ANTHROPIC_API_KEY"),
        ("gemini/gemini-x", MissingKey, "GEMINI_API_KEY"),
        ("anthropc/claude-x", UnknownProvider, "anthropic/claude-x"),
        ("nonsense", UnknownProvider, "nonsense"),
    ],
)
def test_what_the_last_agent_lacks_is_told_before_the_first_is_asked(serve, model, raised, named):
    server = serve()
    with pytest.raises(raised, match=named):
        crew(own(server), LLM(model)).kickoff(run_id="r")
    assert server.requests == []


def test_a_server_of_ones_own_needs_no_key_and_is_sent_none_of_others(serve, monkeypatch):
    server = serve(reply(chat("one")), reply(chat("two")))
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    assert crew(own(server), LLM("openai/bar")).kickoff().raw == "two"
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer no-key-needed"}


def test_a_login_in_the_address_is_sent_as_a_login_and_shown_to_nobody(serve):
    server = serve(
        reply(chat("hello")), error(401, "no pilot:hunter%2Ftwo2 nor hunter/two2 nor cGlsb3Q6aHVudGVyL3R3bzI=")
    )
    llm = LLM("openai/foo", base_url=server.base_url.replace("//", "//pilot:hunter%2Ftwo2@"))
    assert llm.call("Who?").text == "hello"
    assert server.requests[0].headers["authorization"] == "Basic cGlsb3Q6aHVudGVyL3R3bzI="
    with pytest.raises(LLMRejected) as caught:
        Agent(role="Pilot", goal="answer", llm=llm).kickoff("Who?")
    assert "no pilot:[secret] nor [secret] nor [secret]" in str(caught.value)


def test_a_key_that_is_passed_goes_before_that_of_the_environment(serve, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    server = serve(reply(chat("one")), reply(chat("two")))
    crew(LLM("openai/foo", base_url=server.base_url, api_key="sk-that-was-passed"), own(server)).kickoff()
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer sk-that-was-passed", "Bearer sk-of-the-environment"]


def test_a_finished_run_needs_no_key(serve, monkeypatch):
    server = serve(reply(message({"type": "text", "text": "one"})))
    monkeypatch.setenv("ANTHROPIC_API_BASE", server.address)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    crew(LLM("anthropic/claude-x")).kickoff(run_id="r")
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert crew(LLM("anthropic/claude-x")).kickoff(run_id="r").raw == "one"
    assert len(server.requests) == 1


def test_a_resume_needs_only_the_keys_of_what_is_not_finished(serve, monkeypatch):
    claude = serve(reply(message({"type": "text", "text": "one"})))
    mine = serve(error(400), reply(chat("two")))
    monkeypatch.setenv("ANTHROPIC_API_BASE", claude.address)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    with pytest.raises(LLMRejected):
        crew(LLM("anthropic/claude-x"), own(mine)).kickoff(run_id="r")
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert crew(LLM("anthropic/claude-x"), own(mine)).kickoff(run_id="r").raw == "two"
    assert (len(claude.requests), len(mine.requests)) == (1, 2)


def test_a_model_that_is_changed_in_mid_run_keeps_what_is_paid(serve):
    first, second = serve(reply(chat("one")), error(404)), serve(reply(chat("two")))
    with pytest.raises(LLMRejected):
        crew(own(first, "openai/a"), own(first, "openai/a")).kickoff(run_id="r")
    with EventRecorder() as events:
        result = crew(own(second, "openai/b"), own(second, "openai/b")).kickoff(run_id="r")
    assert [task.raw for task in result.tasks_output] == ["one", "two"]
    assert (len(first.requests), len(second.requests)) == (2, 1)
    replayed = {event.address: event.changed for event in events.of(StepReplayedEvent)}
    assert "task:t0" in replayed
    assert not [address for address in replayed if address.startswith("task:t1")]


@pytest.mark.parametrize("provider", sorted(keys.NAMES))
def test_any_of_the_names_of_a_key_will_do(provider, monkeypatch):
    names = keys.NAMES[provider]
    assert keys.missing(provider, None, None) == names
    assert keys.missing(provider, "passed", None) == keys.missing(provider, None, "http://there") == ()
    for name in names:
        with monkeypatch.context() as patch:
            patch.setenv(name, "k")
            assert keys.missing(provider, None, None) == ()


def test_of_services_that_are_not_known_to_want_a_key_nothing_is_claimed():
    assert keys.missing("bedrock", None, None) == keys.missing("ollama", None, None) == ()
