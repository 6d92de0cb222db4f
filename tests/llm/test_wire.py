"""What a server can do wrong, and what comes of it: one table, over real connections and the real litellm.

Whatever the row, the server was asked exactly so often, the key is nowhere, and a run that failed goes on as soon as
the server answers. Rows that are tried again say so (`again`), and answer at the second try.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from server import (
    CLOSE,
    COUNTED,
    HANG,
    RESET,
    Act,
    Answer,
    Request,
    Server,
    body,
    call,
    calling,
    chat,
    cut,
    drip,
    error,
    head,
    message,
    nobody,
    overloaded,
    piece,
    reply,
    stream,
)

from crewlite import LLM, Agent, CheckpointConfig, History, event_bus, tool
from crewlite.agent.output import LiteAgentOutput
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
from crewlite.events import BaseEvent
from tests import children

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # litellm's, about replies of odd shape

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
        words="openai/foo could not answer (status 429): slow down. The service asks to wait 0 s.",
    ),
    never("429, wait an hour", error(429, retry_after="3600"), LLMUnavailable, facts={"retry_after": 3600}),
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

WORDS = [piece("hel"), piece("lo"), piece(finish="stop")]
OK_STREAM = stream(*WORDS, COUNTED)
SSE = head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})


def streamed(made: Row, **settings) -> Row:
    """The row, asked for as a stream."""
    end = tuple(OK_STREAM)
    return Row(
        **made.__dict__
        | {
            "settings": {"stream": True} | made.settings | settings,
            "script": tuple(end if answer is OK else answer for answer in made.script),
            "ok": end,
        }
    )


def delta(index, arguments, id=None, name=None):
    """A piece of a tool call."""
    head = {"id": id, "type": "function"} if id else {}
    return piece(
        tool_calls=[{"index": index, **head, "function": {"arguments": arguments} | ({"name": name} if name else {})}]
    )


def failing(code, *before):
    return stream(*before, {"error": {"message": "no", "type": "t", "param": None, "code": code}})


STREAMS = [
    streamed(made)
    for made in [
        row("a stream", stream(*WORDS, COUNTED), tokens=12),
        row("a stream without usage", stream(*WORDS)),
        row("a stream without [DONE]", stream(*WORDS, COUNTED, end=[CLOSE])),
        row("a stream with pings", stream(b": ping\n\n", WORDS[0], b": ping\n\n", *WORDS[1:])),
        row("a stream byte by byte", [OK_STREAM[0], *drip(b"".join(OK_STREAM[1:-1]), 0.0005), CLOSE]),
        row(
            "a slow stream, each piece in time",
            stream(*[x for word in "hello" for x in (piece(word), LIMIT / 4)], piece(finish="stop")),
            settings=IDLE,
        ),
        again("a stream, then silence", stream(WORDS[0], end=HANG), tried="LLMTimeout", settings=IDLE),
        again("a stream of silence", stream(end=HANG), tried="LLMTimeout", settings=IDLE),
        again(
            "a stream that is too slow in all",
            stream(*[x for _ in range(90) for x in (piece("x"), LIMIT / 30)]),
            tried="LLMTimeout",
            settings=TIMED,
        ),
        again("a stream that is closed", stream(WORDS[0], end=[CLOSE])),
        again("a stream that is reset", stream(WORDS[0], end=[0.1, RESET])),
        again("a stream without a finish_reason", stream(*WORDS[:2])),
        again("a stream that is cut in a chunk", [SSE + b"fff\r\ndata: {", 0.05, CLOSE]),
        again("a stream with a line that is no JSON", stream(WORDS[0], b"data: {not json\n\n", *WORDS[1:])),
        again("a stream with an error", failing(503, WORDS[0])),
        again("a stream with an error first", failing("server_error")),
        # litellm takes the code of such an error for a number, and raises no error of its own
        again(
            "a stream that OpenRouter says has failed",
            stream(WORDS[0], piece("", finish="error") | {"error": {"code": "server_error", "message": "gone"}}),
            model="openrouter/foo/bar",
        ),
        never("a stream with a 401", failing(401), LLMAuthError, facts={"status": 401}),
        never("a stream that is too long", failing("context_length_exceeded"), ContextOverflow),
        never("a stream that hits a filter", failing("content_filter", WORDS[0]), ContentRefused),
        never("a stream that ends in a filter", stream(piece(""), piece(finish="content_filter")), ContentRefused),
        again("a stream of nothing", stream()),
        again("a stream of an empty reply", stream(piece(""), piece(finish="stop")), tried="LLMEmptyReply"),
        # litellm drops what is refused in a stream
        again("a stream of a refusal", stream(piece(refusal="no"), piece(finish="stop")), tried="LLMEmptyReply"),
        # litellm gives an empty stream for what is none
        again("no stream, but a web page", body(b"<html></html>", content_type="text/html")),
        again("no stream, but a whole reply", reply(chat("whole"))),
        again("no stream, but a 503", error(503, **SOON)),
        never("no stream, but a 400", error(400), LLMRejected),
        row("a stream of half characters", stream(piece("a\ud83d"), piece("\ude00b"), WORDS[2]), says="a\ufffd\ufffdb"),
        row(
            "a stream of calls in pieces",
            stream(
                delta(0, "", "c1", "high_water"),
                delta(0, '{"port": '),
                delta(1, '{"po', "c2", "high_water"),
                delta(0, '"Brest"}'),
                delta(1, 'rt": "Quimper"}'),
                piece(finish="tool_calls"),
            ),
            OK,
            observed="Brest 11:40",
        ),
        row(
            "a stream of calls with one index",
            stream(
                delta(0, '{"port":', "c1", "high_water"),
                delta(0, '"Brest"}'),
                delta(0, '{"port":', "c2", "high_water"),
                delta(0, '"Quimper"}'),
                piece(finish="tool_calls"),
            ),
            OK,
            observed="Quimper 11:40",
        ),
        row(
            "a stream of a call with another id in each piece",
            stream(delta(0, '{"port":', "c1", "high_water"), delta(0, '"Brest"}', "c2"), piece(finish="tool_calls")),
            OK,
            observed="Brest 11:40",
        ),
        row(
            "a stream of calls without ids",
            stream(delta(0, '{"port":', None, "high_water"), delta(0, '"Brest"}'), piece(finish="tool_calls")),
            OK,
            observed="Brest 11:40",
        ),
        row(
            "a stream that max_tokens cuts in a call",
            stream(delta(0, '{"port": "Bre', "c1", "high_water"), piece(finish="length")),
            OK,
            observed="they break off",
        ),
    ]
]

CLAUDE = reply(message({"type": "text", "text": "hello"}))
USE = {"type": "tool_use", "id": "toolu_1", "name": "high_water", "input": {"port": "Brest"}}
ANTHROPIC = [
    Row(**made.__dict__ | {"model": "anthropic/claude-x", "name": f"anthropic: {made.name}", "ok": tuple(CLAUDE)})
    for made in [
        row("text", CLAUDE, tokens=12),
        row("a call", reply(message(USE, stop="tool_use")), CLAUDE, observed="Brest 11:40"),
        again("429", overloaded(429, "rate_limit_error", **SOON), CLAUDE),
        again("529", overloaded(529, "overloaded_error", **SOON), CLAUDE),
        again("500", overloaded(500, "api_error", **SOON), CLAUDE),
        never("429, wait an hour", overloaded(429, "rate_limit_error", retry_after="3600"), LLMUnavailable),
        never(
            "400", overloaded(400, "invalid_request_error", "bad"), LLMRejected, facts={"status": 400}, words=": bad."
        ),
        never("400, too long", overloaded(400, "invalid_request_error", "prompt is too long: 9 > 8"), ContextOverflow),
        never("401", overloaded(401, "authentication_error", f"not {KEY}"), LLMAuthError, words=": not REDACTED."),
        again("reset", [RESET], CLAUDE),
        again("half a JSON", body(b'{"content": ['), CLAUDE),
        again("a web page", body(b"<html>", content_type="text/html"), CLAUDE),
        again("no content", reply(message()), CLAUDE, tried="LLMEmptyReply"),
    ]
]


def candidate(*parts, finish=None):
    """What Gemini says, whole or in a piece."""
    said = {"index": 0, "content": {"role": "model", "parts": list(parts)}} | (
        {"finishReason": finish} if finish else {}
    )
    counted = {"promptTokenCount": 7, "candidatesTokenCount": 5, "totalTokenCount": 12}
    return {"candidates": [said], "usageMetadata": counted, "responseId": "r1"}


def google(status, kind, said="no"):
    return reply({"error": {"code": status, "message": said, "status": kind}}, status, **SOON)


def asking_to_wait(delay):
    """A 429 of Google's, which says in its body how long to wait."""
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    said = {"code": 429, "message": "no quota", "status": "RESOURCE_EXHAUSTED", "details": [{"@type": "q"}, retry]}
    return reply({"error": said}, 429)


