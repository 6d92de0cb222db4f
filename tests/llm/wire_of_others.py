"""Rows of the table about Anthropic and Gemini, whose replies have forms of their own."""

from __future__ import annotations

import json

from server import CLOSE, RESET, body, message, overloaded, reply
from wire import KEY, SOON, STREAMED, Row, again, never, row
from wire_streams import SSE

from crewlite.errors import ContextOverflow, LLMAuthError, LLMRejected, LLMUnavailable

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
                words="(status 429): no quota. The service asks to wait 3,600.5 s.",
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
