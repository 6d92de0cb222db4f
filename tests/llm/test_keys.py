"""Keys: looked for before anything is paid, wanted only by who is asked, and the model changed in mid-run."""

from __future__ import annotations

import sys

import pytest
from pydantic import SecretStr
from server import chat, error, message, reply

from crewlite import LLM, Agent, Crew, History, Task
from crewlite.errors import ConfigError, LLMAuthError, LLMRejected, MissingKey, UnknownProvider
from crewlite.events import StepReplayedEvent
from crewlite.llm import keys
from crewlite.llm.base import with_fallbacks
from crewlite.llm.models import resolve_llm
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
        ("perplexity/sonar", MissingKey, "PERPLEXITY_API_KEY or PERPLEXITYAI_API_KEY"),
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
    assert keys.missing(provider, "passed", None) == ()
    assert keys.missing(provider, None, "http://there") == (names if provider in keys.ACCOUNTS else ())
    for name in names:
        with monkeypatch.context() as patch:
            patch.setenv(name, "k")
            assert keys.missing(provider, None, None) == ()


@pytest.mark.parametrize("provider", ["gemini", "groq", "perplexity", "github", "sambanova", "anthropic"])
def test_any_service_at_an_address_of_ones_own_needs_no_key(serve, provider):
    part = {"content": {"parts": [{"text": "hello"}], "role": "model"}, "finishReason": "STOP"}
    said = {
        "anthropic": message({"type": "text", "text": "hello"}),
        "gemini": {"candidates": [part], "usageMetadata": {"promptTokenCount": 7, "totalTokenCount": 12}},
        "groq": chat("hello") | {"service_tier": "auto"},
    }
    server = serve(reply(said.get(provider, chat("hello"))))
    assert LLM(f"{provider}/x", base_url=server.base_url).call("Who?").text == "hello"
    assert "no-key-needed" in " ".join(server.requests[0].headers.values())


def test_an_address_of_an_account_needs_a_key_and_what_stands_for_one_will_do(serve):
    server = serve(reply(chat("hello")))
    address = {"base_url": server.address, "api_version": "2024-10-21"}
    with pytest.raises(MissingKey, match="AZURE_API_KEY or AZURE_OPENAI_API_KEY or AZURE_AD_TOKEN"):
        LLM("azure/x", **address).call("Who?")
    assert LLM("azure/x", **address, extra={"azure_ad_token": "ad-token"}).call("Who?").text == "hello"
    assert server.requests[0].headers["authorization"] == "Bearer ad-token"


def test_a_key_is_sent_without_the_white_space_around_it(serve):
    server = serve(reply(chat("hello")))
    LLM("openai/foo", base_url=server.base_url, api_key=" sk-0123456789\n").call("Who?")
    assert server.requests[0].headers["authorization"] == "Bearer sk-0123456789"


@pytest.mark.parametrize("key", ["sk-clé-0123456789", "sk-0123\n456789", SecretStr("sk-\u2026"), b"sk-0123456789", 7])
def test_what_can_be_no_key_is_refused_and_not_shown(key):
    with pytest.raises(ConfigError, match="api_key") as caught:
        LLM("openai/foo", api_key=key)
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize("wrong", ["sk-0123456789", [{"model": "openai/x", "api_key": "sk-0123456789"}], 7])
def test_fallbacks_that_are_none_are_refused_and_not_shown(wrong):
    with pytest.raises(ConfigError, match="fallbacks (is|holds) an? (str|dict|int)") as caught:
        LLM("openai/foo", fallbacks=wrong)
    assert "sk-" not in str(caught.value)


def test_what_is_no_model_is_refused_and_not_shown():
    with pytest.raises(ConfigError, match="has a dict as llm") as caught:
        resolve_llm([{"api_key": "sk-0123456789"}], agent="Pilot")
    assert "sk-" not in str(caught.value)


def test_fallbacks_of_fallbacks_are_looked_at_too_and_may_go_round():
    first, second = LLM("openai/a", api_key="k"), LLM("openai/b", api_key="k")
    first.fallbacks, second.fallbacks = (second,), (first, LLM("openai/c"))
    with pytest.raises(MissingKey, match="openai/c"):
        Agent(role="Pilot", goal="answer", llm=first).kickoff("Who?")
    assert [model.model for model in with_fallbacks(first)] == ["openai/a", "openai/b", "openai/c"]


@pytest.mark.parametrize(
    ("model", "raised", "said"),
    [
        ("deepinfra/x", LLMAuthError, "could not be asked: no key was found for it. Check the key"),
        ("huggingface/x", LLMRejected, "could not be asked: not enough values"),
        ("vertex_ai/gemini-pro", LLMRejected, "could not be asked: .*google"),
    ],
)
def test_what_is_missing_and_found_only_in_asking_is_told_once(model, raised, said, monkeypatch):
    monkeypatch.delenv("DEEPINFRA_API_KEY", raising=False)
    monkeypatch.setitem(sys.modules, "google", None)
    with pytest.raises(LLMRejected, match=said) as caught:
        Agent(role="Pilot", goal="answer", llm=model, checkpoint=True).kickoff("Who?", run_id="r")
    assert type(caught.value) is raised
    with History(".checkpoints") as history:
        assert [attempt.kind for attempt in history.run("r").attempts if attempt.kind == "llm"] == ["llm"]


def test_of_services_that_are_not_known_to_want_a_key_nothing_is_claimed():
    assert keys.missing("bedrock", None, None) == keys.missing("ollama", None, None) == ()