def lines(*pieces, end=(b"0\r\n\r\n",)):
    """A stream of chunks, one for each piece."""
    told = [b"data: " + json.dumps(piece).encode() + b"\r\n\r\n" for piece in pieces]
    return [SSE, *(b"%x\r\n%s\r\n" % (len(line), line) for line in told), *end]


GEMINI_OK = reply(candidate({"text": "hello"}, finish="STOP"))
GEMINI_STREAM = lines(candidate({"text": "hel"}), candidate({"text": "lo"}, finish="STOP"))
ASKED = {"functionCall": {"name": "high_water", "args": {"port": "Brest"}}}
GEMINI = [
    Row(**made.__dict__ | {"model": "gemini/g", "name": f"gemini: {made.name}"})
    for made in [
        row("text", GEMINI_OK, tokens=12),
        row("a call", reply(candidate(ASKED, finish="STOP")), GEMINI_OK, observed="Brest 11:40"),
        again("429", google(429, "RESOURCE_EXHAUSTED"), GEMINI_OK),
        *[
            never(
                f"429, wait an hour{', a stream' if streams else ''}",
                asking_to_wait("3600.5s"),
                LLMUnavailable,
                facts={"retry_after": 3600.5},
                words="(status 429): no quota. The service asks to wait 3600.5 s.",
                settings={"stream": streams},
                ok=GEMINI_STREAM if streams else GEMINI_OK,
            )
            for streams in (False, True)
        ],
        again(
            "a call that is not well-formed",
            reply(candidate({"text": "h"}, finish="MALFORMED_FUNCTION_CALL")),
            GEMINI_OK,
        ),
        again("503", google(503, "UNAVAILABLE"), GEMINI_OK),
        again("reset", [RESET], GEMINI_OK),
        again("half a JSON", body(b'{"candidates": ['), GEMINI_OK),
        again("a web page", body(b"<html>", content_type="text/html"), GEMINI_OK),
        never(
            "400, a web page", body(b"<html>no</html>", 400), LLMRejected, words="(status 400): <html>", ok=GEMINI_OK
        ),
        never("400", google(400, "INVALID_ARGUMENT", "bad"), LLMRejected, words="(status 400): bad.", ok=GEMINI_OK),
        never("403", google(403, "PERMISSION_DENIED", f"not {KEY}"), LLMAuthError, ok=GEMINI_OK),
        row("a stream", GEMINI_STREAM, tokens=12, settings=STREAMED),
        again("a stream of nothing", lines(), GEMINI_STREAM, settings=STREAMED),
        # litellm takes every piece for the last: it is the connection that tells of a cut
        again("a cut", lines(candidate({"text": "h"}), end=[0.05, CLOSE]), GEMINI_STREAM, settings=STREAMED),
    ]
]

