"""Thoughts of models go back with the next request, unchanged, to the services that want them."""

from __future__ import annotations

import json

import pytest
from server import CLOSE, call, calling, head, message, overloaded, reply
from wire import KEY, OK, TIDES, high_water
from wire_of_others import CLAUDE, USE

from crewlite import LLM, Agent
from crewlite.errors import LLMRejected

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # litellm's, about replies of odd shape

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
