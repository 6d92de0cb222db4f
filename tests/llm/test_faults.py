"""What is thought about requests, replies and errors, without a wire."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from crewlite import LLM
from crewlite.errors import ConfigError, ContentRefused, LLMRejected, LLMUnavailable
from crewlite.llm import faults, wire

TEXTS = st.text(st.characters())  # halves of characters among them
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | TEXTS, lambda inner: st.lists(inner, max_size=3))


# how long to wait


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"Retry-After": "7"}, 7),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "-7"}, 0),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e400"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:37 GMT"}, 0),
        ({"retry-after": "Sun, 06 Nov 1994"}, None),
        ({"retry-after": "Fri, 99 Foo 2024 99:99:99 GMT"}, None),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7),
        ({"retry-after-ms": "nan"}, None),
        ({"x-ratelimit-reset": "7"}, None),
    ],
)
def test_the_wait_is_read_out_of_the_headers(headers, seconds):
    assert faults.retry_after(headers) == seconds


@given(st.integers(1, 10**6))
def test_a_date_is_so_many_seconds_from_now(seconds):
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    assert seconds - 2 <= faults.retry_after({"retry-after": format_datetime(at, usegmt=True)}) <= seconds


@given(st.text(), st.sampled_from(["retry-after", "retry-after-ms"]))
def test_whatever_the_headers_say_the_wait_is_none_or_seconds(text, name):
    wait = faults.retry_after({name: text})
    assert wait is None or 0 <= wait < float("inf")


# errors


class Exceptions:
    class Timeout(Exception): ...

    class ContextWindowExceededError(Exception): ...

    class ContentPolicyViolationError(Exception): ...


def typed(text, kind=Exception, **fields):
    error = kind(text)
    vars(error).update(fields)
    return faults.typed(error, "m", Exceptions, lambda text: text.replace("sk-1", "[secret]"), 5.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("litellm.BadRequestError: OpenAIException - bad seed", "bad seed"),
        ("litellm.APIConnectionError: APIConnectionError: OpenAIException - x Original exception: y: z", "x"),
        ("litellm.BadRequestError: ContextWindowExceededError: OpenAIException - too long", "too long"),
        ("litellm.RateLimitError: litellm.RateLimitError: xException - slow", "slow"),
        ("litellm.APIError: AzureException Internal server error - down", "down"),
        ("litellm.RateLimitError: BedrockException: Rate Limit Error - slow", "slow"),
        ("litellm.BadRequestError: Cloudflare Exception - bad", "bad"),
        ("seed: 7 - that is bad", "seed: 7 - that is bad"),
        ('litellm.BadRequestError: AnthropicException - {"error": {"message": "bad"}}', "bad"),
        ('litellm.NotFoundError: Ollama_chatException - {"error": "no such model"}', "no such model"),
        ('litellm.BadRequestError: MistralException - {"object": "error", "message": "too large"}', "too large"),
        ('litellm.RateLimitError: VertexAIException - b\'{"error": {"message": "slow"}}\'', "slow"),
        ('{"error": {"message": 7}}', '{"error": {"message": 7}}'),
        ("Invalid response object Traceback (most recent call last):\n  File x", "Invalid response object"),
        ("Traceback (most recent call last):\n  File x", "Exception"),
        ("no such key: sk-1.", "no such key: [secret]"),
        ("two\n\n  lines", "two lines"),
        ("", "Exception"),
    ],
)
def test_what_the_other_side_said_is_told_and_not_how_it_came_here(text, said):
    assert typed(text, status_code=400, litellm_response_headers={}).said == said


@given(st.text(), st.integers(400, 599), st.none() | st.text() | st.integers())
def test_the_kind_of_an_error_follows_from_its_status_and_code_and_not_from_its_words(text, status, code):
    fields = {"status_code": status, "litellm_response_headers": {}, "body": {"code": code}}
    assert type(typed(text, **fields)) is type(typed("rate limit, try again", **fields))


def test_what_was_sent_counts_and_not_what_was_made_of_it():
    error = Exception("rate limit")
    error.status_code, error.litellm_response_headers = 429, {}
    error.__context__ = Exception()
    error.__context__.status_code = 400
    assert faults.typed(error, "m", Exceptions, str, None).status == 400


def caused(*causes, heard=False, **fields):
    """The error that litellm makes, without an answer, of what was raised because of what."""
    error = last = Exception("litellm.APIConnectionError: it went wrong")
    vars(error).update(fields)
    for cause in causes:
        last.__context__, last = cause, cause
    return faults.typed(error, "m", Exceptions, str, 5.0, host="there:8000", heard=heard)


@pytest.mark.parametrize(
    "cause",
    [ValueError("bad"), TypeError("bad"), ModuleNotFoundError("bad"), UnicodeEncodeError("ascii", "é", 0, 1, "b")],
)
def test_what_could_not_be_sent_is_not_tried_again_unless_an_answer_had_begun(cause):
    error = caused(cause)
    assert (type(error), error.status) == (LLMRejected, None)
    assert str(error).startswith("m could not be asked: it went wrong. ")
    assert type(caused(cause, heard=True)) is LLMUnavailable


def test_what_went_wrong_in_reading_an_answer_may_work_later():
    assert type(caused(json.JSONDecodeError("bad", "{", 1))) is type(caused(KeyError("choices"))) is LLMUnavailable


def test_a_reply_that_is_no_json_is_told_as_that_whatever_status_litellm_makes_up():
    told = str(caused(json.JSONDecodeError("Expecting value", "<html>", 0), status_code=422))
    assert told.startswith("m could not answer: there:8000 sent something else than a chat completion (no JSON: Expect")


def test_a_reply_in_another_shape_is_told_as_that():
    told = str(caused(KeyError("content")))
    assert told.startswith("m could not answer: there:8000 sent something else than a chat completion (KeyError: ")
    assert "Invalid response object" in str(
        typed("x.APIError: Invalid response object Traceback (most recent call last): y")
    )


@pytest.mark.parametrize(
    ("cause", "why"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9)"), "Connection refused"),
        (ConnectionResetError(104, "x"), "Connection reset by peer"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
    ],
)
def test_a_connection_that_failed_is_told_with_the_host_and_the_reason(cause, why):
    error = caused(RuntimeError("Connection error."), cause)
    assert type(error) is LLMUnavailable
    assert f"the connection to there:8000 failed: {why}." in str(error)


# settings


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"temprature": 1}, "no option 'temprature' .did you mean 'temperature'"),
        ({"tool_protocol": "texts"}, "'native' or 'text'"),
        ({"temperature": "hot"}, "temperature is a str"),
        ({"temperature": float("nan")}, "temperature is nan; wanted a number"),
        ({"top_p": True}, "top_p is True"),
        ({"max_tokens": 1.5}, "max_tokens is 1.5; wanted a whole number"),
        ({"stop": [7]}, "stop is a list"),
        ({"timeout": "600"}, "timeout is a str"),
        ({"timeout": 0}, "timeout is 0; wanted seconds"),
        ({"idle_timeout": -1.0}, "idle_timeout is -1.0"),
        ({"stream": "no"}, "stream is a str that does not fit; wanted True or False"),
        ({"base_url": "not a url"}, "base_url is a str"),
        ({"base_url": "http://u:p@[x/"}, "base_url is a str that does not fit; wanted an address"),
        ({"base_url": "http://here:port"}, "base_url is a str"),
        ({"extra": ["n"]}, "extra is a list"),
        ({"extra_headers": "X-A: b"}, "extra_headers is a str"),
        ({"extra_headers": {"X-A": 7}}, "extra_headers is a dict"),
        ({"extra": {"num_retries": 2}}, "extra holds 'num_retries', which crewlite sets itself; use failure_policy="),
        ({"extra": {"api_key": "sk-1"}}, "use api_key="),
        ({"extra": {"api_base": "http://there"}}, "use base_url="),
        ({"extra": {"stream": True}}, "use stream="),
        ({"extra": {"tools": []}}, r"use Agent\(tools="),
        ({"extra": {"messages": []}}, "use the agent"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_when_it_is_made(setting, said):
    with pytest.raises(ConfigError, match=said):
        LLM("openai/foo", **setting)


# requests


@given(st.lists(st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "tool"]), "content": TEXTS})))
def test_every_conversation_can_be_sent(messages):
    json.dumps(wire.messages_for(messages, "openai"), ensure_ascii=False).encode()


@given(st.dictionaries(TEXTS, VALUES, max_size=3))
def test_the_arguments_of_a_call_are_sent_as_json(arguments):
    calls = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}]
    (sent,) = wire.messages_for([{"role": "assistant", "content": "", "tool_calls": calls}], "openai")
    assert sent["content"] is None
    assert isinstance(json.loads(sent["tool_calls"][0]["function"]["arguments"]), dict)


def test_what_is_sent_is_a_copy():
    calls = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": {"a": [1]}}}]
    message = {"role": "assistant", "content": "", "tool_calls": calls, "name": "Pilot"}
    wire.messages_for([message], "openai")
    assert message == {"role": "assistant", "content": "", "tool_calls": calls, "name": "Pilot"}
    assert calls[0]["function"]["arguments"] == {"a": [1]}


@pytest.mark.parametrize(("provider", "there"), [("anthropic", True), ("openai", False)])
def test_thoughts_go_back_only_to_the_service_that_signed_them(provider, there):
    carried = {"provider": "anthropic", "fields": {"thinking_blocks": [{"thinking": "hm", "signature": "s"}]}}
    (sent,) = wire.messages_for([{"role": "assistant", "content": "a", "carried": carried}], provider)
    assert "carried" not in sent
    assert ("thinking_blocks" in sent) is there


@given(st.text(), st.text())
def test_no_output_closes_the_fence_around_it(output, name):
    fenced = wire.fenced(f"{output}</tool_output>{output}<TOOL_OUTPUT>", name)
    assert fenced.lower().count("<tool_output") == fenced.lower().count("</tool_output") == 1
    assert fenced.startswith('<tool_output tool="')
    assert fenced.endswith("\n</tool_output>")


def test_a_schema_is_named_as_services_want_names():
    made = wire.schema_for({"title": "Tide Table[int]" + "x" * 90, "type": "object"})["json_schema"]
    assert made["name"].startswith("Tide_Table_int_x")
    assert len(made["name"]) == 64
    assert wire.schema_for({"type": "object"})["json_schema"]["name"] == "answer"
    assert wire.schema_for({"type": "array"}) is None


# replies


def response(content="hello", reason="stop", usage=None, **message):
    said = SimpleNamespace(content=content, **{"tool_calls": None} | message)
    return SimpleNamespace(id="r1", usage=usage, choices=[SimpleNamespace(message=said, finish_reason=reason)])


@pytest.mark.parametrize("empty", [None, SimpleNamespace(), SimpleNamespace(choices=[]), SimpleNamespace(choices=None)])
def test_a_response_without_a_reply_is_none(empty):
    with pytest.raises(LLMUnavailable):
        wire.reply_of(empty, "m", "openai", None)


@given(TEXTS)
def test_every_text_can_be_kept(text):
    wire.reply_of(response(text), "m", "openai", None).text.encode()


@pytest.mark.parametrize("count", [-1, None, "many", 1.5, float("nan"), [1]])
def test_a_count_that_is_none_counts_nothing(count):
    usage = SimpleNamespace(prompt_tokens=count, completion_tokens=3)
    assert wire.reply_of(response(usage=usage), "m", "openai", None).usage.total_tokens == 3


@pytest.mark.parametrize("said", ["half", ""])
def test_what_is_filtered_is_refused_also_if_half_of_it_was_said(said):
    with pytest.raises(ContentRefused):
        wire.reply_of(response(said, "content_filter"), "m", "openai", None)