TABLE = [*STATUSES, *CONNECTIONS, *BODIES, *TOOLS, *STREAMS, *ANTHROPIC, *GEMINI]


@tool(effect="none")
def high_water(port: str) -> str:
    """Say when high water is."""
    return f"{port} 11:40"


@dataclass
class Outcome:
    """What came of a row."""

    said: LiteAgentOutput | None
    error: Exception | None
    later: str | None
    """What the run answered when it was kicked off again, after a failure."""
    tried: str
    requests: list[Request]
    seconds: float
    told: str
    """Everything that anybody could see of it: events, files, the error."""


def outcome_of(made: Row, where: Path) -> Outcome:
    """Play a row: a run of an agent, and another life of it if it failed."""
    heard = list[str]()
    config = CheckpointConfig(location=str(where), on_events=True)
    said, failure, later = None, None, None
    with Server(*made.script) as server:
        base_url = server.base_url if made.model.startswith("openai/") else server.address
        headers = {"X-Proxy": PROXY_KEY}
        llm = LLM(made.model, base_url=base_url, api_key=KEY, extra_headers=headers, **made.settings)
        more = {"tools": [high_water], "checkpoint": config, "respect_context_window": False}
        agent = Agent(role="Pilot", goal="answer", llm=llm, **more)
        with event_bus.on(BaseEvent, lambda source, event: heard.append(repr(event))):
            clock = time.monotonic()
            try:
                said = agent.kickoff("When is high water?", run_id="r")
            except Exception as error:
                failure = error
            seconds, requests = time.monotonic() - clock, list(server.requests)
        with History(str(where)) as history:
            tried = " ".join(attempt.error_type for attempt in history.run("r").attempts if attempt.kind == "llm")
        if isinstance(failure, LLMError) and len(requests) == len(made.script):
            server.script.append(made.ok)
            with contextlib.suppress(Exception):
                later = agent.kickoff(run_id="r").raw
    seen = [*heard, *(path.read_bytes().decode("latin-1") for path in where.rglob("*") if path.is_file())]
    if failure:
        seen += [repr(failure.args), repr(vars(failure)), "".join(traceback.format_exception(failure))]
        seen += [repr(failure.__cause__), repr(failure.__context__)]
    return Outcome(said, failure, later, tried, requests, seconds, "\n".join(seen))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, clients):
    """The whole table, many rows at once: what takes time is waiting. The rows with a limit are played after the others,
    whose work would make even an answer at once too late."""
    played = dict[str, Outcome]()
    for timed in (False, True):
        rows = [made for made in TABLE if bool(made.settings.keys() & {"timeout", "idle_timeout"}) is timed]
        with ThreadPoolExecutor(16) as pool:
            ends = pool.map(outcome_of, rows, [tmp_path_factory.mktemp("row") for _ in rows])
            played |= zip((made.name for made in rows), ends, strict=True)
    return played


