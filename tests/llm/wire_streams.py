"""Rows of the table about replies that are streamed."""

from __future__ import annotations

from server import CLOSE, COUNTED, HANG, RESET, body, call, calling, chat, drip, error, head, piece, reply, stream
from wire import IDLE, JSON, LIMIT, OK, SOON, TIDES, TIMED, Row, again, never, row

from crewlite.errors import ContentRefused, ContextOverflow, LLMAuthError, LLMRejected

WORDS = [piece("hel"), piece("lo"), piece(finish="stop")]
DONE = b"data: [DONE]\n\n"
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
        row("no stream, but a whole reply", reply(chat("whole")), says="whole", tokens=12),
        row("no stream, but a whole reply of no type", [head(200), JSON, CLOSE], tokens=12),
        row("no stream, but a whole reply, byte by byte", [OK[0][:80], *drip(OK[0][80:], 0.0005)], tokens=12),
        row("no stream, but a whole reply to litellm's own client", reply(chat()), model="hosted_vllm/foo", tokens=12),
        row("no stream, but a whole call", reply(calling(call("high_water", TIDES))), OK, observed="Brest 11:40"),
        again("no stream, but a whole reply without text", reply(chat("")), tried="LLMEmptyReply"),
        again("no stream, but half a whole reply", [head(200, {"content-type": "application/json"}), JSON[:40], CLOSE]),
        again("no stream, but an error 503 in words", reply({"error": {"message": "overloaded", "code": 503}})),
        never("no stream, but an error 401 in words", reply({"error": {"message": "no", "code": 401}}), LLMAuthError),
        again("no stream, but JSON of something else", reply({"detail": "busy"})),
        row("a stream that is said to be one JSON", [head(200, {"content-type": "application/json"}), *OK_STREAM[1:]]),
        row(
            "a stream that stays open at its end", stream(*WORDS, COUNTED, end=[DONE, *HANG]), tokens=12, settings=IDLE
        ),
        row(
            "a stream that stays open at its end, to litellm's own client",
            stream(*WORDS, COUNTED, end=[DONE, *HANG]),
            model="hosted_vllm/foo",
            tokens=12,
            settings=IDLE,
        ),
        row("a stream that stays open without [DONE]", stream(*WORDS, COUNTED, end=HANG), tokens=12, settings=IDLE),
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
