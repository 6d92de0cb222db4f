"""More than sixty faults: with the usual policy none that can be mended fails a run, and no other is tried in vain."""

from __future__ import annotations

import json

import pydantic
import pytest

from crewlite import Agent, Crew, FailurePolicy, Task, ToolCall, tool
from crewlite.errors import (
    ConfigError,
    ContextOverflow,
    GuardrailFailed,
    LLMAuthError,
    LLMEmptyReply,
    LLMRejected,
    LLMTimeout,
    LLMUnavailable,
    MaxIterations,
    OutputInvalid,
    StepTimeout,
)
from crewlite.flow import flow, step
from crewlite.recovery import usual_policy
from crewlite.testing import ScriptedLLM, faults


class HTTPError(Exception):
    def __init__(self, status):
        super().__init__("the server answered with an error")
        self.status_code = status


def from_pydantic():
    try:
        pydantic.TypeAdapter(int).validate_python("x")
    except pydantic.ValidationError as error:
        return error
    raise AssertionError


SERVICE = [
    LLMUnavailable("503"),
    LLMTimeout("m", 2.0),
    ConnectionError("no line"),
    ConnectionResetError(),
    TimeoutError(),
    StepTimeout("tool look", 1.0),
    HTTPError(429),
    HTTPError(500),
    HTTPError(503),
    HTTPError(504),
    RuntimeError("rate limit reached"),
    RuntimeError("Service unavailable"),
    RuntimeError("deadline exceeded"),
]
WORK = [
    OutputInvalid("t", "n is missing", tries=3),
    GuardrailFailed("t", "short", "too long", tries=3),
    MaxIterations("Pilot", 9),
    AssertionError("claimed 100 records but got 42"),
    json.JSONDecodeError("Expecting value", "", 0),
    from_pydantic(),
    RuntimeError("stuck in a loop"),
    RuntimeError("tool 'serch' not found"),
    RuntimeError("the answer is off topic"),
    RuntimeError("a hallucinated file"),
    RuntimeError("two parts were skipped"),
]
LASTING = [
    KeyError("tide"),
    ValueError("sold 429 tickets"),
    ZeroDivisionError(),
    ConfigError("no such setting"),
    LLMAuthError("m", 401, "bad key"),
    LLMRejected("m", 400, "bad request"),
    HTTPError(401),
    HTTPError(404),
]


def in_model(error, times, policy):
    """The result of a crew whose model fails, and the calls of the model."""
    llm = ScriptedLLM(faults(lambda messages: "done", *[error] * times))
    agent = Agent(role="Pilot", goal="answer", llm=llm)
    task = Task(name="t", description="d", expected_output="e", agent=agent)
    return outcome(lambda: Crew(tasks=[task], failure_policy=policy).kickoff().raw), len(llm.calls)


def in_tool(error, times, policy):
    """The result of a crew whose tool fails, or what its model was told, and the calls of the tool."""
    made = []

    def look() -> str:
        """Look."""
        return "done"

    failing = faults(look, *[error] * times)

    @tool
    def seen() -> str:
        """Look."""
        made.append(1)
        return failing()

    def reply(messages):
        told = [message["content"] for message in messages if message["role"] == "tool"]
        return told[-1] if told else ToolCall("seen")

    agent = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(reply), tools=[seen])
    task = Task(name="t", description="d", expected_output="e", agent=agent)
    return outcome(lambda: Crew(tasks=[task], failure_policy=policy).kickoff().raw), len(made)


def in_step(error, times, policy):
    """The result of a flow whose step fails, and the calls of the step."""
    made = []

    def work() -> str:
        return "done"

    failing = faults(work, *[error] * times)

    @step
    def one() -> str:
        made.append(1)
        return failing()

    @flow(failure_policy=policy)
    def whole() -> str:
        return one()

    return outcome(whole.kickoff), len(made)


def outcome(run):
    try:
        return run()
    except Exception as error:
        return f"failed: {type(error).__name__}"


PLACES = [in_model, in_tool, in_step]
MENDED = [(place, error) for place in PLACES for error in SERVICE]
MENDED += [(place, error) for place in PLACES for error in WORK]
MENDED += [(in_model, LLMEmptyReply("m")), (in_step, ContextOverflow("m", 400, "too long"))]
LEFT = [(place, error) for place in PLACES for error in LASTING]


def name(value):
    return value.__name__ if callable(value) else f"{type(value).__name__}-{value}"[:40]


@pytest.mark.parametrize(("place", "error"), MENDED, ids=name)
def test_a_fault_that_can_be_mended_costs_one_more_call_and_fails_the_run_without_a_policy(place, error):
    assert place(error, 1, usual_policy(base=0.001)) == ("done", 2)
    result, calls = place(error, 1, FailurePolicy())
    assert (result != "done", calls) == (True, 1)


@pytest.mark.parametrize(("place", "error"), LEFT, ids=name)
def test_a_fault_that_lasts_is_not_tried_in_vain(place, error):
    with_policy, without = (place(error, 9, policy) for policy in (usual_policy(base=0.001), FailurePolicy()))
    assert with_policy[1] == without[1] == 1
    assert with_policy[0] != "done"


def test_there_are_as_many_as_the_page_on_policies_says():
    assert (len(MENDED), len(LEFT)) == (74, 24)