@pytest.mark.parametrize("made", TABLE, ids=lambda made: made.name)
def test_what_a_server_does_wrong_ends_as_the_table_says(made, outcomes):
    outcome = outcomes[made.name]
    assert (outcome.said and outcome.said.raw, type(outcome.error)) == (made.says, made.raises or type(None)), (
        outcome.error
    )
    assert outcome.tried.split() == made.tried.split()
    assert len(outcome.requests) == len(made.script)
    assert {name: getattr(outcome.error, name) for name in made.facts} == made.facts
    assert made.words in str(outcome.error or "")
    assert outcome.error is None or len(str(outcome.error)) < 800
    assert not [secret for secret in SECRETS if secret in outcome.told]
    if made.observed:
        assert made.observed in observed(outcome.requests[1])
    if made.tokens is not None:
        assert outcome.said.token_usage.total_tokens == made.tokens
    if made.raises and made.raises is not MaxIterations:
        assert outcome.later == "hello", "a failed run goes on"
        assert outcome.error.__cause__ is outcome.error.__context__ is None


def observed(request: Request) -> str:
    """What the model is told: the texts of the conversation, as they are."""
    return json.dumps(request.body.get("messages") or request.body["contents"], ensure_ascii=False).replace("\\n", "\n")


def test_the_table_is_long_and_its_names_are_distinct():
    assert len({made.name for made in TABLE}) == len(TABLE) >= 40


