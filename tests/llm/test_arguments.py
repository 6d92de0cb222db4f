"""Arguments of LLM that programs written for CrewAI pass: what they mean here, and which are refused."""

from __future__ import annotations

import asyncio

import pytest
from server import chat, reply

from crewlite import LLM, Agent, BaseLLM, Crew, FailurePolicy, Task
from crewlite.errors import ConfigError, LLMUnavailable
from crewlite.recovery import Abort, Failure, Retry


def test_max_retries_is_how_often_a_call_is_made_again():
    policy = LLM("openai/m", max_retries=2).failure_policy
    lost = Failure("unavailable", "LLMUnavailable", "503")
    past = []
    while isinstance(remedy := policy.decide(lost, past), Retry):
        past.append(remedy)
    assert (len(past), remedy) == (2, Abort())
    assert LLM("openai/m", max_retries=0).failure_policy.decide(lost, ()) == Abort()
    assert LLM("openai/m").failure_policy is None, "inherits"
    with pytest.raises(ConfigError, match="max_retries is -1; wanted a whole number, 0 or more"):
        LLM("openai/m", max_retries=-1)
    with pytest.raises(ConfigError, match="max_retries and failure_policy both say what follows"):
        LLM("openai/m", max_retries=1, failure_policy=FailurePolicy())


def test_a_setting_that_is_set_later_means_what_it_means_to_the_constructor(serve):
    server = serve(reply(chat("Low water.")), reply(chat("High water.")))
    llm = LLM("openai/m", api_key="key", base_url="http://nobody:secret@127.0.0.1:9/v1")
    llm.base_url, llm.stop, llm.fallbacks = server.base_url, "END", ["offline"]
    assert llm.call("?") == "Low water."
    assert isinstance(llm.fallbacks[0], LLM)
    llm.max_retries = 0
    assert isinstance(llm.failure_policy.decide(Failure("unavailable", "LLMUnavailable", "503"), ()), Abort)
    llm.failure_policy = FailurePolicy()
    assert llm.max_retries is None
    llm.tool_protocol = "text"
    llm.model = "openai/other"
    assert (llm.call("?"), llm.tool_protocol) == ("High water.", "text")
    first, second = (request.body for request in server.requests)
    assert (first["model"], first["stop"], second["model"]) == ("m", ["END"], "other")
    llm.model = "offline"
    assert "no language model was asked" in llm.call("?")
    for name, value in {"temperature": "hot", "timeout": 0, "max_retries": -1, "model": " "}.items():
        with pytest.raises(ConfigError, match=f"LLM: {name} is .*; wanted"):
            setattr(llm, name, value)
    llm.mine = 3
    assert (llm.mine, llm.temperature, llm.model) == (3, None, "offline")


def test_an_argument_for_litellm_that_is_set_later_is_passed_on(serve):
    server = serve(reply(chat("Low water.")))
    llm = LLM("openai/m", api_key="key", base_url=server.base_url, frequency_penalty=1)
    llm.presence_penalty = 0.5
    assert (llm.call("?"), llm.presence_penalty) == ("Low water.", 0.5)
    [body] = [request.body for request in server.requests]
    assert (body["presence_penalty"], body["frequency_penalty"]) == (0.5, 1)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("temprature", "did you mean 'temperature'"),
        ("max_output_tokens", "did you mean 'max_tokens'"),
        ("stop_sequences", "stop="),
        ("api_base", "base_url="),
    ],
)
def test_a_misspelt_setting_that_is_set_later_is_refused_and_a_class_of_the_users_has_its_own(name, hint):
    with pytest.raises(ConfigError, match=f"LLM has no option '{name}' .*{hint}"):
        setattr(LLM("offline"), name, 1)

    class Mine(LLM):
        """A model with attributes of its own."""

    setattr(mine := Mine("offline"), name, 1)
    assert getattr(mine, name) == 1


