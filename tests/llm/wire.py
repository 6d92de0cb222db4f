"""Rows of the table of what a server can do wrong, and their makers: statuses, connections, bodies, calls of tools."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from server import CLOSE, HANG, RESET, Act, Answer, body, call, calling, chat, cut, drip, error, head, reply

from crewlite import tool
from crewlite.errors import (
    ContentRefused,
    ContextOverflow,
    LLMAuthError,
    LLMEmptyReply,
    LLMError,
    LLMRejected,
    LLMUnavailable,
    MaxIterations,
)

KEY = "sk-canary-0123456789"
PROXY_KEY = "hdr-canary-9876543210"
SECRETS = (KEY, PROXY_KEY)
TIDES = json.dumps({"port": "Brest"})
OK = reply(chat("hello"))
STREAMED = {"stream": True}
SOON = {"retry_after": "0"}  # so that trying again takes no time
JSON = json.dumps(chat("hello")).encode()
LIMIT = 5
"""Seconds that a request may take in the rows that are about time: an answer at once is far below, also on a busy machine."""
TIMED = {"timeout": LIMIT}
IDLE = {"idle_timeout": LIMIT}


@dataclass(frozen=True)
class Row:
    """What the server does, one answer for each request, and what comes of it."""

    name: str
    script: tuple[Answer, ...]
    says: str | None = None
    raises: type[LLMError] | None = None
    tried: str = ""
    """The types of the attempts that failed, in order."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the error knows besides."""
    words: str = ""
    """What the error says, in part."""
    observed: str | None = None
    """What the model is told in the second request about its first tool call, in part."""
    tokens: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    model: str = "openai/foo"
    ok: Answer = tuple(OK)
    """How the server answers in the end."""


def row(name, *script, says="hello", **more):
    return Row(name, script, **{"says": says} | more)


def again(name, first, ok=OK, **more):
    """Tried once more."""
    return Row(name, (first, ok), says="hello", ok=ok, **{"tried": "LLMUnavailable"} | more)


def never(name, answer, raises, **more):
    """Not tried again."""
    return Row(name, (answer,), raises=raises, **{"tried": raises.__name__} | more)


def calls(name, *asked, **more):
    """The reply asks for tools, and the next one answers."""
    return Row(name, (reply(calling(*asked)), OK), says="hello", **more)


def in_a_while(**delta):
    return format_datetime(datetime.now(UTC) + timedelta(**delta), usegmt=True)


def chunked(content: bytes, *end: Act) -> list[Act]:
    """A chunked response of one chunk; what is not there at its end is what `end` says."""
    return [head(200, {"transfer-encoding": "chunked"}) + b"%x\r\n" % len(content) + content, *end]


TOO_LONG = {"object": "error", "message": "too large", "type": "invalid_request_error", "param": None, "code": "3051"}
STATUSES = [
    again("429, Retry-After in seconds", error(429, retry_after="0.01")),
    again("429, Retry-After in milliseconds", error(429, retry_after_ms="10")),
    again("429, Retry-After a date that is over", error(429, retry_after=in_a_while(minutes=-5))),
    again("429, Retry-After is rubbish", error(429, retry_after="soonish")),
    again("429, Retry-After below zero", error(429, retry_after="-3")),
    again("429, no Retry-After", error(429)),
    row(
        "429 for ever",
        *[error(429, "slow down", **SOON)] * 4,
        says=None,
        raises=LLMUnavailable,
        tried="LLMUnavailable " * 4,
        facts={"retry_after": 0},
        words="openai/foo could not answer (status 429): slow down. Start the run again.",
    ),
    never("429, wait an hour", error(429, retry_after="3600"), LLMUnavailable, facts={"retry_after": 3600}),
    never(
        "429, wait for years", error(429, retry_after="2300180000"), LLMUnavailable, words="to wait 2,300,180,000 s."
    ),
    never("429, wait until tomorrow", error(429, retry_after=in_a_while(days=1)), LLMUnavailable, words="asks to wait"),
    never("429, nothing left on the account", error(429, code="insufficient_quota"), LLMAuthError),
    again("408", error(408, **SOON)),
    again("409", error(409, **SOON)),
    again("500", error(500, **SOON)),
    again("500, an empty body", body(b"", 500, **SOON)),
    again("502, a page of a proxy", body(b"<html>bad gateway</html>", 502, content_type="text/html", **SOON)),
    again("503", error(503, **SOON)),
    again("504", error(504, **SOON)),
    again("529", error(529, **SOON)),
    never(
        "400", error(400, "bad seed"), LLMRejected, facts={"status": 400}, words="(status 400): bad seed. Correct the"
    ),
    never("401", error(401), LLMAuthError, facts={"status": 401}),
    never("402", error(402), LLMAuthError, facts={"status": 402}),
    never("403", error(403), LLMAuthError, facts={"status": 403}),
    never("404", error(404, code="model_not_found"), LLMRejected, facts={"status": 404}),
    never("413", error(413), LLMRejected, facts={"status": 413}),
    never("422", error(422), LLMRejected, facts={"status": 422}),
    never("400, too long", error(400, code="context_length_exceeded"), ContextOverflow),
    never("400, against the policy", error(400, code="content_policy_violation"), ContentRefused),
    never("400, filtered by Azure", error(400, code="content_filter"), ContentRefused),
    never("400 that says 503", error(400, "503 rate limit, overloaded, try again", 503), LLMRejected),
    never("400, its message is no text", reply({"error": {"message": {"a": [1]}}}, 400), LLMRejected),
    never("400, its body is a list", reply([1, 2], 400), LLMRejected),
    never("400, in a foreign script", error(400, "不正な要求 \U0001f600"), LLMRejected, words="不正な要求 \U0001f600"),
    never("400, half a character", error(400, "a\ud800b"), LLMRejected, words="(status 400)"),
    never("400, escapes of a terminal", error(400, "\x1b[31mred\x00\u202e"), LLMRejected, words="red"),
    never("400, 100 kB of excuses", error(400, "no " * 33_000), LLMRejected, words="no no no..."),
    never("401, the key in its message", error(401, f"Incorrect API key: {KEY}"), LLMAuthError, words="key: [secret]."),
    never("400, a header in its message", error(400, f"not {PROXY_KEY}"), LLMRejected, words="not [secret]."),
    again("500, the key in its message", error(500, f"while serving {KEY}", **SOON)),
    again("400, what the model wrote of a call cannot be read", error(400, code="tool_use_failed", **SOON)),
    never(
        "400, too long for Mistral", reply(TOO_LONG, 400), ContextOverflow, model="mistral/foo", words=": too large."
    ),
    row("307, which is followed", [head(307, {"location": "/v1/other", "content-length": 0})], OK),
]