def test_a_port_where_nobody_listens_is_tried_four_times():
    with nobody() as base_url:
        agent = Agent(role="Pilot", goal="answer", llm=LLM("openai/foo", base_url=base_url), checkpoint=True)
        with pytest.raises(LLMUnavailable, match=r"the connection to 127\.0\.0\.1:\d+ failed: Connection refused\."):
            agent.kickoff("Who?", run_id="r")
    with History(".checkpoints") as history:
        assert [attempt.kind for attempt in history.run("r").attempts] == ["llm"] * 4 + ["agent"]


def test_the_host_is_told_that_was_asked_also_if_the_environment_names_it(monkeypatch):
    with nobody() as address:
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        agent = Agent(role="Pilot", goal="answer", llm=LLM("openai/foo", api_key="k", max_retries=0))
        with pytest.raises(LLMUnavailable, match=rf"the connection to {urlsplit(address).netloc} failed"):
            agent.kickoff("Who?")


ODD = ("a stream", "a stream that is reset", "usage in words", "content in parts", "arguments an object", "no choices")
ODD += ("401, the key in its message", "400, a header in its message", "silence in the body", "anthropic: reset")


def said_by(code, directory, also=""):
    """What a new process prints that runs this code, which may import this module."""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = children.run(
        [sys.executable, "-c", code],
        cwd=directory,
        # litellm, if the code loads it first, would ask the network for prices
        env=os.environ | {"PYTHONPATH": path, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        also=also,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("level", ["WARNING", "DEBUG"])
def test_a_process_says_nothing_on_its_own_and_nothing_secret_at_all(tmp_path, level):
    code = (
        f"import logging, pathlib; logging.basicConfig(level={level!r}); from test_wire import *\n"
        "made = [made for made in TABLE if made.name in ODD]\n"
        "places = [pathlib.Path(str(number)) for number in range(len(made))]\n"
        "with ThreadPoolExecutor(len(made)) as pool: list(pool.map(outcome_of, made, places))\n"
        "assert len(made) == len(ODD)"
    )
    said = said_by(code, tmp_path)
    assert not [secret for secret in SECRETS if secret in said]
    assert said == "" or level == "DEBUG"


def test_if_the_program_loaded_litellm_first_there_is_one_request_and_no_secret_in_a_log_either(tmp_path):
    code = (
        "import logging; logging.basicConfig(level='DEBUG'); import litellm; from test_wire import *\n"
        "with Server([RESET], CLAUDE) as server, contextlib.suppress(LLMUnavailable):\n"
        "    LLM('anthropic/x', base_url=server.address, api_key=KEY).call('Who?')\n"
        "assert len(server.requests) == 1\n"
        "with Server(OK) as server:\n"
        "    LLM('openai/x', base_url=server.base_url, api_key=KEY, extra_headers={'X-Proxy': PROXY_KEY}).call('Who?')"
    )
    said = said_by(code, tmp_path, also="litellm")
    assert not [secret for secret in SECRETS if secret in said]


def test_a_reply_that_was_cut_at_its_token_limit_is_warned_of_once(serve, caplog):
    server = serve(reply(chat("High wa", finish="length")), OK)
    llm = LLM("openai/foo", base_url=server.base_url)
    assert [llm.call("When?").text, llm.call("Who?").text] == ["High wa", "hello"]
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == ["The reply of openai/foo was cut at its token limit (max_tokens)"]


@pytest.mark.parametrize(("model", "sent"), [("openai/gpt-5", None), ("openai/foo", ["\nObservation:"])])
def test_where_to_stop_is_sent_only_to_models_that_take_it(serve, model, sent):
    server = serve(reply(chat("Final Answer: hello")))
    llm = LLM(model, base_url=server.base_url, tool_protocol="text")
    assert Agent(role="Pilot", goal="answer", llm=llm, tools=[high_water]).kickoff("Who?").raw == "hello"
    assert server.requests[0].body.get("stop") == sent


def test_a_stop_of_the_users_own_that_a_model_does_not_take_is_an_error():
    with pytest.raises(LLMRejected, match="stop"):
        LLM("openai/gpt-5", api_key="k", base_url="http://127.0.0.1:9", stop="x").call("Who?")


# what only one of the adapters has


THOUGHT = {"type": "thinking", "thinking": "The almanac \u2013 of course.", "signature": "c2lnbmVk=="}
HIDDEN = {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"}


def sse(*events):
    """A stream of Anthropic's: each event has its type as its name too."""
    lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
    return [head(200, {"content-type": "text/event-stream"}), *lines, CLOSE]


def blocks(*started_and_deltas, stop):
    """The events of a message in pieces: for each block how it starts, and its deltas."""
    made = [{"type": "message_start", "message": message() | {"stop_reason": None}}]
    for index, (start, *deltas) in enumerate(started_and_deltas):
        made.append({"type": "content_block_start", "index": index, "content_block": start})
        made += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        made.append({"type": "content_block_stop", "index": index})
    made.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 5}})
    return sse(*made, {"type": "message_stop"})