def test_max_retries_is_recorded_with_the_model_and_rebuilt(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    settings = LLM("openai/m", max_retries=5, temperature=0).plain_settings()
    assert settings == {"model": "openai/m", "max_retries": 5, "temperature": 0}
    assert LLM.of_settings(settings).max_retries == 5
    assert LLM.of_settings(settings).failure_policy == LLM("openai/m", max_retries=5).failure_policy


def test_other_names_of_arguments_are_taken():
    llm = LLM("openai/m", api_base="http://127.0.0.1:1/v1", default_headers={"User-Agent": "curl/8.0"})
    assert (llm.base_url, llm.extra_headers) == ("http://127.0.0.1:1/v1", {"User-Agent": "curl/8.0"})
    assert LLM("openai/m", base_url=None, default_headers=None).base_url is None
    assert (LLM("openai/m", num_retries=3).max_retries, LLM("openai/m", num_retries=None).max_retries) == (3, None)
    with pytest.raises(ConfigError, match=r"LLM: model is None; wanted a name, such as 'openai/gpt-4o'"):
        LLM(None)
    with pytest.raises(ConfigError, match="extra_headers is an int|extra_headers is 3"):
        LLM("openai/m", default_headers=3)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"model": "m", "provider": "openai"}, "openai/m"),
        ({"model": "openai/m", "provider": "openai"}, "openai/m"),
        ({"model": "lab/m", "custom_openai": True, "base_url": "http://127.0.0.1:1/v1"}, "openai/lab/m"),
        ({"model": "google/m", "custom_openai": False}, "gemini/m"),
        ({"model": "m", "provider": "claude"}, "anthropic/m"),
        ({"model": "m", "provider": None}, "m"),
        ({"model": "gemini/m", "provider": "google"}, "gemini/m"),
        ({"model": "google/m", "provider": "gemini"}, "gemini/m"),
        ({"model": "azure/m", "provider": "azure_openai"}, "azure/m"),
        ({"model": "bedrock/m", "provider": "aws"}, "bedrock/m"),
        ({"model": "anthropic/m", "provider": "claude"}, "anthropic/m"),
        ({"model": "openai/m", "provider": "openrouter"}, "openrouter/openai/m"),
        ({"model": "openai/m", "custom_openai": True, "provider": "lab"}, "openai/m"),
        ({"model": "offline", "provider": "openai"}, "offline"),
    ],
)
def test_a_provider_may_be_named_as_in_crewai(given, named):
    assert LLM(**given).model == named


def test_what_is_no_name_of_a_model_or_provider_is_refused():
    with pytest.raises(ConfigError, match="model is 7; wanted a name"):
        LLM(7, provider="openai")
    with pytest.raises(ConfigError, match="provider is 7; wanted a name, such as 'openai'"):
        LLM("m", provider=7)


def test_the_texts_at_which_a_reply_ends_are_given_once():
    assert LLM("m", stop="END", stop_sequences=None).stop == ["END"]
    assert LLM("m", stop_sequences=["END"]).stop == ["END"]
    with pytest.raises(ConfigError, match="give stop or stop_sequences, not both"):
        LLM("m", stop="END", stop_sequences=["STOP"])


def test_a_bare_name_is_asked_at_a_server_of_ones_own(serve):
    server = serve(reply(chat("Low water.")), reply(chat("High water.")))
    llm = LLM("harbour-model", base_url=server.base_url, stop_sequences=["END"])
    assert llm.call("When?") == "Low water."
    assert asyncio.run(llm.acall("And then?")).strip() == "High water."
    first, second = (request.body for request in server.requests)
    assert (first["model"], first["stop"]) == ("harbour-model", ["END"])
    assert second["messages"] == [{"role": "user", "content": "And then?"}]


def test_arguments_that_litellm_takes_are_handed_on_by_name():
    llm = LLM("openai/m", presence_penalty=0.5, n=None, aws_region_name="eu", extra={"top_k": 4})
    assert llm.extra == {"top_k": 4, "presence_penalty": 0.5, "aws_region_name": "eu"}
    with pytest.raises(ConfigError, match="LLM has no option 'temprature' .did you mean 'temperature'"):
        LLM("openai/m", temprature=1)
    with pytest.raises(ConfigError, match="LLM: extra is a"):
        LLM("openai/m", extra="x", presence_penalty=1)


def test_an_argument_like_no_other_is_passed_on_with_a_warning(serve, caplog):
    server = serve(reply(chat("At noon.")))
    llm = LLM("openai/m", foo=1, endpoint=server.base_url, api_key="k")
    assert llm.call("When?") == "At noon."
    assert server.requests[0].body["foo"] == 1
    assert "LLM('openai/m'): no option of LLM, passed on to litellm: foo" in caplog.text
    with pytest.raises(ConfigError, match=r"LLM has no option 'tools' .Agent.tools=\.\.\."):
        LLM("openai/m", tools=[])