CONNECTIONS = [
    again("reset before the answer", [RESET]),
    again("closed before the answer", [CLOSE]),
    again("reset after the headers", [head(200, {"content-length": 500}), 0.05, RESET]),
    again("closed in the middle of the body", cut(OK, -20)),
    again("reset in the middle of the body", cut(OK, -20, RESET)),
    again("a content-length that is too short", [head(200, {"content-length": 30}) + JSON, CLOSE]),
    again("a content-length that is too long", [head(200, {"content-length": len(JSON) + 30}) + JSON, 0.05, CLOSE]),
    again("not HTTP at all", [b"SSH-2.0-OpenSSH_9.6\r\n", CLOSE]),
    again("no answer in time", HANG, tried="LLMTimeout", settings=TIMED),
    again("silence in the body", [OK[0][:200], *HANG], tried="LLMTimeout", settings=TIMED),
    again("a body byte by byte, each in time", drip(OK[0], 0.05), tried="LLMTimeout", settings=TIMED),
    again("headers byte by byte, each in time", drip(head(200), 0.2), tried="LLMTimeout", settings=TIMED),
    row("a body byte by byte, and all of it in time", drip(OK[0], 0.001)),
    row("100-continue first", [head(100), *OK]),
    row("HTTP/1.0, ended by closing", [head(200, version="HTTP/1.0") + JSON, CLOSE]),
    row("compressed", body(gzip.compress(JSON), content_encoding="gzip")),
    again("said to be compressed", body(JSON, content_encoding="gzip")),
    row("in chunks", chunked(JSON, b"\r\n0\r\n\r\n")),
    again("a chunk that is cut", chunked(JSON, 0.05, CLOSE)),
    row("closed after the answer", [*reply(calling(call("high_water", TIDES))), CLOSE], OK),
]