THINKING = {
    "whole": (reply(message(THOUGHT, HIDDEN, USE, stop="tool_use")), CLAUDE),
    "streamed": (
        blocks(
            (
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": "The almanac "},
                {"type": "thinking_delta", "thinking": "\u2013 of course."},
                {"type": "signature_delta", "signature": THOUGHT["signature"]},
            ),
            (HIDDEN,),
            (USE | {"input": {}}, {"type": "input_json_delta", "partial_json": TIDES}),
            stop="tool_use",
        ),
        blocks(({"type": "text", "text": ""}, {"type": "text_delta", "text": "hello"}), stop="end_turn"),
    ),
}


@pytest.mark.parametrize("how", THINKING)
def test_signed_thoughts_go_back_with_the_next_request_unchanged(serve, how):
    server = serve(*THINKING[how])
    llm = LLM("anthropic/claude-x", base_url=server.address, api_key=KEY, stream=how == "streamed")
    agent = Agent(role="Pilot", goal="answer", llm=llm, tools=[high_water], checkpoint=True)
    assert agent.kickoff("When is high water?").raw == "hello"
    said = next(part for part in server.requests[1].body["messages"] if part["role"] == "assistant")["content"]
    assert [block for block in said if "thinking" in block["type"]] == [THOUGHT, HIDDEN]
    assert [block["input"] for block in said if block["type"] == "tool_use"] == [{"port": "Brest"}]
    assert server.requests[0].headers["x-api-key"] == KEY


def test_after_a_resume_the_thoughts_are_the_same(serve):
    server = serve(THINKING["whole"][0], overloaded(400, "invalid_request_error"), CLAUDE)
    llm = LLM("anthropic/claude-x", base_url=server.address, api_key=KEY)
    agent = Agent(role="Pilot", goal="answer", llm=llm, tools=[high_water], checkpoint=True)
    with pytest.raises(LLMRejected):
        agent.kickoff("When is high water?", run_id="r")
    assert agent.kickoff(run_id="r").raw == "hello"
    assert server.requests[1].body == server.requests[2].body


DETAILS = [{"type": "reasoning.encrypted", "data": "ZW5j", "id": "rs_1", "format": "google-gemini-v1", "index": 0}]


@pytest.mark.parametrize(
    ("model", "thought", "back"),
    [
        ("deepseek/deepseek-chat", {"reasoning_content": "The moon."}, {"reasoning_content": "The moon."}),
        ("moonshot/kimi-k2-thinking", {"reasoning_content": "The moon."}, {"reasoning_content": "The moon."}),
        (
            "openrouter/foo/bar",
            {"reasoning": "The moon.", "reasoning_details": DETAILS},
            {"reasoning_details": DETAILS},
        ),
        ("openai/foo", {"reasoning_content": "The moon."}, {}),
    ],
)
def test_thoughts_before_a_tool_call_go_back_to_services_that_want_them(serve, model, thought, back):
    server = serve(reply(calling(call("high_water", TIDES), **thought)), OK)
    llm = LLM(model, base_url=server.base_url, api_key=KEY, tool_protocol="native")
    assert Agent(role="Pilot", goal="answer", llm=llm, tools=[high_water]).kickoff("When is high water?").raw == "hello"
    said = next(part for part in server.requests[1].body["messages"] if part["role"] == "assistant")
    assert {name: value for name, value in said.items() if name.startswith("reasoning")} == back