def test_arguments_of_single_services_in_crewai_mean_the_same():
    llm = LLM("bedrock/m", region_name="eu", guardrail_config={"guardrailIdentifier": "g"})
    assert llm.extra == {"aws_region_name": "eu", "guardrailConfig": {"guardrailIdentifier": "g"}}
    assert LLM("gemini/m", max_output_tokens=8).max_tokens == 8
    assert LLM("openai/m", api="completions", auto_chain=False).extra == {}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"api": "responses"}, r"chat completions, .*; instead: LLM\('openai/responses/...'\)"),
        ({"project": "p", "location": "l"}, r"'project' .*LLM\('vertex_ai/.* no option 'location' .*vertex_location="),
        ({"additional_params": {"top_k": 1}}, r"instead: LLM\(extra="),
        ({"max_tokens": 1, "max_output_tokens": 2}, "did you mean 'max_tokens'"),
    ],
)
def test_arguments_of_single_services_that_mean_something_else_are_told(given, told):
    with pytest.raises(ConfigError, match=told):
        LLM("gemini/m", **given)


def test_what_a_model_does_not_take_may_be_dropped_as_litellm_drops_it(serve):
    server = serve(reply(chat("Low water.")))
    llm = LLM("openai/m", base_url=server.base_url, stop=["END"], drop_params=True, additional_drop_params=["stop"])
    assert llm.call("When?") == "Low water."
    assert "stop" not in server.requests[0].body


def test_a_model_may_be_asked_to_be_verbose_and_to_go_by_litellm():
    assert LLM("gemini/m", provider="litellm", verbose=True).model == "gemini/m"


def test_the_usual_settings_of_a_model_of_ones_own_can_be_read_where_none_were_given():
    class Own(BaseLLM):
        def call(self, messages):
            return f"{self.temperature} {self.max_tokens} {list(self.stop)}"

    assert Agent(role="Clerk", goal="answer", llm=Own("mine")).kickoff("?").raw == "None None []"
    assert Own("mine", temperature=0.5, stop=["END"]).call([]) == "0.5 None ['END']"
    with pytest.raises(ConfigError, match="Own has no setting 'temprature'; did you mean 'temperature'"):
        Own("mine", temprature=1)


def test_max_retries_holds_in_a_run(serve):
    server = serve(*([[b"HTTP/1.1 503 Busy\r\nretry-after: 0\r\nContent-Length: 0\r\n\r\n"]] * 4))
    llm = LLM("openai/m", base_url=server.base_url, max_retries=1)
    with pytest.raises(LLMUnavailable):
        Agent(role="Clerk", goal="answer", llm=llm).kickoff("?")
    assert len(server.requests) == 2


class Own(BaseLLM):
    endpoint: str = "here"
    token: str

    def call(self, messages, tools=None, callbacks=None, available_functions=None):
        return f"{self.endpoint} {self.temperature}"


def test_a_model_of_ones_own_takes_settings_as_attributes():
    llm = Own("own-1", temperature=0.2, endpoint="there", token="t", stop=["x"])
    assert Agent(role="Clerk", goal="answer", llm=llm).kickoff("?").raw == "there 0.2"
    assert (llm.model, llm.token, llm.stop) == ("own-1", "t", ["x"])
    with pytest.raises(ConfigError, match="Own has no setting 'endpont'; did you mean 'endpoint'"):
        Own(endpont="x")
    with pytest.raises(ConfigError, match="Own has no setting 'region'; correct it, or add it to the class"):
        Own(region="x")


def test_a_model_of_ones_own_is_told_who_asks_and_for_which_task_if_it_takes_that():
    heard = []

    class Curious(BaseLLM):
        def call(self, messages, from_task=None, from_agent=None):
            heard.append((from_agent, from_task))
            return "done"

    who = Agent(role="R", goal="g", llm=Curious())
    task = Task(description="d", expected_output="x", agent=who)
    Crew(tasks=[task]).kickoff()
    who.kickoff("?")
    assert heard == [(who, task), (who, None)]

    class Plain(BaseLLM):
        def call(self, messages):
            return "done"

    assert Agent(role="R", goal="g", llm=Plain()).kickoff("?").raw == "done"