BODIES = [
    again("a web page", body(b"<html>hello</html>", content_type="text/html")),
    again("an empty body", body(b"")),
    again("half a JSON", body(b'{"choices": [')),
    again("{}", reply({})),
    again("a list", reply([])),
    again("a number", reply(7)),
    again("no choices", reply(chat() | {"choices": []})),
    again("choices null", reply(chat() | {"choices": None})),
    again("a choice without a message", reply(chat() | {"choices": [{"index": 0, "finish_reason": "stop"}]})),
    again("message null", reply(chat() | {"choices": [{"index": 0, "message": None}]})),
    again("200, but an error 503", reply({"error": {"message": "overloaded", "code": 503}})),
    never("200, but an error 401", reply({"error": {"message": "no such user", "code": 401}}), LLMAuthError),
    never("200, but too long", reply({"error": {"message": "no", "code": "context_length_exceeded"}}), ContextOverflow),
    # litellm makes a 422 of it, which this is not known to be
    never("200, but an error in words", reply({"error": "overloaded"}), LLMRejected),
    again("content null", reply(chat(None)), tried="LLMEmptyReply"),
    again("content empty", reply(chat("")), tried="LLMEmptyReply"),
    again("nothing but white space", reply(chat(" \n\t")), tried="LLMEmptyReply"),
    again("thoughts, and no reply", reply(chat(None, reasoning_content="hm")), tried="LLMEmptyReply"),
    row("empty for ever", *[reply(chat(""))] * 2, says=None, raises=LLMEmptyReply, tried="LLMEmptyReply LLMEmptyReply"),
    row(
        "nothing within the token limit",
        *[reply(chat("", finish="length"))] * 2,
        says=None,
        raises=LLMEmptyReply,
        tried="LLMEmptyReply LLMEmptyReply",
        words="reached its token limit before any text, as a model does that thinks first. Raise max_tokens=",
    ),
    # litellm cannot read these, and does not say that it was not the connection
    again("content in parts", reply(chat([{"type": "text", "text": "hello"}]))),
    again("usage in words", reply(chat(usage={"prompt_tokens": "many", "completion_tokens": "few"}))),
    never("filtered", reply(chat(None, finish="content_filter")), ContentRefused),
    never("half a reply, filtered", reply(chat("Half", finish="content_filter")), ContentRefused),
    again("half a reply, failed", reply(chat("Half", finish="error"))),
    never("a refusal", reply(chat(None, refusal=f"Not with {KEY}")), ContentRefused, words="Not with [secret]."),
    row("the id of the reply a number", reply(chat() | {"id": 7})),
    row("no finish_reason", reply(chat(finish=None))),
    row("a finish_reason of its own", reply(chat(finish="done_and_dusted"))),
    row("usage", reply(chat()), tokens=12),
    row("no usage", reply(chat(usage=False)), tokens=0),
    row("usage null", reply(chat(usage=None)), tokens=0),
    row("usage of null", reply(chat(usage={"prompt_tokens": None, "completion_tokens": None})), tokens=0),
    row("usage below zero", reply(chat(usage={"prompt_tokens": -7, "completion_tokens": -5})), tokens=0),
    row("half a character", reply(chat("a\ud800b\udfffc")), says="a\ufffdb\ufffdc"),
    row("NUL, escapes, right to left", reply(chat("a\x00b\x1b[31mc\u202ed")), says="a\x00b\x1b[31mc\u202ed"),
    row("five megabytes", reply(chat("x" * 5_000_000)), says="x" * 5_000_000),
    row("the key in the reply", reply(chat(f"your key is {KEY}")), says="your key is [secret]"),
]

TOOLS = [
    calls("a call", call("high_water", TIDES), observed="Brest 11:40"),
    calls("an unknown tool", call("low_water", TIDES), observed="There is no tool 'low_water'"),
    calls("wrong arguments", call("high_water", '{"harbour": 1}'), observed="do not fit high_water"),
    calls("arguments no JSON", call("high_water", "{port: Brest}"), observed="not a JSON object"),
    calls("arguments a list", call("high_water", '["Brest"]'), observed="not a JSON object"),
    calls("arguments empty", call("high_water", ""), observed="do not fit high_water"),
    calls("arguments null", call("high_water", None), observed="do not fit high_water"),
    calls("arguments an object", call("high_water", {"port": "Brest"}), observed="Brest 11:40"),
    row(
        "arguments cut by max_tokens",
        reply(calling(call("high_water", '{"port": "Bre'), finish="length")),
        OK,
        observed="they break off",
    ),
    calls("arguments with half a character", call("high_water", '{"port": "a\\ud800"}'), observed="a\ufffd 11:40"),
    # litellm reads arguments itself, and gives up on these
    again("arguments nested very deeply", reply(calling(call("high_water", '{"port": ' + "[" * 100_000)))),
    calls("name null", call(None, TIDES), observed="There is no tool"),
    calls("name empty", call("", TIDES), observed="There is no tool"),
    calls("a name of odd characters", call("a/b\x00\ud800", TIDES), observed="There is no tool"),
    calls("id null", call("high_water", TIDES, None), observed="Brest 11:40"),
    calls("id a number", call("high_water", TIDES, 7), observed="Brest 11:40"),
    calls("one id for two calls", *[call("high_water", TIDES)] * 2, observed="Brest 11:40"),
    calls("thirty calls", *[call("high_water", TIDES, f"c{n}") for n in range(30)], observed="Brest 11:40"),
    row(
        "a call, and finish_reason stop",
        reply(calling(call("high_water", TIDES), finish="stop")),
        OK,
        observed="Brest 11:40",
    ),
    row("text and a call", reply(chat("Hm", tool_calls=[call("high_water", TIDES)])), OK, observed="Brest 11:40"),
    row("finish_reason tool_calls, and none", reply(chat(finish="tool_calls", tool_calls=[]))),
    row("calls for ever", *[reply(calling(call("high_water", TIDES)))] * 26, says=None, raises=MaxIterations),
]


@tool(effect="none")
def high_water(port: str) -> str:
    """Say when high water is."""
    return f"{port} 11:40"
