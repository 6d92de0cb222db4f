"""What went wrong is told by rules, by a model, or by both: from the failing step first, and without ever raising."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import urllib.error

import jsonschema
import pydantic
import pytest

from crewlite import Agent, Crew, FailurePolicy, Task, tool
from crewlite.errors import (
    ConfigError,
    ContextOverflow,
    GuardrailFailed,
    LLMEmptyReply,
    LLMTimeout,
    LLMUnavailable,
    MaxIterations,
    OutputInvalid,
    StepRaised,
    StepTimeout,
    TooManyCalls,
)
from crewlite.recovery import (
    Evidence,
    Failure,
    FailureType,
    HybridClassifier,
    LLMClassifier,
    RecordedStep,
    RulesClassifier,
    Symptom,
    replan,
)
from crewlite.recovery.classify import SYMPTOMS, classified
from crewlite.testing import ScriptedLLM, assert_classifies_as, faults
from tests.cuts import lives

T = FailureType


class HTTPStatusError(Exception):
    """As HTTP libraries raise it: with the response."""

    def __init__(self, status: int) -> None:
        super().__init__("the server answered with an error")
        self.response = type("Response", (), {"status_code": status})()


def misfit() -> Exception:
    class Answer(pydantic.BaseModel):
        n: int

    try:
        Answer.model_validate({"n": "x"})
    except pydantic.ValidationError as error:
        return error
    raise AssertionError


def not_json() -> Exception:
    try:
        json.loads("{n: 1}")
    except json.JSONDecodeError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), T.TIMEOUT),
        (StepTimeout("tool look", 2.0), T.TIMEOUT),
        (LLMTimeout("m", 2.0), T.TIMEOUT),
        (HTTPStatusError(504), T.TIMEOUT),
        (RuntimeError("Deadline exceeded while waiting"), T.TIMEOUT),
        (LLMUnavailable("429"), T.EXTERNAL_FAULT),
        (LLMEmptyReply("m"), T.EXTERNAL_FAULT),
        (ConnectionResetError(), T.EXTERNAL_FAULT),
        (urllib.error.HTTPError("http://x", 503, "down", None, io.BytesIO()), T.EXTERNAL_FAULT),
        (HTTPStatusError(429), T.EXTERNAL_FAULT),
        (RuntimeError("rate limit reached"), T.EXTERNAL_FAULT),
        (RuntimeError("status 503 from the archive"), T.EXTERNAL_FAULT),
        (ContextOverflow("m", 400, "too long"), T.CONTEXT_OVERFLOW),
        (RuntimeError("maximum context length is 8192 tokens"), T.CONTEXT_OVERFLOW),
        (HTTPStatusError(402), T.BUDGET_EXHAUSTED),
        (RuntimeError("insufficient_quota"), T.BUDGET_EXHAUSTED),
        (OutputInvalid("t", "n is missing", tries=3), T.SCHEMA_MISMATCH),
        (misfit(), T.SCHEMA_MISMATCH),
        (not_json(), T.SCHEMA_MISMATCH),
        (jsonschema.ValidationError("'n' is a required property"), T.SCHEMA_MISMATCH),
        (RuntimeError("the answer is not valid JSON"), T.SCHEMA_MISMATCH),
        (RuntimeError("Tool 'serch' not found"), T.WRONG_TOOL_CALLED),
        (RuntimeError("There is no tool named 'serch'"), T.WRONG_TOOL_CALLED),
        (RuntimeError("unknown function serch"), T.WRONG_TOOL_CALLED),
        (GuardrailFailed("t", "short", "too long", tries=3), T.CONSTRAINT_IGNORED),
        (RuntimeError("the answer violates the style guide"), T.CONSTRAINT_IGNORED),
        (TooManyCalls("f", "m", 9), T.LOOP_DETECTED),
        (RuntimeError("stuck in a loop"), T.LOOP_DETECTED),
        (AssertionError("agent claimed 100 records but tool returned 42"), T.HALLUCINATED_STATE),
        (RuntimeError("hallucinated a file"), T.HALLUCINATED_STATE),
        (RuntimeError("this is off topic"), T.GOAL_DRIFT),
        (MaxIterations("Pilot", 9), T.PLAN_INCOMPLETE),
        (RuntimeError("two parts were skipped"), T.PLAN_INCOMPLETE),
        (StepRaised("s", "requests.ReadTimeout", "x"), T.UNKNOWN),
        (StepRaised("s", "TimeoutError", "x"), T.TIMEOUT),
        (KeyError("tide"), T.UNKNOWN),
        (ValueError("sold 429 tickets"), T.UNKNOWN),
        (ConfigError("x"), T.UNKNOWN),
    ],
    ids=lambda value: str(value) if isinstance(value, FailureType) else f"{type(value).__name__}",
)
def test_rules_know_an_error_by_its_class_its_status_and_then_by_words(error, expected):
    assert_classifies_as(error, expected)


def test_every_type_that_rules_can_tell_has_a_symptom():
    assert {symptom.type for symptom in SYMPTOMS} == set(FailureType) - {T.UNKNOWN}


def test_the_class_of_an_error_counts_before_its_words():
    failure = RulesClassifier().classify(Failure.of(ConnectionError("validation error: tool x not found")))
    assert (failure.type, failure.evidence) == (
        T.EXTERNAL_FAULT,
        (Evidence("class of the error", "ConnectionError", 1.0),),
    )


def after(error, *steps, **settings):
    """The type of a failure that came after these steps."""
    failure = Failure.of(error)
    return RulesClassifier(**settings).classify(
        Failure(failure.kind, failure.error_type, failure.message, classes=failure.classes, trajectory=steps)
    )


CALL = RecordedStep("tool:look", tool="look", input={"port": "Brest"}, output="nothing")


def test_a_fault_that_the_work_has_recovered_from_decides_nothing():
    recovered = RecordedStep("fetch", tool="fetch", error="503 service unavailable")
    assert after(KeyError("x"), recovered, RecordedStep("fetch", tool="fetch", output="ok")).type is T.UNKNOWN
    assert after(KeyError("x"), RecordedStep("plan"), recovered).type is T.EXTERNAL_FAULT
    assert after(ValueError("not valid JSON"), RecordedStep("plan"), recovered).type is T.SCHEMA_MISMATCH


def test_equal_calls_with_equal_results_are_a_loop_and_polling_is_none():
    assert after(MaxIterations("Pilot", 9), CALL, CALL, CALL).type is T.LOOP_DETECTED
    assert after(MaxIterations("Pilot", 9), CALL, CALL).type is T.PLAN_INCOMPLETE
    assert after(KeyError("x"), CALL, CALL, loop_window=2).type is T.LOOP_DETECTED
    polled = [RecordedStep("tool:poll", tool="poll", output=f"{n} %") for n in range(3)]
    assert after(KeyError("x"), *polled).type is T.UNKNOWN
    assert after(LLMUnavailable("503"), CALL, CALL, CALL).type is T.EXTERNAL_FAULT


def test_constraints_and_symptoms_of_your_own_come_first():
    said = RecordedStep("llm#1", said="As an AI model I cannot say.")
    assert after(KeyError("x"), said, constraints=["as an AI"]).evidence == (
        Evidence("constraint", "the answer holds 'as an AI'", 0.6),
    )
    own = [Symptom("goal_drift", errors=["TimeoutError"]), Symptom(T.LOOP_DETECTED, words="again", confidence=0.4)]
    assert after(TimeoutError(), symptoms=own).type is T.GOAL_DRIFT
    assert after(RuntimeError("timed out again"), symptoms=own).type is T.TIMEOUT


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Symptom("sadness"), "'sadness' is no type of failure; wanted one of wrong_tool_called"),
        (lambda: Symptom("timeout", words="("), "which is no regular expression"),
        (lambda: Symptom("timeout", errors="TimeoutError"), "wanted a list of str"),
        (lambda: RulesClassifier(constraints="no"), r"wanted a list, such as \['a text'\]"),
        (lambda: RulesClassifier(loop_window=1), "loop_window is 1; wanted a whole number, 2 or more"),
        (lambda: LLMClassifier(3), "llm is an int; wanted a model"),
        (lambda: LLMClassifier("offline", max_steps=0), "max_steps is 0; wanted a whole number, 1 or more"),
        (lambda: HybridClassifier(ScriptedLLM([]), rules=3), "HybridClassifier: classifier is 3; wanted"),
        (lambda: faults(print, "x"), "'x' is no error; wanted errors"),
    ],
)
def test_what_cannot_classify_is_told_when_it_is_made(make, match):
    with pytest.raises(ConfigError, match=match):
        make()


LOST = Failure.of(KeyError("tide"), "task:ask")


def told(classifier, failure=LOST):
    return asyncio.run(classified(classifier, failure))


@pytest.mark.parametrize(
    ("reply", "expected", "reason"),
    [
        ("goal_drift: it wrote a poem", T.GOAL_DRIFT, "it wrote a poem"),
        ("The type is **Hallucinated State**", T.HALLUCINATED_STATE, "**"),
        ("I do not know", T.UNKNOWN, "The model named no type: I do not know"),
        (LLMUnavailable("503"), T.UNKNOWN, "LLMUnavailable: 503"),
    ],
)
def test_a_model_names_the_type_and_never_raises(reply, expected, reason):
    llm = ScriptedLLM([reply] * 9)
    found = told(LLMClassifier(llm))
    assert (found.type, found.evidence[0].rule, found.evidence[0].text) == (expected, "LLMClassifier", reason)
    system, user = llm.calls[0]
    assert "- goal_drift: The work is about something else than was asked." in system["content"]
    assert user["content"] == "<failure>\nstep: task:ask\nerror: KeyError: 'tide'\n</failure>"


def test_a_hybrid_asks_its_model_only_about_what_the_rules_do_not_know():
    llm = ScriptedLLM(["goal_drift: a poem"])
    hybrid = HybridClassifier(LLMClassifier(llm))
    assert told(hybrid, Failure.of(TimeoutError())).type is T.TIMEOUT
    assert llm.calls == []
    assert told(hybrid).type is T.GOAL_DRIFT


class Own:
    def __init__(self, says):
        self.says = says

    async def classify(self, failure):
        if isinstance(self.says, BaseException):
            raise self.says
        return self.says


@pytest.mark.parametrize("says", ["timeout", "TIMEOUT", T.TIMEOUT, dataclasses.replace(LOST, type=T.TIMEOUT)])
def test_a_classifier_of_your_own_may_be_async_and_name_the_type_in_either_case(says, caplog):
    assert told(Own(says)).type is T.TIMEOUT
    assert not caplog.records
    with pytest.raises(AssertionError, match="KeyError is classified as timeout, not as unknown"):
        assert_classifies_as(KeyError(), T.UNKNOWN, Own(says))


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (KeyError("x"), "Own raised KeyError: 'x'"),
        (SystemExit(3), "Own raised RuntimeError: it raised SystemExit(3)"),
        (asyncio.CancelledError(), "Own raised RuntimeError: the function raised CancelledError"),
        (None, "Own returned None, which is no type of failure"),
        (3, "Own returned 3, which is no type of failure"),
        ("sadness", "Own returned 'sadness', which is no type of failure"),
        (["timeout"], "Own returned ['timeout'], which is no type of failure"),
        (dataclasses.replace(LOST, type="sadness"), "which is no type of failure"),
        (dataclasses.replace(LOST, evidence=3), "Own raised TypeError: 'int' object is not iterable"),
    ],
)
def test_a_classifier_that_tells_no_type_leaves_the_failure_unknown_and_says_so(says, reason, caplog):
    found = told(Own(says))
    assert (found.type, found.evidence[0].rule) == (T.UNKNOWN, "Own")
    assert reason in found.evidence[0].text
    [warning] = caplog.messages
    assert reason in warning
    assert "wanted one of wrong_tool_called, " in warning


def test_faults_come_at_their_calls_in_functions_tools_and_models():
    @tool
    def look(port: str) -> str:
        """Look at a port."""
        return f"seen {port}"

    broken = tool(faults(look.func, ConnectionError("no line")))
    assert broken.name == "look"
    with pytest.raises(ConnectionError):
        broken("Brest")
    assert broken("Brest") == "seen Brest"

    async def slow() -> int:
        return 1

    late = faults(slow, None, TimeoutError())
    assert asyncio.run(late()) == 1
    with pytest.raises(TimeoutError):
        asyncio.run(late())
    assert [type(one) for one in faults(["a"], LLMUnavailable("503"), None, LLMUnavailable("x"))] == [
        LLMUnavailable,
        str,
        LLMUnavailable,
    ]


def judged(asked):
    """A crew whose first answer is an error that only a model can name. `asked` counts the calls of that model."""

    def judge(messages):
        asked.append(messages)
        return "goal_drift: it wrote a poem"

    def work(messages):
        if "it wrote a poem" in messages[-1]["content"]:
            return "tides"
        raise KeyError("verse")

    def made(checkpoint):
        agent = Agent(role="Pilot", goal="answer", llm=ScriptedLLM(work))
        ask = Task(name="ask", description="Ask", expected_output="A word", agent=agent)
        classifier = HybridClassifier(ScriptedLLM(judge, model="judge"))
        policy = FailurePolicy(GOAL_DRIFT=replan(), classifier=classifier)
        return Crew(tasks=[ask], failure_policy=policy, checkpoint=checkpoint)

    return made


def test_what_a_model_says_of_a_failure_is_recorded_and_not_asked_again_after_a_kill_at_any_commit():
    asked: list[object] = []
    counts = []
    for whole, again in lives(judged(asked)):
        assert (again.raw, again.token_usage.requests) == (whole.raw, whole.token_usage.requests) == ("tides", 2)
        counts.append(len(asked))
        asked.clear()
    assert sum(counts[1:]) <= 1, "no more than the kill between the failure and the answer costs a call"
