"""Crews over servers that others wrote: real litellm, real HTTP, and the server's own word for what it was asked.

The same tests run over each server. Where one cannot take part, EXCEPT says why.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import sys
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel

from tests import children

sys.path.insert(0, str(Path(__file__).parent))
from peers import Aimock, Llmock, Turn, started  # noqa: E402

from crewlite import LLM, Agent, Crew, Task, tool  # noqa: E402
from crewlite.errors import LLMUnavailable  # noqa: E402
from crewlite.events import (  # noqa: E402
    LLMCallCompletedEvent,
    LLMStreamChunkEvent,
    ToolUsageFinishedEvent,
)
from crewlite.testing import EventRecorder, RecordedLLM  # noqa: E402

# of litellm's own types, when it puts a stream together
pytestmark = pytest.mark.filterwarnings("ignore:Item.* is using the `ReadOnly` qualifier:UserWarning")

KEY = "sk-any-key-will-do"
MODELS = {
    "openai": "openai/gpt-4o-mini",
    "anthropic": "anthropic/claude-sonnet-4-5",
    "gemini": "gemini/gemini-2.5-flash",
    "mistral": "mistral/mistral-large-latest",
    "cohere_chat": "cohere_chat/command-r-plus",
}
KINDS = {kind.name: kind for kind in (Aimock, Llmock)}
EXCEPT = {
    ("aimock", "gemini", "tools"): "it reads functionCall alone, and litellm sends the other spelling, function_call",
    ("any", "cohere_chat", "stream"): "litellm does not read the lines of Cohere's streams that begin with 'event:'",
}
TURNS = (
    Turn("Reckon", [("add", {"a": 1, "b": 2}), ("double", {"n": 5})]),
    Turn("Reckon", "3 and 10", after="10"),
    Turn("Announce", [("add", {"a": 3, "b": 10})]),
    Turn("Announce", "Thirteen in all.", after="13"),
)


def alike(*what: str):
    """Every server as every provider, whole and streamed, but for what is excepted."""
    cases = []
    for kind, provider, stream in itertools.product(KINDS, MODELS, (False, True)):
        wanted = {*what, *(["stream"] if stream else [])}
        if any(name in ("any", kind) and played == provider and one in wanted for name, played, one in EXCEPT):
            continue
        ident = f"{kind}-{provider}-{'stream' if stream else 'whole'}"
        cases.append(pytest.param(kind, provider, stream, id=ident))
    return pytest.mark.parametrize(("peer", "provider", "stream"), cases, indirect=["peer"])


whole_and_stream = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@pytest.fixture(scope="module")
def running():
    """A server of each kind, started when it is first wanted."""
    with contextlib.ExitStack() as stack:
        yield cache(lambda kind: stack.enter_context(started(kind)))


@pytest.fixture(params=KINDS)
def peer(request, running):
    kind = KINDS[request.param]
    if kind.command(0) is None:
        pytest.skip(f"needs {kind.needs}")
    peer = running(kind)
    peer.reset()
    return peer


aimock_only = pytest.mark.parametrize("peer", ["aimock"], indirect=True)
llmock_only = pytest.mark.parametrize("peer", ["llmock"], indirect=True)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def double(n: int) -> int:
    """Double a number."""
    return 2 * n


def model_of(peer, provider="openai", **settings):
    settings = {"timeout": 20, "api_key": KEY, "base_url": peer.base(provider)} | settings
    return LLM(MODELS[provider], **settings)


def crew_of(llm, **fields):
    clerk = Agent(role="Clerk", goal="count", llm=llm, tools=[add, double])
    reckon = Task(name="reckon", description="Reckon.", expected_output="Numbers", agent=clerk)
    announce = Task(name="announce", description="Announce.", expected_output="A line", agent=clerk, context=[reckon])
    return Crew(tasks=[reckon, announce], **fields)


def pilot_of(llm):
    return Agent(role="Pilot", goal="answer", llm=llm)


def statuses(peer):
    return [heard.status for heard in peer.heard()]


@alike("tools")
def test_all_providers_answer_alike(peer, provider, stream):
    peer.script(*TURNS)
    with EventRecorder() as events:
        result = crew_of(model_of(peer, provider, stream=stream)).kickoff()
    assert [output.raw for output in result.tasks_output] == ["3 and 10", "Thirteen in all."]
    assert result.token_usage.requests == 4
    assert statuses(peer) == [200] * 4
    used = [(event.tool_name, event.output) for event in events.of(ToolUsageFinishedEvent)]
    assert sorted(used[:2]) == [("add", "3"), ("double", "10")]
    assert used[2:] == [("add", "13")]
    told = "".join(event.chunk for event in events.of(LLMStreamChunkEvent))
    assert told == ("3 and 10Thirteen in all." if stream else "")


@alike()
def test_all_providers_answer_in_text_alike(peer, provider, stream):
    peer.script(Turn("When", "High water at 11:40."))
    assert pilot_of(model_of(peer, provider, stream=stream)).kickoff("When?").raw == "High water at 11:40."
    assert statuses(peer) == [200]


def test_the_server_saw_the_tools_the_calls_and_their_fenced_results(peer):
    peer.script(*TURNS)
    crew_of(model_of(peer)).kickoff()
    first, second, *_ = [heard.body for heard in peer.heard()]
    assert [one["function"]["name"] for one in first["tools"]] == ["add", "double"]
    asked, *results = second["messages"][-3:]
    assert [call["function"]["name"] for call in asked["tool_calls"]] == ["add", "double"]
    assert [one["tool_call_id"] for one in results] == [call["id"] for call in asked["tool_calls"]]
    assert [one["content"] for one in results] == [
        '<tool_output tool="add">\n3\n</tool_output>',
        '<tool_output tool="double">\n10\n</tool_output>',
    ]


@whole_and_stream
def test_a_429_is_tried_again_and_the_server_counts_the_tries(peer, stream):
    peer.script(Turn("When", "At 11:40."))
    peer.busy(2)
    assert pilot_of(model_of(peer, stream=stream)).kickoff("When?").raw == "At 11:40."
    assert statuses(peer) == [429, 429, 200]


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_half_a_stream_is_never_an_answer(peer, provider):
    peer.script(Turn("When", "High water is at 11:40 in Brest.", breaks_off=True))
    with EventRecorder() as events:
        result = pilot_of(model_of(peer, provider, stream=True)).kickoff("When?")
    assert result.raw == "High water is at 11:40 in Brest."
    assert [event.response for event in events.of(LLMCallCompletedEvent)] == ["High water is at 11:40 in Brest."]
    assert [heard.whole for heard in peer.heard()] == [False, True]


LIFE = """
import os, signal, sys
sys.path.insert(0, {here!r})
from test_aimock import KEY, LLM, MODELS, crew_of
from crewlite import event_bus
from crewlite.events import TaskCompletedEvent
event_bus.on(TaskCompletedEvent, lambda source, event: os.kill(os.getpid(), signal.SIGKILL))
crew_of(LLM(MODELS["openai"], base_url={base!r}, api_key=KEY), checkpoint=True).kickoff(run_id="tides")
"""


def test_a_run_killed_between_two_tasks_goes_on_and_asks_nothing_twice(peer):
    peer.script(*TURNS)
    life = LIFE.format(here=str(Path(__file__).parent), base=peer.base("openai"))
    first = children.run([sys.executable, "-c", life], capture_output=True, text=True)
    assert first.returncode == -signal.SIGKILL, first.stderr
    assert statuses(peer) == [200, 200]
    assert crew_of(model_of(peer), checkpoint=True).kickoff(run_id="tides").raw == "Thirteen in all."
    asked = [repr(heard.body["messages"]) for heard in peer.heard()]
    assert len(asked) == len(set(asked)) == 4


@llmock_only
def test_the_server_has_nothing_against_how_failures_were_borne(peer):
    """It judges its clients: who asks again too early, too often or in vain, and who takes half a reply for a whole."""
    peer.script(replace(TURNS[0], breaks_off=True), *TURNS[1:])
    peer.busy(2)
    assert crew_of(model_of(peer, stream=True)).kickoff().raw == "Thirteen in all."
    assert [(heard.status, heard.whole) for heard in peer.heard()][:4] == [(429, True)] * 2 + [
        (200, False),
        (200, True),
    ]
    verdict = peer.verdict()
    assert (verdict["findings"], verdict["calls"], verdict["attempts"], verdict["passed"]) == ([], 4, 7, True)


class Tide(BaseModel):
    port: str
    hour: int


@whole_and_stream
def test_an_answer_of_a_shape_is_asked_for_by_its_schema(peer, stream):
    peer.script(Turn("When", '{"port": "Brest", "hour": 11}'))
    task = Task(
        description="When?",
        expected_output="A tide",
        output_pydantic=Tide,
        agent=pilot_of(model_of(peer, stream=stream)),
    )
    assert Crew(tasks=[task]).kickoff().pydantic == Tide(port="Brest", hour=11)
    wanted = peer.heard()[0].body["response_format"]
    assert (wanted["type"], wanted["json_schema"]["name"]) == ("json_schema", "Tide")


def test_a_crew_that_was_recorded_asks_the_server_nothing(peer, tmp_path):
    peer.script(*TURNS)
    path = tmp_path / "replies.jsonl"
    first = crew_of(RecordedLLM(path, model_of(peer, stream=True))).kickoff()
    again = crew_of(RecordedLLM(path, model_of(peer, stream=True))).kickoff()
    assert (again.raw, again.token_usage) == (first.raw, first.token_usage)
    assert statuses(peer) == [200] * 4
    assert KEY not in path.read_text(encoding="utf-8")


@aimock_only
@whole_and_stream
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_usage_is_what_the_server_says(peer, provider, stream):
    said = {"prompt_tokens": 31, "completion_tokens": 7, "total_tokens": 38}
    if provider == "anthropic":
        said = {"input_tokens": 31, "output_tokens": 7}
    response = {"content": "At 11:40.", "usage": said}
    peer.send("POST", "/__aimock/fixtures", {"fixtures": [{"match": {"userMessage": "When"}, "response": response}]})
    used = pilot_of(model_of(peer, provider, stream=stream)).kickoff("When?").token_usage
    assert (used.prompt_tokens, used.completion_tokens, used.requests) == (31, 7, 1)
    assert used.cost and used.cost > 0


@aimock_only
@pytest.mark.parametrize("chaos", ["rateLimitRate", "dropRate", "disconnectRate", "malformedRate"])
@whole_and_stream
def test_chaos_is_outlasted(peer, chaos, stream):
    """Every request fails, until the server was asked twice; the third comes a second later."""
    peer.script(Turn("When", "At 11:40."))
    peer.chaos(**{chaos: 1.0})
    relenting = threading.Thread(target=_relent, args=(peer, 2))
    relenting.start()
    assert pilot_of(model_of(peer, stream=stream)).kickoff("When?").raw == "At 11:40."
    relenting.join()
    assert len(statuses(peer)) == 3


def _relent(peer, after):
    children.until(lambda: len(statuses(peer)) >= after)
    peer.chaos()


@aimock_only
def test_chaos_without_end_is_given_up_and_the_run_goes_on_later(peer):
    peer.script(*TURNS)
    crew = crew_of(model_of(peer), checkpoint=True)
    peer.chaos(rateLimitRate=1.0)
    with pytest.raises(LLMUnavailable, match="status 429"):
        crew.kickoff(run_id="r")
    assert statuses(peer) == [429] * 4
    peer.chaos()
    assert crew.kickoff(run_id="r").raw == "Thirteen in all."
    assert statuses(peer) == [429] * 4 + [200] * 4
